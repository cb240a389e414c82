/** The frame of the page: navigation, session and messages that every part shows. */

import type { FunctionComponent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { api } from './api';
import { Confirm } from './confirm';
import { Dashboard } from './dashboard/dashboard';
import { currentLanguage, LANGUAGES, remember, speak, t, useLanguage } from './i18n';
import { LogIn } from './login';
import { PLACES, type Place, type Route, useRoute } from './route';
import { Settings } from './settings/settings';
import { StoreContext, useAnswer, useServer } from './store';
import { Failed } from './ui/attempt';
import { Notice } from './ui/parts';

export function App() {
    const store = useServer();
    const route = useRoute();
    const language = useLanguage();
    const [logsIn, setLogsIn] = useState(false);
    const main = useRef<HTMLElement>(null);
    const isFirst = useRef(true);

    useEffect(() => {
        document.title = `${t(`nav.${route.place}`)} – sqm`;
        // Screen readers announce the new part of the page.
        if (!isFirst.current) main.current?.focus();
        isFirst.current = false;
    }, [route.place, language]);

    const { session, status, silentSince } = store;
    const daemon = status?.daemon;
    return (
        <StoreContext.Provider value={store}>
            <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
                {t('app.skip')}
            </a>
            <header class="bar">
                <div class="bar-inside">
                    <a class="brand" href="#/dashboard" aria-label={t('app.title')}>
                        <img src="./icon.svg" alt="" />
                        sqm
                    </a>
                    <Navigation place={route.place} />
                    <div class="tools">
                        <Languages />
                        {session?.password_set && !session.logged_in && (
                            <button type="button" onClick={() => setLogsIn(true)}>
                                {t('session.log_in')}
                            </button>
                        )}
                        {session?.logged_in && (
                            <button type="button" onClick={async () => store.setSession(await api.logOut())}>
                                {t('session.log_out')}
                            </button>
                        )}
                    </div>
                </div>
            </header>
            <main id="main" ref={main} tabIndex={-1}>
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
            </main>
            <footer>
                <span>sqm {session?.program}</span>
                <a href="./licences.txt">{t('app.licences')}</a>
            </footer>
            {logsIn && (
                <LogIn
                    done={(entered) => {
                        if (entered) store.setSession(entered);
                        setLogsIn(false);
                    }}
                />
            )}
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
            return <Settings path={route.rest} />;
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

function Navigation({ place }: { place: Place }) {
    return (
        <nav aria-label={t('nav.label')}>
            <ul>
                {PLACES.map((to) => (
                    <li key={to}>
                        <a href={`#/${to}`} aria-current={to === place ? 'page' : undefined}>
                            {t(`nav.${to}`)}
                        </a>
                    </li>
                ))}
            </ul>
        </nav>
    );
}

function Languages() {
    return (
        <select
            class="slim"
            aria-label={t('app.language')}
            value={currentLanguage()}
            onChange={(event) => {
                const wanted = event.currentTarget.value;
                remember(wanted);
                void speak(wanted);
            }}
        >
            {Object.entries(LANGUAGES).map(([tag, { name }]) => (
                <option key={tag} value={tag} lang={tag}>
                    {name}
                </option>
            ))}
        </select>
    );
}
