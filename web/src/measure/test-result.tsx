/** One test: live charts while it runs, then its figures, grade and pictures. */

import { useEffect, useState } from 'preact/hooks';
import { address, api, follow, type Progress, type Responsiveness, type ResponsivenessOf, type Test } from '../api';
import { maybe, number, t } from '../i18n';
import { go } from '../route';
import { useAnswer, useIsAdmin, useStore } from '../store';
import { Chart } from '../ui/chart';
import { Failed, useAttempt } from '../ui/attempt';
import { type Figure, Figures, Notice, type Tone } from '../ui/parts';
import { Picture } from '../ui/picture';
import { Table } from '../ui/table';
import { bytes, mbit, significant } from '../units';
import { GradeView, gradeOf } from './grade';
import { testName } from './name';
import { TestError } from './test-error';
import { PairView } from './pair';
import { PhasesTable } from './phases';

export function TestResultView({ id, ended }: { id: string; ended: () => Promise<void> }) {
    const { answer: test, error, again } = useAnswer(() => api.test(id));
    const { status } = useStore();
    const isRunning = status?.running_test === id;
    // The event of the end does not arrive if the test ended before the page began to listen.
    useEffect(() => void again(), [isRunning]);
    if (error) return <Failed error={error} />;
    if (!test) return <p>{t('app.loading')}</p>;
    if (test.state === 'running') {
        return (
            <Running
                test={test}
                ended={async () => {
                    await again();
                    await ended();
                }}
            />
        );
    }
    return <Result test={test} />;
}

function Running({ test, ended }: { test: Test; ended: () => Promise<void> }) {
    const isAdmin = useIsAdmin();
    const [progress, setProgress] = useState<Progress[]>([]);
    const { error, attempt } = useAttempt();
    useEffect(() => {
        const end = follow(
            address.testLive(test.id),
            {
                progress: (next) => setProgress((before) => inOrder(before, next)),
                end: ({ pair }) => {
                    end();
                    void ended();
                    // The second test of a pair has begun.
                    if (pair && !pair.is_shaped && pair.other) go('test', pair.other);
                },
            },
            // The test may have ended between the request for its state and this connection.
            (isConnected) => {
                if (isConnected) return;
                void api.test(test.id).then(({ state }) => {
                    if (state === 'running') return;
                    end();
                    void ended();
                });
            },
        );
        return end;
    }, [test.id]);
    const last = progress[progress.length - 1];
    const total = last ? last.elapsed_s + last.left_s : test.duration_s;
    const x = progress.map(({ elapsed_s }) => elapsed_s);
    const frame = {
        x,
        range: [0, Math.max(total, 1)] as [number, number],
        place: (at: number) => t('unit.seconds', { n: Math.round(at) }),
        height: 130,
    };
    return (
        <section class="card">
            <div class="head">
                <h2>{testName(test)}</h2>
                {isAdmin && (
                    <button type="button" onClick={() => void attempt(() => api.stopTest(test.id))}>
                        {t('do.stop')}
                    </button>
                )}
            </div>
            <p class="numbers" role="status">
                {t('test.running', { n: Math.round(last?.elapsed_s ?? 0), total: Math.round(total) })}
                {last && ` · ${stage(last)}`}
            </p>
            {test.pair && (
                <Notice>
                    <p>{t(test.pair.is_shaped ? 'pair.running_with' : 'pair.running_without', { name: test.pair.interface })}</p>
                </Notice>
            )}
            <progress aria-label={testName(test)} max={total} value={last?.elapsed_s ?? 0} />
            <Failed error={error} />
            <Chart
                {...frame}
                title={t('test.down')}
                show={(value) => mbit(value * 1e6)}
                series={[
                    { label: t('direction.download'), colour: 'download', values: progress.map((one) => one.download_mbit) },
                ]}
            />
            <Chart
                {...frame}
                title={t('test.up')}
                show={(value) => mbit(value * 1e6)}
                series={[{ label: t('direction.upload'), colour: 'upload', values: progress.map((one) => one.upload_mbit) }]}
            />
            <Chart
                {...frame}
                title={t('test.rtt')}
                show={(value) => `${significant(value)} ms`}
                series={[{ label: t('test.rtt_short'), colour: 'delay', values: progress.map((one) => one.rtt_ms) }]}
            />
        </section>
    );
}

/** The stage of the test, or the directions that it loads now. */
const stage = ({ stage, phase }: Progress) => t(phase === null ? `test.stage.${stage}` : `test.phase.${phase}`);

/** Adds an event. After a reconnect the server sends all events again, from the first. */
function inOrder(before: Progress[], next: Progress): Progress[] {
    const last = before[before.length - 1];
    if (last && next.elapsed_s <= last.elapsed_s) {
        return [...before.filter(({ elapsed_s }) => elapsed_s < next.elapsed_s), next];
    }
    return [...before, next];
}

const SEVERITIES: Record<string, Tone> = { note: 'plain', warning: 'warn', invalid: 'bad' };

