/** The settings: lines, three tabs for each, and the way from a change to a confirmed change. */

import { useEffect, useState } from 'preact/hooks';
import { api, type Check, type Config, type Finding, type Interfaces, type Link, type Option } from '../api';
import { t } from '../i18n';
import { go } from '../route';
import { useAnswer, useIsAdmin, useStore } from '../store';
import { ChoiceField } from '../ui/labelled';
import { Failed } from '../ui/attempt';
import { Badge, Notice, Tabs } from '../ui/parts';
import { useCheck } from './check';
import { add, changes, type Draft, EMPTY, lines, rebase, remove, set, type Line } from './draft';
import { ON, type Form } from './field';
import { Review } from './review';
import { countIn, TAB_IDS, Tab, type TabId } from './tabs';

export function Settings({ path }: { path: string[] }) {
    const { answer, error } = useAnswer(load);
    if (error) return <Failed of={error} />;
    if (!answer) return <p>{t('app.loading')}</p>;
    return <Loaded {...answer} path={path} />;
}

interface Facts {
    config: Config;
    options: Option[];
    links: Link[];
    interfaces: Interfaces | null;
}

async function load(): Promise<Facts> {
    const [config, options, links, interfaces] = await Promise.all([
        api.config(),
        api.options(),
        api.links(),
        // Without it one types the name of the device.
        api.interfaces().catch(() => null),
    ]);
    return { config, options, links, interfaces };
}

function Loaded({ config: first, options, links, interfaces, path }: Facts & { path: string[] }) {
    const isAdmin = useIsAdmin();
    const { refresh, status } = useStore();
    const [config, setConfig] = useState(first);
    const [draft, setDraft] = useState<Draft>(EMPTY);
    const [touched, setTouched] = useState<Set<string>>(new Set());
    const [reviews, setReviews] = useState(false);
    const wanted = changes(draft);
    const { check, fresh, error } = useCheck(isAdmin ? wanted : null);

    const all = lines(config, draft);
    const line = all.find(({ index }) => String(index) === path[0]) ?? all[0];
    const tab = TAB_IDS.find((id) => id === path[1]) ?? 'basic';

    const waiting = status?.unconfirmed != null;
    useEffect(() => {
        // Put back or kept: either way the file may be another one now.
        void api.config().then(setConfig, () => {});
    }, [waiting]);
    useEffect(() => {
        if (wanted.length === 0) return;
        const warn = (event: BeforeUnloadEvent) => event.preventDefault();
        addEventListener('beforeunload', warn);
        return () => removeEventListener('beforeunload', warn);
    }, [wanted.length === 0]);

    const begin = () => {
        const script = options.find(({ name }) => name === 'script')?.default ?? 'best_of_cake.qos';
        const device = interfaces?.suggested;
        const isTaken = all.some((one) => one.value('interface') === device);
        const [next, index] = add(config, draft, {
            enabled: '1',
            script,
            ...(device && !isTaken ? { interface: device } : {}),
        });
        setDraft(next);
        go('settings', index, 'basic');
    };
    const drop = () => {
        setDraft(EMPTY);
        setTouched(new Set());
    };
    const renew = async (keeps: boolean) => {
        const next = await api.config();
        setDraft(keeps ? rebase(config, next, draft) : EMPTY);
        setConfig(next);
        if (!keeps) setTouched(new Set());
    };

    return (
        <>
            <div class="head">
                <h1>{t('settings.title')}</h1>
                {isAdmin && (
                    <button type="button" onClick={begin}>
                        {t('settings.add')}
                    </button>
                )}
            </div>
            {check && check.revision !== config.revision && !waiting && <Conflict renew={renew} />}
            <Failed of={error} />
            {check && <Elsewhere check={check} known={all} />}
            {!line && <Empty begin={begin} isAdmin={isAdmin} />}
            {line && (
                <>
                    {all.length > 1 && <Choice all={all} current={line} tab={tab} check={check} />}
                    <OfLine
                        line={line}
                        tab={tab}
                        options={options}
                        links={links}
                        interfaces={interfaces}
                        check={check}
                        isLocked={!isAdmin}
                        touched={touched}
                        set={(option, value) => {
                            setTouched((before) => new Set(before).add(`${line.index} ${option}`));
                            setDraft((before) => set(config, before, line.index, option, value));
                        }}
                        remove={() => {
                            setDraft(remove(config, draft, line.index));
                            go('settings');
                        }}
                    />
                </>
            )}
            {check && <AsText check={check} file={config.file} />}
            {wanted.length > 0 && (
                <Bottom
                    count={wanted.length}
                    check={fresh ? check : null}
                    discard={drop}
                    review={() => {
                        if (!check || !fresh) return;
                        const wrong = check.errors[0];
                        if (!wrong) return setReviews(true);
                        // Now everything that is missing may be said, and the first of it is where to go on.
                        setTouched(new Set(check.errors.map(({ section, option }) => `${section} ${option}`)));
                        if (wrong.section !== null) go('settings', wrong.section, tabOf(options, wrong));
                        setTimeout(() => document.getElementById(`option-${wrong.option}`)?.focus());
                    }}
                />
            )}
            {reviews && check && (
                <Review
                    check={check}
                    changes={wanted}
                    revision={config.revision}
                    close={() => setReviews(false)}
                    renew={async (keeps) => {
                        setReviews(false);
                        await renew(keeps);
                    }}
                    applied={async () => {
                        await renew(false);
                        setReviews(false);
                        await refresh();
                    }}
                />
            )}
        </>
    );
}

