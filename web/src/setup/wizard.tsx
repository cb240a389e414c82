/** The first setup: interface, kind of line, speeds, and a summary that is applied. The steps are those of `sqm setup`. */

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Change } from '../api';
import { t } from '../i18n';
import { go } from '../route';
import { useCheck } from '../settings/check';
import { doubtsOf } from '../settings/doubts';
import { add, changes, EMPTY, lines, set } from '../settings/draft';
import { type Facts, load } from '../settings/facts';
import { linkTitle } from '../settings/field';
import { ReviewParts } from '../settings/review';
import { useAnswer, useIsAdmin, useStore } from '../store';
import { Failed } from '../ui/attempt';
import { Errors, Figures, Notice } from '../ui/parts';
import { mbit } from '../units';
import { type Answers, remember, remembered } from './answers';
import { presetOf } from './kinds';
import { type RatesRead, useRates } from './rates-read';
import { InterfaceStep, KindStep, SpeedStep } from './steps';

const STEPS = ['interface', 'kind', 'speeds', 'summary'] as const;

export function Wizard() {
    const { answer, error, again } = useAnswer(load);
    const isAdmin = useIsAdmin();
    return (
        <>
            <h1>{t('setup.title')}</h1>
            <Failed error={error} />
            {!isAdmin && <p>{t('app.read_only')}</p>}
            {!answer && !error && <p>{t('app.loading')}</p>}
            {answer && isAdmin && <Steps facts={answer} reload={again} />}
        </>
    );
}

function Steps({ facts, reload }: { facts: Facts; reload: () => Promise<void> }) {
    const [answers, setAnswers] = useState<Answers>(() => remembered(facts));
    const [at, setAt] = useState(0);
    const rates = useRates(answers);
    const heading = useRef<HTMLHeadingElement>(null);
    const isFirst = useRef(true);
    useEffect(() => {
        if (!isFirst.current) heading.current?.focus();
        isFirst.current = false;
    }, [at]);
    const step = STEPS[at] ?? 'summary';
    const change = (some: Partial<Answers>) => {
        const next = { ...answers, ...some };
        remember(next);
        setAnswers(next);
    };
    const canGoOn = {
        interface: answers.device !== '',
        kind: answers.kind !== null || answers.preset !== null,
        speeds: rates?.download.shaper_kbit != null && rates.upload.shaper_kbit != null,
        summary: false,
    }[step];
    const submit = (event: Event) => {
        event.preventDefault();
        if (canGoOn) setAt(at + 1);
    };
    const props = { answers, change, facts };
    return (
        <section class="card" aria-label={t('setup.title')}>
            <p class="small soft">{t('setup.step', { n: at + 1, of: STEPS.length })}</p>
            <h2 ref={heading} tabIndex={-1}>
                {t(`setup.${step}`)}
            </h2>
            {step === 'summary' ? (
                <Summary {...props} rates={rates} back={() => setAt(at - 1)} reload={reload} />
            ) : (
                <form class="stack" onSubmit={submit}>
                    {step === 'interface' && <InterfaceStep {...props} />}
                    {step === 'kind' && <KindStep {...props} />}
                    {step === 'speeds' && <SpeedStep {...props} rates={rates} />}
                    <div class="row">
                        <button type="submit" class="main" disabled={!canGoOn}>
                            {t('setup.next')}
                        </button>
                        {at > 0 && (
                            <button type="button" onClick={() => setAt(at - 1)}>
                                {t('setup.back')}
                            </button>
                        )}
                    </div>
                </form>
            )}
        </section>
    );
}

interface SummaryProps {
    answers: Answers;
    facts: Facts;
    rates: RatesRead | null;
    back: () => void;
    reload: () => Promise<void>;
}

function Summary({ answers, facts, rates, back, reload }: SummaryProps) {
    const { refresh } = useStore();
    const preset = answers.preset ?? presetOf(answers.kind ?? 'unknown', answers, facts.links);
    const wanted = wantedChanges(facts, answers.device, preset, rates);
    const { check, fresh, error } = useCheck(facts.config.revision, wanted.changes);
    const link = facts.links.find(({ name }) => name === preset);
    const rate = (kilobits: number | null | undefined) => (kilobits == null ? '–' : mbit(kilobits * 1000));
    const way = (name: 'download' | 'upload') => ({
        name: t(`direction.${name}`),
        value: rate(rates?.[name].shaper_kbit),
        about: t('setup.of_line', { rate: rate(rates?.[name].line_kbit) }),
    });
    return (
        <div class="stack">
            <Figures
                figures={[
                    { name: t('setup.interface'), value: answers.device },
                    { name: t('setup.kind'), value: link ? linkTitle(link) : preset },
                    way('download'),
                    way('upload'),
                ]}
            />
            <Failed error={error} />
            {!check && !error && <p>{t('settings.checking')}</p>}
            {check && !check.ok && <Errors messages={check.errors.map(({ message }) => message)} />}
            {check?.ok && fresh ? (
                <ReviewParts
                    check={check}
                    changes={wanted.changes}
                    revision={facts.config.revision}
                    doubts={wanted.doubts}
                    close={back}
                    closing={t('setup.back')}
                    reload={reload}
                    applied={async () => {
                        await refresh();
                        go('dashboard');
                    }}
                />
            ) : (
                <div>
                    <button type="button" onClick={back}>
                        {t('setup.back')}
                    </button>
                </div>
            )}
            {check && check.revision !== facts.config.revision && (
                <Notice tone="warn">
                    <p>{t('review.conflict')}</p>
                    <div>
                        <button type="button" onClick={() => void reload()}>
                            {t('review.rebase')}
                        </button>
                    </div>
                </Notice>
            )}
        </div>
    );
}

/** The changes to the section of the interface, or to a new one, and the doubts about the line that they make. */
function wantedChanges(facts: Facts, device: string, link: string, rates: RatesRead | null): { changes: Change[]; doubts: string[] } {
    const { config } = facts;
    const values: Record<string, string> = {
        enabled: '1',
        interface: device,
        download: String(rates?.download.shaper_kbit ?? ''),
        upload: String(rates?.upload.shaper_kbit ?? ''),
        link,
    };
    const known = lines(config, EMPTY).find((line) => line.value('interface') === device);
    const script = facts.options.find(({ name }) => name === 'script')?.default ?? 'best_of_cake.qos';
    if (!known?.value('script')) values.script = script;
    let draft = EMPTY;
    let { index } = known ?? { index: -1 };
    if (known) for (const [option, value] of Object.entries(values)) draft = set(config, draft, index, option, value);
    else [draft, index] = add(config, draft, values);
    const line = lines(config, draft).find((one) => one.index === index);
    return { changes: changes(draft), doubts: line ? doubtsOf(line, facts).map(({ text }) => text) : [] };
}
