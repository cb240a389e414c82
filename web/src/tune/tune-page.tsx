/** The search for the best rates: starts it, shows its steps and its result. */

import { useEffect, useState } from 'preact/hooks';
import { address, api, follow, type Tune, type TuneStep } from '../api';
import { clock, said, t } from '../i18n';
import { CLOUDFLARE, NETWORK_QUALITY } from '../measure/public-servers';
import { serverOf } from '../measure/server';
import { TestError } from '../measure/test-error';
import { Preset, SecretField, ServerField, StartForm, UrlField, type Way, WayField } from '../measure/start-form';
import { Picture } from '../ui/picture';
import { useAnswer, useIsAdmin, useStore } from '../store';
import { Failed, useAttempt } from '../ui/attempt';
import { ChoiceField, TextField, TickField } from '../ui/labelled';
import { type Figure, Figures, Notice } from '../ui/parts';
import { Table } from '../ui/table';
import { mbit, significant } from '../units';

export function TunePage() {
    const { answer: tune, error, again } = useAnswer(api.tune);
    const isAdmin = useIsAdmin();
    const { status } = useStore();
    const isTuning = status?.tuning ?? false;
    // Another browser may have started a search.
    useEffect(() => void again(), [isTuning]);
    return (
        <>
            <h1>{t('tune.title')}</h1>
            <Failed error={error} />
            {tune?.state === 'running' && <Running first={tune} ended={again} />}
            {tune && tune.state !== 'running' && tune.state !== 'none' && <Ended tune={tune} />}
            {tune && isAdmin && status && (
                <Start isHidden={tune.state === 'running'} interfaces={status.interfaces.map((one) => one.interface)} last={tune} started={again} />
            )}
        </>
    );
}

interface StartProps {
    isHidden: boolean;
    interfaces: string[];
    last: Tune;
    started: () => Promise<void>;
}

function Start({ isHidden, interfaces, last, started }: StartProps) {
    const [way, setWay] = useState<Way>(last.host?.includes('://') ? 'url' : 'server');
    const [uploadUrl, setUploadUrl] = useState('');
    const [isTrusting, setIsTrusting] = useState(false);
    const [name, setName] = useState(last.interface ?? interfaces[0] ?? '');
    const [target, setTarget] = useState(String(last.target_ms ?? 5));
    const [host, setHost] = useState(last.host ?? '');
    const [secret, setSecret] = useState('');
    if (interfaces.length === 0) {
        return (
            <section class="card">
                <p>{t('tune.nothing')}</p>
                <div>
                    <a class="button" href="#/settings">
                        {t('nav.settings')}
                    </a>
                </div>
            </section>
        );
    }
    const start = async () => {
        const trust = isTrusting ? { insecure: true } : {};
        const server = {
            server: { ...serverOf(host), ...(secret ? { secret } : {}) },
            url: { host: host.trim(), ...(uploadUrl.trim() ? { upload_url: uploadUrl.trim() } : {}), ...trust },
            rpm: { ...serverOf(host), rpm: true, ...trust },
        }[way];
        await api.startTune({ ...server, interface: name, target_ms: Number(target) });
        await started();
    };
    return (
        <StartForm
            about={t('tune.help')}
            isHidden={isHidden}
            start={start}
            more={
                way === 'server' ? (
                    <SecretField value={secret} set={setSecret} />
                ) : (
                    <TickField
                        id="tune-insecure"
                        label={t('test.insecure')}
                        help={t('test.insecure_help')}
                        isOn={isTrusting}
                        turn={setIsTrusting}
                    />
                )
            }
        >
            <WayField id="tune-way" way={way} set={setWay} />
            {way === 'url' ? (
                <>
                    <UrlField id="tune-url" label={t('test.url')} help={t('test.url_help')} required value={host} set={setHost} />
                    <UrlField
                        id="tune-upload-url"
                        label={t('test.upload_url')}
                        help={t('tune.upload_url_help')}
                        required={false}
                        value={uploadUrl}
                        set={setUploadUrl}
                    />
                    <Preset
                        text={t('test.preset_url')}
                        help={CLOUDFLARE.download}
                        use={() => {
                            setHost(CLOUDFLARE.download);
                            setUploadUrl(CLOUDFLARE.upload);
                        }}
                    />
                </>
            ) : (
                <ServerField help={way === 'rpm' ? t('test.server_help_rpm') : undefined} value={host} set={setHost} />
            )}
            {way === 'rpm' && (
                <Preset text={t('test.preset_rpm')} help={NETWORK_QUALITY} use={() => setHost(NETWORK_QUALITY)} />
            )}
            {interfaces.length > 1 && (
                <ChoiceField
                    id="tune-line"
                    label={t('tune.line')}
                    value={name}
                    choices={interfaces.map((one) => ({ value: one, text: one }))}
                    choose={setName}
                />
            )}
            <TextField
                id="tune-target"
                label={t('tune.target')}
                help={t('tune.target_help')}
                type="number"
                min={0.5}
                max={1000}
                step="any"
                required
                value={target}
                set={setTarget}
            />
        </StartForm>
    );
}

