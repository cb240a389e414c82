/** The roll-outs of a fleet, running and past. */

import { date, t } from '../i18n';
import { Badge, type Tone } from '../ui/parts';
import type { Fleet, FleetRollOut } from './api';

const TONES: Record<FleetRollOut['state'], Tone> = {
    running: 'plain',
    halted: 'bad',
    done: 'good',
    reverted: 'warn',
    unreadable: 'bad',
};

export function RollOuts({ fleet }: { fleet: Fleet }) {
    return (
        <>
            <h1>{t('fleet.part.roll-outs')}</h1>
            {fleet.roll_outs.length === 0 && fleet.read_unix_s !== null && <p>{t('fleet.no_roll_outs')}</p>}
            {fleet.roll_outs.map((rollOut) => (
                <section key={rollOut.name} class="card" aria-label={rollOut.name}>
                    <Head rollOut={rollOut} />
                    <p>{rollOut.text}</p>
                    <p>
                        <a href={`#/roll-outs/${encodeURIComponent(rollOut.name)}`}>{t('fleet.history')}</a>
                    </p>
                </section>
            ))}
            <p class="soft small">{t('fleet.read_only')}</p>
        </>
    );
}

function Head({ rollOut }: { rollOut: FleetRollOut }) {
    return (
        <div class="head">
            <span class="row">
                <h2>{rollOut.name}</h2>
                <Badge tone={TONES[rollOut.state]}>{t(`fleet.roll_out.${rollOut.state}`)}</Badge>
            </span>
            {rollOut.created_unix_s !== null && (
                <span class="small soft numbers">
                    {t('fleet.roll_out_of', {
                        revision: String(rollOut.revision ?? '–'),
                        n: rollOut.routers,
                        when: date(rollOut.created_unix_s),
                    })}
                </span>
            )}
        </div>
    );
}
