/** The settings: the lines with three tabs each, and the review of changes before they are applied. */

import { useState } from 'preact/hooks';
import { type Check, type Finding, type Interfaces, type Link, type Option } from '../api';
import { t } from '../i18n';
import { go } from '../route';
import { useAnswer, useIsAdmin, useStore } from '../store';
import { ChoiceField } from '../ui/labelled';
import { Failed } from '../ui/attempt';
import { NoLine } from '../ui/no-line';
import { Badge, Notice, Tabs } from '../ui/parts';
import { useCheck } from './check';
import { Conflict } from './conflict';
import { type Doubt, doubtsOf } from './doubts';
import { isOn, type Line } from './draft';
import { type Facts, load } from './facts';
import type { Form } from './field';
import { Review, type Reviewed } from './review';
import { useSettingsDraft } from './settings-draft';
import { countIn, TAB_IDS, Tab, type TabId } from './tabs';

export function Settings({ path }: { path: string[] }) {
    const { answer, error } = useAnswer(load);
    if (error) return <Failed error={error} />;
    if (!answer) return <p>{t('app.loading')}</p>;
    return <Loaded {...answer} path={path} />;
}

function Loaded({ config, options, links, interfaces, tests, path }: Facts & { path: string[] }) {
    const isAdmin = useIsAdmin();
    const { refresh, status } = useStore();
    const isUnconfirmed = status?.unconfirmed != null;
    const draft = useSettingsDraft(config, isUnconfirmed);
    const [reviewed, setReviewed] = useState<Reviewed | null>(null);
    const { check, fresh, error } = useCheck(draft.config.revision, isAdmin ? draft.changes : null);
    const isConflict = check !== null && fresh && check.revision !== draft.config.revision;

    const line = draft.lines.find(({ index }) => String(index) === path[0]) ?? draft.lines[0];
    const doubts = (one: Line) => doubtsOf(one, { interfaces, tests });
    const tab = TAB_IDS.find((id) => id === path[1]) ?? 'basic';

    const addLine = () => {
        const script = options.find(({ name }) => name === 'script')?.default ?? 'best_of_cake.qos';
        const device = interfaces?.suggested;
        const isTaken = draft.lines.some((one) => one.value('interface') === device);
        const index = draft.add({ enabled: '1', script, ...(device && !isTaken ? { interface: device } : {}) });
        go('settings', index, 'basic');
    };
    const review = () => {
        if (!check || !fresh) return;
        const first = check.errors[0];
        if (!first) {
            const named = draft.lines.flatMap((one) =>
                doubts(one).map(({ text }) => `${one.value('interface') ?? t('settings.title')}: ${text}`),
            );
            return setReviewed({ check, changes: draft.changes, revision: draft.config.revision, doubts: named });
        }
        // Show all errors, including missing values, and go to the first.
        draft.touch(check.errors);
        if (first.section !== null) go('settings', first.section, tabOf(options, first));
        setTimeout(() => document.getElementById(`option-${first.option}`)?.focus());
    };

    return (
        <>
            <div class="head">
                <h1>{t('settings.title')}</h1>
                {isAdmin && (
                    <button type="button" onClick={addLine}>
                        {t('settings.add')}
                    </button>
                )}
            </div>
            {isConflict && !isUnconfirmed && <Conflict reload={draft.reload} />}
            <Failed error={error} />
            {check && <OtherFindings check={check} lines={draft.lines} />}
            {!line && <NoLine />}
            {line && (
                <>
                    {draft.lines.length > 1 && <LineChoice lines={draft.lines} current={line} tab={tab} check={check} />}
                    <LineEditor
                        line={line}
                        tab={tab}
                        options={options}
                        links={links}
                        interfaces={interfaces}
                        check={check}
                        doubts={doubts(line)}
                        isLocked={!isAdmin}
                        isTouched={(option) => draft.isTouched(line, option)}
                        set={(option, value) => draft.set(line, option, value)}
                        remove={() => {
                            draft.remove(line);
                            go('settings');
                        }}
                    />
                </>
            )}
            {check && <AsText check={check} file={draft.config.file} />}
            {draft.changes.length > 0 && (
                <ActionBar
                    changeCount={draft.changes.length}
                    check={fresh ? check : null}
                    discard={draft.discard}
                    review={review}
                />
            )}
            {reviewed && (
                <Review
                    {...reviewed}
                    close={() => setReviewed(null)}
                    reload={async (keepsChanges) => {
                        setReviewed(null);
                        await draft.reload(keepsChanges);
                    }}
                    applied={async () => {
                        await draft.reload(false);
                        setReviewed(null);
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

function LineChoice({ lines, current, tab, check }: { lines: Line[]; current: Line; tab: TabId; check: Check | null }) {
    const text = (line: Line, n: number) => {
        const count = check?.errors.filter(({ section }) => section === line.index).length ?? 0;
        const parts = [
            line.value('interface') ?? t('settings.line', { n: n + 1 }),
            isOn(line) ? '' : t('settings.off'),
            count > 0 ? errorCount(count) : '',
        ];
        return parts.filter(Boolean).join(' – ');
    };
    return (
        <ChoiceField
            id="line"
            label={t('settings.lines')}
            value={current.index}
            choices={lines.map((line, n) => ({ value: line.index, text: text(line, n) }))}
            choose={(index) => go('settings', index, tab)}
        />
    );
}

const errorCount = (n: number) => t(n === 1 ? 'settings.mistakes.one' : 'settings.mistakes.other', { n });

interface LineEditorProps {
    line: Line;
    tab: TabId;
    options: Option[];
    links: Link[];
    interfaces: Interfaces | null;
    check: Check | null;
    doubts: Doubt[];
    isLocked: boolean;
    isTouched: (option: string) => boolean;
    set: (option: string, value: string | null) => void;
    remove: () => void;
}

function LineEditor({ line, tab, options, links, interfaces, check, doubts, isLocked, isTouched, set, remove }: LineEditorProps) {
    const findingsOf = (findings: Finding[] | undefined, option: string) =>
        (findings ?? []).filter((one) => one.section === line.index && one.option === option);
    const form: Form = {
        line,
        options: new Map(options.map((option) => [option.name, option])),
        links,
        interfaces,
        isLocked,
        set,
        // A new line does not report missing values before the user has been to the field.
        errors: (option) =>
            line.isNew && !isTouched(option) && line.value(option) === null
                ? []
                : findingsOf(check?.errors, option),
        warnings: (option) => findingsOf(check?.warnings, option),
        doubts,
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

/** Findings in parts of the file that are no line of this page. */
function OtherFindings({ check, lines }: { check: Check; lines: Line[] }) {
    const isShown = (finding: Finding) => lines.some(({ index }) => index === finding.section);
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

interface ActionBarProps {
    changeCount: number;
    /** Null while the server validates the changes. */
    check: Check | null;
    discard: () => void;
    review: () => void;
}

function ActionBar({ changeCount, check, discard, review }: ActionBarProps) {
    const wrong = check?.errors.length ?? 0;
    return (
        <div class="bottom">
            <span class="row" role="status">
                <strong>{t(changeCount === 1 ? 'settings.changes.one' : 'settings.changes.other', { n: changeCount })}</strong>
                {!check && <span class="soft">{t('settings.checking')}</span>}
                {check && wrong === 0 && <Badge tone="good">{t('settings.fine')}</Badge>}
                {wrong > 0 && <Badge tone="bad">{errorCount(wrong)}</Badge>}
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
