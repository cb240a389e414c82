/** The figures of each phase of a test that loads one direction after the other. */

import type { Phase } from '../api';
import { number, t } from '../i18n';
import { Table } from '../ui/table';
import { significant } from '../units';

type Name = 'idle' | 'download' | 'upload' | 'both';

export function PhasesTable({ phases }: { phases: Phase[] }) {
    const shown = upToTheLastLoad(phases);
    // A test with a single load has no figures beyond those of the whole test.
    if (shown.filter(({ loaded }) => loaded.length > 0).length < 2) return null;
    return (
        <>
            <Table
                label={t('phases.title')}
                heads={[t('phases.phase'), ...[t('direction.download'), t('direction.upload')].map(inMbit), t('phases.rtt'), t('phases.p95'), t('phases.lost')]}
                rows={shown.map((phase, n) => ({
                    key: String(n),
                    cells: [
                        t(`phases.${nameOf(phase)}`),
                        figure(phase.download_mbit),
                        figure(phase.upload_mbit),
                        figure(phase.round_trip.median_ms),
                        figure(phase.round_trip.p95_ms),
                        t('phases.lost_of', { lost: number(phase.round_trip.lost), sent: number(phase.sent) }),
                    ],
                }))}
            />
            <p class="small soft">{t('phases.help')}</p>
        </>
    );
}

const figure = (value: number | null) => (value === null ? '–' : significant(value));

const inMbit = (name: string) => `${name}, Mbit/s`;

/** Without the idle phase after the load, which shows the queue that drains. */
function upToTheLastLoad(phases: Phase[]): Phase[] {
    const last = phases.map(({ loaded }) => loaded.length > 0).lastIndexOf(true);
    return phases.slice(0, last + 1);
}

function nameOf({ loaded }: Phase): Name {
    if (loaded.length === 0) return 'idle';
    if (loaded.length > 1) return 'both';
    return loaded[0] === 'down' ? 'download' : 'upload';
}