function tabOf(options: Option[], { option }: Finding): TabId {
    return options.find(({ name }) => name === option)?.tab ?? 'basic';
}

function Empty({ begin, isAdmin }: { begin: () => void; isAdmin: boolean }) {
    return (
        <section class="card">
            <h2>{t('dashboard.nothing')}</h2>
            <p>{t('dashboard.nothing_help')}</p>
            {isAdmin && (
                <div>
                    <button type="button" class="main" onClick={begin}>
                        {t('dashboard.begin')}
                    </button>
                </div>
            )}
        </section>
    );
}

function Choice({ all, current, tab, check }: { all: Line[]; current: Line; tab: TabId; check: Check | null }) {
    const text = (line: Line, n: number) => {
        const count = check?.errors.filter(({ section }) => section === line.index).length ?? 0;
        const parts = [
            line.value('interface') ?? t('settings.line', { n: n + 1 }),
            isOn(line) ? '' : t('settings.off'),
            count > 0 ? mistakes(count) : '',
        ];
        return parts.filter(Boolean).join(' – ');
    };
    return (
        <ChoiceField
            id="line"
            label={t('settings.lines')}
            value={current.index}
            choices={all.map((line, n) => ({ value: line.index, text: text(line, n) }))}
            choose={(index) => go('settings', index, tab)}
        />
    );
}

const isOn = (line: Line) => ON.includes((line.value('enabled') ?? '0').toLowerCase());

const mistakes = (n: number) => t(n === 1 ? 'settings.mistakes.one' : 'settings.mistakes.other', { n });

interface OfLineProps {
    line: Line;
    tab: TabId;
    options: Option[];
    links: Link[];
    interfaces: Interfaces | null;
    check: Check | null;
    isLocked: boolean;
    touched: Set<string>;
    set: (option: string, value: string | null) => void;
    remove: () => void;
}

