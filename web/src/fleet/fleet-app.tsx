/** The page of a fleet. It changes nothing. */

import { Frame } from '../frame';
import { t, useLanguage } from '../i18n';
import { useHash } from '../route';
import { usePolled } from '../store';
import { Notice } from '../ui/parts';
import { ago } from './ago';
import { fleetApi } from './api';
import { History } from './history';
import { RollOuts } from './roll-outs';
import { Routers } from './routers';

const PLACES = ['routers', 'roll-outs'] as const;

/** Where the page is: a list, or the history of one router or roll-out. */
function useFleetRoute() {
    const [first, name] = useHash();
    return { place: PLACES.find((place) => place === first) ?? PLACES[0], name };
}

export function FleetApp() {
    const { session, setSession, answer: fleet, error, silentSince } = usePolled(fleetApi.fleet, (s) => s.role === 'admin');
    const { place, name } = useFleetRoute();
    useLanguage();
    const title = name ?? t(`fleet.part.${place}`);
    const places = PLACES.map((to) => ({ to: `#/${to}`, name: t(`fleet.part.${to}`), isHere: to === place }));
    const isReader = session?.role === 'reader';
    return (
        <Frame session={session} setSession={setSession} title={title} places={places} setPassword="sqm fleet web --set-password">
            {silentSince !== null && (
                <Notice tone="warn" alert>
                    <p>{error?.message || t('fleet.no_answer')}</p>
                </Notice>
            )}
            {fleet?.error && (
                <Notice tone="bad" alert>
                    <p>{t('fleet.no_hub', { server: fleet.server, why: fleet.error })}</p>
                    {fleet.read_unix_s !== null && (
                        <p class="numbers">{t('fleet.old', { ago: ago(fleet.read_unix_s, fleet.now_unix_s) })}</p>
                    )}
                </Notice>
            )}
            {isReader && (
                <Notice>
                    <p>{t('fleet.log_in')}</p>
                </Notice>
            )}
            {!isReader && !fleet && silentSince === null && <p>{t('app.loading')}</p>}
            {!isReader && fleet && name && <History key={`${place} ${name}`} place={place} name={name} fleet={fleet} />}
            {!isReader && fleet && !name && place === 'routers' && <Routers fleet={fleet} />}
            {!isReader && fleet && !name && place === 'roll-outs' && <RollOuts fleet={fleet} />}
        </Frame>
    );
}
