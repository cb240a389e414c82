/** What was written for a router and by it, or of a roll-out: who, when, which revision. */

import { useEffect } from 'preact/hooks';
import { date, t } from '../i18n';
import { useAnswer } from '../store';
import { Failed } from '../ui/attempt';
import { Badge, Notice } from '../ui/parts';
import { ago } from './ago';
import { type Fleet, type FleetEntry, fleetApi } from './api';
import { Facts, stateName, TONES } from './routers';

export function History({ place, name, fleet }: { place: 'routers' | 'roll-outs'; name: string; fleet: Fleet }) {
    const isRouter = place === 'routers';
    const { answer, error, again } = useAnswer(() => (isRouter ? fleetApi.router(name) : fleetApi.rollOut(name)));
    const router = isRouter ? fleet.routers.find((known) => known.router === name) : undefined;
    const rollOut = isRouter ? undefined : fleet.roll_outs.find((known) => known.name === name);
    // The row in the list has changed, so there is a newer entry.
    const now = JSON.stringify([router?.state, router?.reason, router?.wanted, rollOut?.text]);
    useEffect(() => void again(), [now, again]);
    return (
        <>
            <div class="head">
                <h1>{name}</h1>
                <a href={`#/${place}`}>{t(`fleet.part.${place}`)}</a>
            </div>
            {router && (
                <section class="card" aria-label={name}>
                    <div class="row">
                        <Badge tone={TONES[router.state]}>{stateName(router.state)}</Badge>
                        {router.last_seen_unix_s !== null && (
                            <span class="small soft numbers">
                                {t('fleet.seen', { ago: ago(router.last_seen_unix_s, fleet.now_unix_s) })}
                            </span>
                        )}
                    </div>
                    {router.reason && <p>{router.reason}</p>}
                    <p class="small numbers">
                        <Facts router={router} />
                    </p>
                    <p class="small soft">
                        {[router.hardware, router.sqm_version && `sqm ${router.sqm_version}`].filter(Boolean).join(' · ')}
                    </p>
                </section>
            )}
            {rollOut && (
                <section class="card" aria-label={name}>
                    <p>{rollOut.text}</p>
                </section>
            )}
            <section class="card" aria-label={t('fleet.history')}>
                <h2>{t('fleet.history')}</h2>
                <p class="soft small">{t('fleet.history_help')}</p>
                <Failed error={error} />
                {!answer && error === null && <p>{t('app.loading')}</p>}
                {answer?.entries.length === 0 && <Notice>{t('fleet.history_none')}</Notice>}
                {answer && answer.entries.length > 0 && (
                    <ol class="log" reversed tabIndex={0} aria-label={t('fleet.history')}>
                        {answer.entries.map((entry, n) => (
                            <li key={`${entry.at} ${answer.entries.length - n}`}>
                                <time>{date(Date.parse(entry.at) / 1000)}</time>
                                <span>
                                    {writer(entry)}: {entry.text}
                                </span>
                            </li>
                        ))}
                    </ol>
                )}
            </section>
        </>
    );
}

/** Who has written it; of a signed document also with which key. */
function writer({ by, key, kind }: FleetEntry): string {
    if (by === 'router') return t('fleet.by_router');
    if (kind === 'roll_out') return t('fleet.by_operator');
    return key ? t('fleet.by_key', { key: `${key.slice(0, 4)}…${key.slice(-4)}` }) : t('fleet.by_unknown');
}