function Result({ test }: { test: Test }) {
    const findings = test.verdict?.findings ?? [];
    return (
        <section class="card">
            <div class="head">
                <h2>{testName(test)}</h2>
                {test.bytes !== null && (
                    <a class="button" href={address.file(test.id)} download>
                        {t('test.download_file')} ({bytes(test.bytes)})
                    </a>
                )}
            </div>
            {test.state === 'stopped' && <Notice tone="warn">{t('test.partial')}</Notice>}
            <TestError error={test.error} />
            {test.pair?.other && <PairView test={test} other={test.pair.other} />}
            {test.pair && !test.pair.other && <Notice tone="warn">{t('pair.no_second', { name: test.pair.interface })}</Notice>}
            {test.summary && (
                <div class="row verdict">
                    <GradeView grade={gradeOf(test)} />
                    <Figures figures={figures(test)} />
                </div>
            )}
            {test.summary?.phases && <PhasesTable phases={test.summary.phases} />}
            {test.responsiveness && (
                <>
                    <GradeView grade={gradeOf(test)} />
                    <ResponsivenessTable result={test.responsiveness} />
                </>
            )}
            {findings.map(({ code, text, severity }) => (
                <Notice key={code + text} tone={SEVERITIES[severity] ?? 'warn'}>
                    <p>{text}</p>
                </Notice>
            ))}
            <NextStep test={test} />
            {test.bytes !== null &&
                test.plots.map((plot) => (
                    <Picture key={plot} src={(sheet) => address.plot(test.id, plot, sheet)} title={t(`plot.${plot}`)} />
                ))}
        </section>
    );
}

/** The next steps after this result. */
function NextStep({ test }: { test: Test }) {
    const isAdmin = useIsAdmin();
    const { status } = useStore();
    if (!isAdmin || !status) return null;
    if (test.state === 'failed') return <p>{t('next.failed')}</p>;
    if (test.state !== 'done') return null;
    if (status.interfaces.length === 0) {
        return (
            <div class="row">
                <p>{t('next.unshaped')}</p>
                <a class="button main" href="#/setup">
                    {t('dashboard.begin')}
                </a>
            </div>
        );
    }
    const letter = gradeOf(test)?.letter;
    return (
        <div class="row">
            <p>{t(letter === undefined ? 'next.compare' : letter.startsWith('A') ? 'next.good' : 'next.slow')}</p>
            <a class="button" href="#/tune">
                {t('next.tune')}
            </a>
        </div>
    );
}

function ResponsivenessTable({ result }: { result: Responsiveness }) {
    const names = (['download', 'upload'] as const).filter((name) => result[name]);
    const row = (key: string, name: string, cell: (found: ResponsivenessOf) => string) => ({
        key,
        cells: [name, ...names.map((direction) => cell(result[direction] as ResponsivenessOf))],
    });
    return (
        <>
            <Table
                label={t('test.rpm_figure')}
                heads={['RPM', ...names.map((name) => t(`direction.${name}`))]}
                rows={[
                    row('rpm', t('rpm.figure'), ({ rpm, word }) => `${significant(rpm)}, ${maybe(`rpm.${word}`) ?? word}`),
                    row('foreign', t('rpm.foreign'), ({ foreign_rpm }) => significant(foreign_rpm)),
                    row('self', t('rpm.self'), ({ self_rpm }) => significant(self_rpm)),
                    row('rate', 'Mbit/s', ({ mbit }) => significant(mbit)),
                    row('connections', t('rpm.connections'), ({ connections }) => number(connections)),
                    row('confidence', t('rpm.confidence'), ({ confidence }) => t(`rpm.confidence.${confidence}`)),
                ]}
            />
            <p class="small soft">
                {result.idle_rpm !== null && `${t('rpm.idle', { n: Math.round(result.idle_rpm) })} `}
                {t('rpm.help')} {result.draft}
            </p>
        </>
    );
}

function figures({ summary, verdict }: Test): Figure[] {
    const ms = (value: number | null | undefined) => (value == null ? '–' : `${significant(value)} ms`);
    const rate = (value: number | null | undefined) => (value == null ? '–' : mbit(value * 1e6));
    const rpm = verdict?.grade?.rpm_foreign;
    return [
        { name: t('test.idle'), value: ms(summary?.idle_ms), about: t('test.median') },
        {
            name: t('test.loaded'),
            value: ms(summary?.latency_median_ms),
            about: t('test.p95', { value: ms(summary?.latency_p95_ms) }),
        },
        { name: t('direction.download'), value: rate(summary?.download_mbit), about: t('test.goodput') },
        { name: t('direction.upload'), value: rate(summary?.upload_mbit), about: t('test.goodput') },
        ...(rpm == null
            ? []
            : [{ name: t('test.rpm_figure'), value: significant(rpm), about: maybe(`rpm.${verdict?.grade?.rpm_word}`) }]),
    ];
}