function Running({ first, ended }: { first: Tune; ended: () => Promise<void> }) {
    const isAdmin = useIsAdmin();
    const [steps, setSteps] = useState<TuneStep[]>(first.steps);
    const { error, attempt } = useAttempt();
    useEffect(() => {
        const finish = () => {
            end();
            void ended();
        };
        const end = follow(
            address.tuneLive,
            {
                // After a reconnect the server sends all steps again, from the first.
                step: (step) =>
                    setSteps((before) =>
                        before.some(({ unix_ms, text }) => unix_ms === step.unix_ms && text === step.text)
                            ? before
                            : [...before, step],
                    ),
                end: finish,
            },
            (isConnected) => {
                if (isConnected) return;
                void api.tune().then(({ state }) => {
                    if (state !== 'running') finish();
                });
            },
        );
        return end;
    }, []);
    return (
        <section class="card">
            <div class="head">
                <h2>{t('tune.running')}</h2>
                {isAdmin && (
                    <button type="button" onClick={() => void attempt(api.stopTune)}>
                        {t('do.stop')}
                    </button>
                )}
            </div>
            <progress aria-label={t('tune.running')} />
            <Failed error={error} />
            <Steps steps={steps} />
        </section>
    );
}

function Steps({ steps }: { steps: TuneStep[] }) {
    return (
        <div role="log" aria-label={t('tune.steps')}>
            <ol class="log">
                {steps.map(({ unix_ms, text }) => (
                    <li key={`${unix_ms} ${text}`}>
                        <time>{clock(unix_ms / 1000)}</time>
                        <span>{said(text)}</span>
                    </li>
                ))}
            </ol>
        </div>
    );
}

function Ended({ tune }: { tune: Tune }) {
    const isAdmin = useIsAdmin();
    const { refresh } = useStore();
    const [outcome, setOutcome] = useState<'open' | 'accepted' | 'rejected'>('open');
    const { error, attempt } = useAttempt();
    const { result } = tune;
    const accept = () =>
        attempt(async () => {
            const { revision } = await api.config();
            await api.acceptTune(revision);
            setOutcome('accepted');
            await refresh();
        });
    return (
        <section class="card">
            <h2>{t('test.result')}</h2>
            {tune.state === 'stopped' && <Notice tone="warn">{t('tune.stopped')}</Notice>}
            <TestError error={tune.error} />
            {result && <Figures figures={figures(result)} />}
            {result && <BeforeAndAfter result={result} />}
            {result?.warning && (
                <Notice tone="warn">
                    <p>{said(result.warning)}</p>
                </Notice>
            )}
            {result?.overhead?.advice.map((advice) => (
                <Notice key={advice}>
                    <p>{advice}</p>
                </Notice>
            ))}
            <Failed error={error} />
            {outcome === 'accepted' && (
                <Notice tone="good">
                    <p>{t('tune.accepted')}</p>
                    <div>
                        <a class="button" href="#/test">
                            {t('next.test')}
                        </a>
                    </div>
                </Notice>
            )}
            {isAdmin && (tune.state === 'failed' || result?.warning) && <p>{t('next.tune_again')}</p>}
            {tune.state === 'done' && result && isAdmin && outcome === 'open' && (
                <div class="row">
                    <button type="button" class={result.warning ? undefined : 'main'} onClick={() => void accept()}>
                        {t(result.warning ? 'tune.accept_anyway' : 'tune.accept')}
                    </button>
                    <button type="button" onClick={() => setOutcome('rejected')}>
                        {t('tune.reject')}
                    </button>
                </div>
            )}
            {tune.plots.map((plot) => (
                <Picture
                    key={`${tune.started_unix_ms} ${plot}`}
                    src={(sheet) => address.tune(plot, sheet)}
                    title={t(`tune.plot.${plot}`)}
                />
            ))}
            <details open={!result}>
                <summary>{t('tune.steps')}</summary>
                <Steps steps={tune.steps} />
            </details>
        </section>
    );
}

type Result = NonNullable<Tune['result']>;

/** The latency that load adds with and without the shaper. */
function BeforeAndAfter({ result: { found, verified } }: { result: Result }) {
    if (!found?.length || !verified) return null;
    const ms = (value: number | undefined) => (value === undefined ? '–' : `${significant(value)} ms`);
    const rate = (value: number | undefined) => (value === undefined ? '–' : mbit(value * 1e6));
    return (
        <Table
            label={t('tune.comparison')}
            heads={[t('tune.comparison'), t('direction.download'), t('direction.upload'), t('tune.latency')]}
            rows={[
                ...found.map(({ direction, unshaped_mbit, bloat_ms }) => ({
                    key: direction,
                    cells: [
                        t(`tune.before.${direction}`),
                        direction === 'down' ? rate(unshaped_mbit) : '–',
                        direction === 'up' ? rate(unshaped_mbit) : '–',
                        `+${ms(bloat_ms)}`,
                    ],
                })),
                {
                    key: 'after',
                    cells: [
                        t('tune.after'),
                        rate(verified.download_mbit),
                        rate(verified.upload_mbit),
                        `+${ms(verified.added_p95_ms)}`,
                    ],
                },
            ]}
        />
    );
}

function figures({ download_kbit, upload_kbit, verified }: Result): Figure[] {
    const rate = (kilobits: number) => (kilobits === 0 ? t('dashboard.unshaped') : mbit(kilobits * 1000));
    const added = verified?.added_p95_ms;
    return [
        { name: t('direction.download'), value: rate(download_kbit), about: t('tune.rate_found') },
        { name: t('direction.upload'), value: rate(upload_kbit), about: t('tune.rate_found') },
        ...(added === undefined ? [] : [{ name: t('tune.latency'), value: `${significant(added)} ms` }]),
    ];
}
