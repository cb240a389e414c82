/** The dashboard: state, rates and delays of every line. */

import { useEffect, useMemo, useState } from 'preact/hooks';
import { api, type Autorate, type Direction, type InterfaceStatus, type State } from '../api';
import { clock, date, number, said, t } from '../i18n';
import { gradeOf, sentence } from '../measure/grade';
import { useAnswer, useIsAdmin, useStore } from '../store';
import { Chart, type Series } from '../ui/chart';
import { NoLine } from '../ui/no-line';
import { Badge, Figures, Meter, Notice, type Tone } from '../ui/parts';
import { Table } from '../ui/table';
import { bytes, duration, mbit, milliseconds, significant } from '../units';
import { type Curves, MINUTE, useHour, useLive } from './live';

export const TONES: Record<State, Tone> = {
    shaped: 'good',
    new: 'plain',
    waiting: 'warn',
    stopped: 'warn',
    paused: 'warn',
    unconfirmed: 'warn',
    drifted: 'warn',
    contested: 'bad',
    failed: 'bad',
};

/** The least height of the delay axis, ms: CAKE's default target. */
const TARGET_MS = 5;

type Period = 'minute' | 'hour';

export function Dashboard() {
    const { status } = useStore();
    const live = useLive();
    const [period, setPeriod] = useState<Period>('minute');
    const hour = useHour(period === 'hour');
    if (!status) return <p>{t('app.loading')}</p>;
    const interfaces = status.interfaces.map((one) => {
        const now = live.sample?.interfaces.find((sampled) => sampled.interface === one.interface);
        return now ? { ...one, state: now.state, download: now.download, upload: now.upload } : one;
    });
    return (
        <>
            <div class="head">
                <h1>{t('dashboard.title')}</h1>
                {interfaces.length > 0 && <Periods period={period} choose={setPeriod} />}
            </div>
            {status.daemon.errors.map((error) => (
                <Notice key={error} tone="bad">
                    <p>{error}</p>
                </Notice>
            ))}
            {live.silent !== null && (
                <Notice tone="warn">
                    <p class="numbers">{t('dashboard.stale', { n: live.silent })}</p>
                </Notice>
            )}
            {interfaces.length === 0 && <Nothing opens={status.daemon.running && status.daemon.errors.length === 0} />}
            {interfaces.length > 0 && <LastGrade running={status.running_test} />}
            {interfaces.map((one) => (
                <Line
                    key={one.interface}
                    status={one}
                    curves={(period === 'hour' ? hour : live.curves)?.get(one.interface) ?? null}
                    period={period}
                />
            ))}
        </>
    );
}

/** No line is shaped. A user who may set one up gets to the setup at once if `opens` is set. */
function Nothing({ opens }: { opens: boolean }) {
    const isAdmin = useIsAdmin();
    useEffect(() => {
        // Without an entry in the browser's history, so that its back button does not return here.
        if (opens && isAdmin) location.replace('#/setup');
    }, [opens, isAdmin]);
    return <NoLine />;
}

/** The grade of the newest test that has one, or the way to a first test. */
function LastGrade({ running }: { running: string | null }) {
    const { answer, again } = useAnswer(api.tests);
    useEffect(() => void again(), [running]);
    if (!answer) return null;
    // A test during a pause of the shaping says nothing about the line as it is now.
    const last = answer.tests.find((test) => gradeOf(test) && (test.pair?.is_shaped ?? true));
    const grade = last && gradeOf(last);
    return (
        <section class="card" aria-label={t('dashboard.last_grade')}>
            {last && grade ? (
                <div class="row">
                    <span class="grade">{grade.letter}</span>
                    <span class="sentence">
                        {sentence(grade)}{' '}
                        <a class="small" href={`#/test/${last.id}`}>
                            {t('dashboard.tested', { when: date(last.started_unix_ms / 1000) })}
                        </a>
                    </span>
                </div>
            ) : (
                <p>
                    {t('dashboard.not_tested')} <a href="#/test">{t('next.test')}</a>
                </p>
            )}
        </section>
    );
}

