/** The page of a router, with the messages that every part of it shows. */

import type { FunctionComponent } from 'preact';
import { Confirm } from './confirm';
import { Dashboard } from './dashboard/dashboard';
import { Frame } from './frame';
import { t, useLanguage } from './i18n';
import { PLACES, type Route, useRoute } from './route';
import { StoreContext, useAnswer, useServer } from './store';
import { Failed } from './ui/attempt';
import { Notice } from './ui/parts';

export function App() {
    const store = useServer();
    const route = useRoute();
    useLanguage();

    const { session, status, silentSince } = store;
    const daemon = status?.daemon;
    const places = PLACES.map((to) => ({ to: `#/${to}`, name: t(`nav.${to}`), isHere: to === route.place }));
    return (
        <StoreContext.Provider value={store}>
            <Frame
                session={session}
                setSession={store.setSession}
                title={t(`nav.${route.place}`)}
                places={places}
                setPassword="sqm web --set-password"
            >
                {silentSince !== null && store.secondsLeft === null && (
                    <Notice tone="warn" alert>
                        <p>{t('app.no_answer')}</p>
                    </Notice>
                )}
                {daemon && !daemon.running && (
                    <Notice tone="bad" alert>
                        <p>{t('app.no_daemon', { why: daemon.error ?? '' })}</p>
                    </Notice>
                )}
                {session?.role === 'reader' && (
                    <Notice>
                        <p>{t('app.read_only')}</p>
                    </Notice>
                )}
                <Confirm />
                {session ? <Where key={`${route.place} ${session.role}`} route={route} /> : <p>{t('app.loading')}</p>}
            </Frame>
        </StoreContext.Provider>
    );
}

function Where({ route }: { route: Route }) {
    switch (route.place) {
        case 'dashboard':
            return <Dashboard />;
        case 'setup':
            return <Later key="setup" path={[]} load={async () => (await import('./setup/wizard')).Wizard} />;
        case 'settings':
            return <Later key="settings" path={route.rest} load={async () => (await import('./settings/settings')).Settings} />;
        case 'test':
            return <Later key="test" path={route.rest} load={async () => (await import('./measure/test-page')).TestPage} />;
        case 'tune':
            return <Later key="tune" path={[]} load={async () => (await import('./tune/tune-page')).TunePage} />;
        case 'diagnose':
            return <Later key="diagnose" path={[]} load={async () => (await import('./diagnose/diagnose')).Diagnose} />;
    }
}

/** A part of the page that is not in the first load. */
function Later({ path, load }: { path: string[]; load: () => Promise<FunctionComponent<{ path: string[] }>> }) {
    const { answer, error } = useAnswer(async () => ({ Part: await load() }));
    if (error) return <Failed error={error} />;
    return answer ? <answer.Part path={path} /> : <p>{t('app.loading')}</p>;
}
