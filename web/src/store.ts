/** State that all parts of the page share: the session and the last status of the server. */

import { createContext } from 'preact';
import { useCallback, useContext, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api, Refusal, type Session, type Status } from './api';

export interface Store {
    session: Session | null;
    setSession: (session: Session) => void;
    /** The last status that was received; it may be old. */
    status: Status | null;
    /** When the server stopped responding, by this browser's clock; null while it responds. */
    silentSince: number | null;
    /** Seconds until the unconfirmed change is rolled back. Counts down even while the server does not respond. */
    secondsLeft: number | null;
    refresh: () => Promise<void>;
}

export const StoreContext = createContext<Store | null>(null);

export function useStore(): Store {
    const store = useContext(StoreContext);
    if (!store) throw new Error('a component is outside of the page\'s StoreContext');
    return store;
}

export const useIsAdmin = (): boolean => useStore().session?.role === 'admin';

/** The interval of status requests. Our choice: short enough to show the countdown in a second browser. */
const EVERY_MS = 3000;

interface Polled<T> {
    session: Session | null;
    setSession: (session: Session) => void;
    answer: T | null;
    /** When the server stopped responding, by this browser's clock; null while it responds. */
    silentSince: number | null;
    /** Why, if it said so. */
    error: Refusal | null;
    refresh: () => Promise<void>;
}

/** The session, and the answer to a question that is asked again and again while the page is visible, for those who may ask it. */
export function usePolled<T>(question: () => Promise<T>, may: (session: Session) => boolean = () => true): Polled<T> {
    const [session, setSession] = useState<Session | null>(null);
    const [answer, setAnswer] = useState<T | null>(null);
    const [silentSince, setSilentSince] = useState<number | null>(null);
    const [error, setError] = useState<Refusal | null>(null);
    const known = useRef<Session | null>(null);
    known.current = session;
    const asked = useRef({ question, may });
    asked.current = { question, may };

    const refresh = useCallback(async () => {
        try {
            if (!known.current) {
                known.current = await api.session();
                setSession(known.current);
            }
            if (asked.current.may(known.current)) setAnswer(await asked.current.question());
            setSilentSince(null);
            setError(null);
        } catch (problem) {
            setSilentSince((since) => since ?? Date.now());
            setError(problem instanceof Refusal && problem.status > 0 ? problem : null);
        }
    }, []);

    useEffect(() => {
        let timer = 0;
        let over = false;
        const next = async () => {
            if (!document.hidden) await refresh();
            if (!over) timer = setTimeout(next, EVERY_MS);
        };
        void next();
        const shown = () => void refresh();
        document.addEventListener('visibilitychange', shown);
        return () => {
            over = true;
            clearTimeout(timer);
            document.removeEventListener('visibilitychange', shown);
        };
    }, [refresh]);

    // A user who has logged in does not wait for the next turn.
    const role = session?.role;
    useEffect(() => void (role && refresh()), [role, refresh]);
    return { session, setSession, answer, silentSince, error, refresh };
}

export function useServer(): Store {
    const { session, setSession, answer: status, silentSince, refresh } = usePolled(api.status);
    // From the moment of the answer on, this browser counts by itself.
    const deadline = useMemo(
        () => status && status.unconfirmed && Date.now() + status.unconfirmed.seconds_left * 1000,
        [status],
    );
    const secondsLeft = useCountdown(deadline);
    return { session, setSession, status, silentSince, secondsLeft, refresh };
}

function useCountdown(deadline: number | null): number | null {
    const [now, setNow] = useState(Date.now);
    useEffect(() => {
        if (deadline === null) return;
        setNow(Date.now());
        const timer = setInterval(() => setNow(Date.now()), 500);
        return () => clearInterval(timer);
    }, [deadline]);
    return deadline === null ? null : Math.max(0, Math.ceil((deadline - now) / 1000));
}

/** The answer to a request that is sent once, and again on demand. */
export function useAnswer<T>(question: () => Promise<T>): { answer: T | null; error: unknown; again: () => Promise<void> } {
    const [answer, setAnswer] = useState<T | null>(null);
    const [error, setError] = useState<unknown>(null);
    const asked = useRef(question);
    asked.current = question;
    const again = useCallback(async () => {
        try {
            setAnswer(await asked.current());
            setError(null);
        } catch (problem) {
            setError(problem);
        }
    }, []);
    useEffect(() => void again(), [again]);
    return { answer, error, again };
}