function Periods({ period, choose }: { period: Period; choose: (period: Period) => void }) {
    return (
        <select
            class="slim"
            aria-label={t('dashboard.view')}
            value={period}
            onChange={(event) => choose(event.currentTarget.value as Period)}
        >
            <option value="minute">{t('dashboard.minute')}</option>
            <option value="hour">{t('dashboard.hour')}</option>
        </select>
    );
}

function Line({ status, curves, period }: { status: InterfaceStatus; curves: Curves | null; period: Period }) {
    const { device } = status;
    return (
        <section class="card" aria-label={status.interface}>
            <div class="head">
                <h2>{status.interface}</h2>
                <span class="row">
                    <Badge tone={TONES[status.state]}>{t(`state.${status.state}`)}</Badge>
                    <span class="small soft">{t('dashboard.for', { time: duration(status.for_seconds) })}</span>
                </span>
            </div>
            <Why status={status} />
            {device && !device.up && <Notice tone="warn">{t('dashboard.down')}</Notice>}
            {device?.up && !device.carrier && <Notice tone="warn">{t('dashboard.no_carrier')}</Notice>}
            <div class="two">
                <CurrentFigures name="download" direction={status.download} />
                <CurrentFigures name="upload" direction={status.upload} />
            </div>
            {(status.download || status.upload) && <Pictures curves={curves} period={period} />}
            {status.autorate && <AutorateStatus status={status.autorate} />}
            <Tins download={status.download} upload={status.upload} />
        </section>
    );
}

/** Why the line is not shaped. */
function Why({ status: { state, why, paused_for_seconds } }: { status: InterfaceStatus }) {
    if (state === 'paused') {
        return <Notice tone="warn">{t('dashboard.paused', { n: Math.ceil(paused_for_seconds ?? 0) })}</Notice>;
    }
    return why && <Notice tone={TONES[state]}>{why}</Notice>;
}

function CurrentFigures({ name, direction }: { name: 'download' | 'upload'; direction: Direction | null }) {
    if (!direction) {
        return (
            <div class="stack">
                <h3>{t(`direction.${name}`)}</h3>
                <p class="soft">{t('dashboard.unshaped')}</p>
            </div>
        );
    }
    const rate = direction.rate_bits_per_sec;
    const limit = direction.shaped_bits_per_sec;
    return (
        <div class="stack">
            <h3 class={`of-${name}`}>{t(`direction.${name}`)}</h3>
            <Figures
                figures={[
                    {
                        name: t('test.rate'),
                        value: rate === null ? '–' : mbit(rate),
                        about: limit === null ? t('dashboard.unshaped') : t('dashboard.of', { rate: mbit(limit) }),
                    },
                    {
                        name: t('dashboard.queue_delay'),
                        value: direction.delay_peak_us === null ? '–' : milliseconds(direction.delay_peak_us),
                        about: t('dashboard.queue_delay_help'),
                    },
                    {
                        name: t('dashboard.drops_marks'),
                        value: `${number(direction.drops)} / ${number(direction.marks)}`,
                        about: `${t('dashboard.per_second', {
                            n: `${significant(direction.drops_per_sec ?? 0)} / ${significant(direction.marks_per_sec ?? 0)}`,
                        })}; ${t('dashboard.drops_help')}`,
                    },
                ]}
            />
            {rate !== null && limit !== null && limit > 0 && <Meter share={rate / limit} colour={name} />}
        </div>
    );
}

function Pictures({ curves, period }: { curves: Curves | null; period: Period }) {
    const { x, rates, delays, range } = useMemo(() => drawn(curves, period), [curves, period]);
    const place = (at: number) => {
        if (period === 'hour') return clock(at, false);
        return at > -0.5 ? t('dashboard.now') : t('dashboard.ago', { n: Math.round(-at) });
    };
    return (
        <div class="two">
            <Chart
                title={t('dashboard.rate')}
                x={x}
                range={range}
                place={place}
                show={(value) => mbit(value * 1e6)}
                series={rates}
            />
            <Chart
                title={t('dashboard.delay')}
                x={x}
                range={range}
                place={place}
                show={(value) => `${significant(value)} ms`}
                least={TARGET_MS}
                series={delays}
            />
        </div>
    );
}