function OfLine({ line, tab, options, links, interfaces, check, isLocked, touched, set, remove }: OfLineProps) {
    const of = (findings: Finding[] | undefined, option: string) =>
        (findings ?? []).filter((one) => one.section === line.index && one.option === option);
    const form: Form = {
        line,
        options: new Map(options.map((option) => [option.name, option])),
        links,
        interfaces,
        isLocked,
        set,
        // What nobody has filled in yet is not called wrong while one is still on the way there.
        errors: (option) =>
            line.isNew && !touched.has(`${line.index} ${option}`) && line.value(option) === null
                ? []
                : of(check?.errors, option),
        warnings: (option) => of(check?.warnings, option),
    };
    const general = [...(check?.errors ?? []), ...(check?.warnings ?? [])].filter(
        ({ section, option }) => section === line.index && (option === null || !form.options.has(option)),
    );
    const plan = check?.plans.find((one) => one.interface === line.value('interface'));
    return (
        <section class="card" aria-label={line.value('interface') ?? t('settings.title')}>
            <Tabs
                label={t('settings.tabs')}
                tabs={TAB_IDS.map((id) => ({ id, name: t(`settings.${id}`), errors: countIn(id, options, form) }))}
                current={tab}
                choose={(id) => go('settings', line.index, id)}
            >
                {general.map(({ message }) => (
                    <Notice key={message} tone="warn">
                        <p>{message}</p>
                    </Notice>
                ))}
                <Tab key={`${line.index} ${tab}`} id={tab} options={options} form={form} />
            </Tabs>
            {check && check.errors.length === 0 && (
                <details>
                    <summary>{t('settings.commands')}</summary>
                    <div class="stack">
                        <p class="soft small">{t('settings.commands_help')}</p>
                        {plan ? <pre>{plan.commands.join('\n')}</pre> : <p>{t('settings.commands_off')}</p>}
                        {plan?.notes.map((note) => (
                            <p key={note} class="soft small">
                                {note}
                            </p>
                        ))}
                    </div>
                </details>
            )}
            {!isLocked && (
                <div>
                    <button type="button" class="link" onClick={remove}>
                        {t('settings.remove')}
                    </button>
                </div>
            )}
        </section>
    );
}

/** What is wrong with the file outside of the lines that can be shown. */
function Elsewhere({ check, known }: { check: Check; known: Line[] }) {
    const isShown = (finding: Finding) => known.some(({ index }) => index === finding.section);
    const others = [...check.errors, ...check.warnings].filter((finding) => !isShown(finding));
    if (others.length === 0) return null;
    return (
        <Notice tone="warn">
            <h2>{t('settings.elsewhere')}</h2>
            {others.map(({ line, message }) => (
                <p key={`${line} ${message}`}>
                    {line}: {message}
                </p>
            ))}
        </Notice>
    );
}

export function Conflict({ renew }: { renew: (keeps: boolean) => Promise<void> }) {
    return (
        <Notice tone="warn" alert>
            <h2>{t('review.conflict')}</h2>
            <p>{t('review.conflict_help')}</p>
            <div class="row">
                <button type="button" onClick={() => void renew(true)}>
                    {t('review.rebase')}
                </button>
                <button type="button" onClick={() => void renew(false)}>
                    {t('review.drop')}
                </button>
            </div>
        </Notice>
    );
}

function AsText({ check, file }: { check: Check; file: string }) {
    return (
        <details class="card">
            <summary>{t('settings.text')}</summary>
            <div class="stack">
                <p class="soft small">{t('settings.text_help', { file })}</p>
                <pre>{check.text}</pre>
            </div>
        </details>
    );
}

interface BottomProps {
    count: number;
    /** Null while it is on its way. */
    check: Check | null;
    discard: () => void;
    review: () => void;
}

function Bottom({ count, check, discard, review }: BottomProps) {
    const wrong = check?.errors.length ?? 0;
    return (
        <div class="bottom">
            <span class="row" role="status">
                <strong>{t(count === 1 ? 'settings.changes.one' : 'settings.changes.other', { n: count })}</strong>
                {!check && <span class="soft">{t('settings.checking')}</span>}
                {check && wrong === 0 && <Badge tone="good">{t('settings.fine')}</Badge>}
                {wrong > 0 && <Badge tone="bad">{mistakes(wrong)}</Badge>}
            </span>
            <span class="row">
                <button type="button" onClick={discard}>
                    {t('settings.discard')}
                </button>
                <button type="button" class="main" onClick={review}>
                    {t('settings.review')}
                </button>
            </span>
        </div>
    );
}
