/** The frame around a page: navigation, session and language. */

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { api, type Session } from './api';
import { currentLanguage, LANGUAGES, remember, speak, t } from './i18n';
import { LogIn } from './login';

interface Props {
    session: Session | null;
    setSession: (session: Session) => void;
    /** The name of the present part of the page. */
    title: string;
    /** The parts of the page: the fragment of the URL of each, and its name. */
    places: { to: string; name: string; isHere: boolean }[];
    /** The command that sets the password. */
    setPassword: string;
    children: ComponentChildren;
}

export function Frame({ session, setSession, title, places, setPassword, children }: Props) {
    const [logsIn, setLogsIn] = useState(false);
    const main = useRef<HTMLElement>(null);
    const isFirst = useRef(true);

    useEffect(() => {
        document.title = `${title} – sqm`;
        // Screen readers announce the new part of the page.
        if (!isFirst.current) main.current?.focus();
        isFirst.current = false;
    }, [title]);

    return (
        <>
            <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
                {t('app.skip')}
            </a>
            <header class="bar">
                <div class="bar-inside">
                    <a class="brand" href={places[0]?.to ?? '#/'} aria-label={t('app.title')}>
                        <img src="./icon.svg" alt="" />
                        sqm
                    </a>
                    <nav aria-label={t('nav.label')}>
                        <ul>
                            {places.map(({ to, name, isHere }) => (
                                <li key={to}>
                                    <a href={to} aria-current={isHere ? 'page' : undefined}>
                                        {name}
                                    </a>
                                </li>
                            ))}
                        </ul>
                    </nav>
                    <div class="tools">
                        <Languages />
                        {session?.password_set && !session.logged_in && (
                            <button type="button" onClick={() => setLogsIn(true)}>
                                {t('session.log_in')}
                            </button>
                        )}
                        {session?.logged_in && (
                            <button type="button" onClick={async () => setSession(await api.logOut())}>
                                {t('session.log_out')}
                            </button>
                        )}
                    </div>
                </div>
            </header>
            <main id="main" ref={main} tabIndex={-1}>
                {children}
            </main>
            <footer>
                <span>sqm {session?.program}</span>
                <a href="./licences.txt">{t('app.licences')}</a>
            </footer>
            {logsIn && (
                <LogIn
                    command={setPassword}
                    done={(entered) => {
                        if (entered) setSession(entered);
                        setLogsIn(false);
                    }}
                />
            )}
        </>
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