/** The x axis: seconds before now for the minute, the time of day for the hour. */
function drawn(curves: Curves | null, period: Period) {
    const time = curves?.time ?? [];
    const last = time[time.length - 1] ?? Date.now() / 1000;
    const isHour = period === 'hour';
    const names = ['download', 'upload'] as const;
    const rates: Series[] = names.flatMap((name) => [
        { label: t(`direction.${name}`), colour: name, values: curves?.[name].rate ?? [] },
        {
            label: t('dashboard.limit', { direction: t(`direction.${name}`) }),
            colour: name,
            dashed: true,
            values: curves?.[name].shaped ?? [],
        },
    ]);
    const delays: Series[] = names.map((name) => ({
        label: t(`direction.${name}`),
        colour: name,
        values: curves?.[name].delay ?? [],
    }));
    return {
        x: isHour ? time : time.map((at) => at - last),
        range: (isHour ? [last - 3600, last] : [-MINUTE, 0]) as [number, number],
        rates,
        delays,
    };
}

function AutorateStatus({ status }: { status: Autorate }) {
    const names = ['download', 'upload'] as const;
    return (
        <div class="stack">
            <h3>{t('dashboard.autorate')}</h3>
            <div class="two">
                {names.map((name) => (
                    <div key={name}>
                        <p>
                            <strong class={`of-${name}`}>{t(`direction.${name}`)}</strong>{' '}
                            {mbit(status[name].rate_bits_per_sec)}: {said(status[name].reason)}
                        </p>
                        <p class="small soft">{t('dashboard.cuts', { n: status[name].cuts })}</p>
                    </div>
                ))}
            </div>
            {status.specially_treated.length > 0 && (
                <p>
                    {t('dashboard.special', { kinds: status.specially_treated.map((kind) => kind.toUpperCase()).join(', ') })}
                </p>
            )}
            <p class="small soft">
                {t(status.is_probing ? 'dashboard.probing' : 'dashboard.not_probing')}{' '}
                {status.reflectors
                    .map(({ address, rtt_ms }) => `${address} ${rtt_ms === null ? '–' : milliseconds(rtt_ms * 1000)}`)
                    .join(', ')}
            </p>
        </div>
    );
}

function Tins({ download, upload }: { download: Direction | null; upload: Direction | null }) {
    const directions = [
        { name: 'download' as const, tins: download?.tins ?? [] },
        { name: 'upload' as const, tins: upload?.tins ?? [] },
    ].filter(({ tins }) => tins.length > 0);
    if (directions.length === 0) return null;
    return (
        <details>
            <summary>
                <h3>{t('dashboard.tins')}</h3>
            </summary>
            <div class="stack">
                <p class="soft small">{t('dashboard.tins_help')}</p>
                {directions.map(({ name, tins }) => (
                    <Table
                        key={name}
                        label={`${t('dashboard.tins')}, ${t(`direction.${name}`)}`}
                        heads={[
                            t(`direction.${name}`),
                            t('test.rate'),
                            t('dashboard.share'),
                            t('dashboard.queue_delay'),
                            t('dashboard.backlog'),
                            t('dashboard.drops'),
                            t('dashboard.marks'),
                            t('dashboard.flows'),
                        ]}
                        rows={tins.map((tin) => ({
                            key: tin.name,
                            cells: [
                                tin.name,
                                tin.rate_bits_per_sec === null ? '–' : mbit(tin.rate_bits_per_sec),
                                mbit(tin.threshold_bits_per_sec),
                                milliseconds(tin.delay_peak_us),
                                bytes(tin.backlog_bytes),
                                number(tin.drops),
                                number(tin.marks),
                                number(tin.sparse_flows + tin.bulk_flows),
                            ],
                        }))}
                    />
                ))}
            </div>
        </details>
    );
}
