/** The routers of a fleet: how many have what at each place, and one row for each. */

import { useState } from 'preact/hooks';
import { number, t } from '../i18n';
import { Badge, type Tone } from '../ui/parts';
import { Table } from '../ui/table';
import { milliseconds } from '../units';
import { ago } from './ago';
import type { Fleet, FleetPlace, FleetRouter, FleetState } from './api';

export const TONES: Record<FleetState, Tone> = {
    kept: 'good',
    unjudged: 'plain',
    observed: 'plain',
    waiting: 'plain',
    behind: 'warn',
    silent: 'warn',
    'never seen': 'warn',
    'no document': 'plain',
    'rolled back': 'bad',
    refused: 'bad',
    invalid: 'bad',
};

/** Who needs a person comes first. */
const URGENCY: Record<Tone, number> = { bad: 0, warn: 1, plain: 2, good: 3 };

/** The rows that are drawn; a choice, because thousands would make a browser slow. */
const MOST = 200;

interface Filter {
    group: string;
    site: string;
    state: string;
}

export const stateName = (state: FleetState): string => t(`fleet.state.${state.replace(' ', '_') as 'kept'}`);

export function Routers({ fleet }: { fleet: Fleet }) {
    const [filter, setFilter] = useState<Filter>({ group: '', site: '', state: '' });
    const found = fleet.routers.filter(
        (router) =>
            (!filter.group || router.group === filter.group) &&
            (!filter.site || router.site === filter.site) &&
            (!filter.state || router.state === filter.state),
    );
    const rows = found.sort((a, b) => URGENCY[TONES[a.state]] - URGENCY[TONES[b.state]]).slice(0, MOST);
    const states = Object.keys(TONES).filter((state) => fleet.routers.some((router) => router.state === state));
    return (
        <>
            <h1>{t('fleet.part.routers')}</h1>
            {fleet.routers.length === 0 && fleet.read_unix_s !== null && <p>{t('fleet.none')}</p>}
            {fleet.routers.length > 0 && <Places places={fleet.places} />}
            {fleet.routers.length > 0 && (
                <section class="card" aria-label={t('fleet.part.routers')}>
                    <div class="row">
                        <Choice name="group" values={values(fleet, 'group')} filter={filter} choose={setFilter} />
                        <Choice name="site" values={values(fleet, 'site')} filter={filter} choose={setFilter} />
                        <Choice name="state" values={states} filter={filter} choose={setFilter} />
                    </div>
                    <p class="soft small">{t('fleet.grade_help')}</p>
                    <ul class="fleet">
                        {rows.map((router) => (
                            <Row key={router.router} router={router} now={fleet.now_unix_s} />
                        ))}
                    </ul>
                    {found.length > MOST && <p>{t('fleet.more', { n: found.length - MOST })}</p>}
                    {found.length === 0 && <p class="soft">{t('fleet.no_match')}</p>}
                </section>
            )}
            <p class="soft small">{t('fleet.read_only')}</p>
        </>
    );
}

/** The groups or sites that there are. */
function values(fleet: Fleet, name: 'group' | 'site'): string[] {
    return [...new Set(fleet.places.flatMap((place) => place[name] ?? []))];
}

interface ChoiceProps {
    name: keyof Filter;
    values: string[];
    filter: Filter;
    choose: (filter: Filter) => void;
}

function Choice({ name, values, filter, choose }: ChoiceProps) {
    if (values.length === 0) return null;
    return (
        <select
            class="slim"
            aria-label={t(`fleet.filter.${name}`)}
            value={filter[name]}
            onChange={(event) => choose({ ...filter, [name]: event.currentTarget.value })}
        >
            <option value="">{t(`fleet.all.${name}`)}</option>
            {values.map((value) => (
                <option key={value} value={value}>
                    {name === 'state' ? stateName(value as FleetState) : value}
                </option>
            ))}
        </select>
    );
}

function Places({ places }: { places: FleetPlace[] }) {
    const revision = ({ revision, routers }: FleetPlace['in_force'][number]) =>
        t('fleet.have', { n: routers, revision: revision ? String(revision) : t('fleet.no_revision') });
    return (
        <section class="card" aria-label={t('fleet.places')}>
            <h2>{t('fleet.places')}</h2>
            <Table
                label={t('fleet.places')}
                heads={[t('fleet.place'), t('fleet.part.routers'), t('fleet.in_force'), t('fleet.states')]}
                rows={places.map((place) => ({
                    key: `${place.group} ${place.site}`,
                    cells: [
                        [place.group, place.site].filter(Boolean).join(' / ') || t('fleet.no_place'),
                        number(place.routers),
                        place.in_force.map(revision).join(', '),
                        <span class="badges">
                            {place.states.map(({ state, routers }) => (
                                <Badge key={state} tone={TONES[state]}>
                                    {`${number(routers)} ${stateName(state)}`}
                                </Badge>
                            ))}
                        </span>,
                    ],
                }))}
            />
        </section>
    );
}

function Row({ router, now }: { router: FleetRouter; now: number }) {
    const place = [router.group, router.site].filter(Boolean).join(' / ');
    return (
        <li>
            <div class="head">
                <span class="row">
                    <a href={`#/routers/${encodeURIComponent(router.router)}`}>
                        <strong>{router.router}</strong>
                    </a>
                    <Badge tone={TONES[router.state]}>{stateName(router.state)}</Badge>
                </span>
                <span class="small soft numbers">
                    {[place, router.last_seen_unix_s !== null && t('fleet.seen', { ago: ago(router.last_seen_unix_s, now) })]
                        .filter(Boolean)
                        .join(' · ')}
                </span>
            </div>
            <p class="small numbers">
                <Facts router={router} />
            </p>
            {router.reason && <p class="small">{router.reason}</p>}
        </li>
    );
}

const revision = (value: number | null): string => (value ? String(value) : '–');

/** Revisions, and grade and 95th percentile before and after the last change. */
export function Facts({ router }: { router: FleetRouter }) {
    const { before_p95_ms: before, after_p95_ms: after } = router;
    const side = (grade: string | null, p95: number | null) =>
        grade === null || p95 === null ? '–' : `${grade} (${milliseconds(p95 * 1000)})`;
    const facts = [t('fleet.revisions', { wanted: revision(router.wanted), in_force: revision(router.in_force) })];
    if (before !== null || after !== null) {
        facts.push(t('fleet.felt', { before: side(router.before_grade, before), after: side(router.after_grade, after) }));
    }
    return <>{facts.join(' · ')}</>;
}
