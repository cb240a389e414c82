/** Validates the changes on the server while the user types. */

import { useEffect, useRef, useState } from 'preact/hooks';
import { api, type Change, type Check } from '../api';

/** Wait after the last keystroke. Our choice: not a request for each letter, but still immediate to the user. */
const PAUSE_MS = 250;

/** The server's findings on these changes; null before the first answer, and for users who may not change anything (`changes` is
    null). `fresh` is true if the findings belong to exactly these changes of the configuration with this revision. */
export function useCheck(revision: string, changes: Change[] | null): { check: Check | null; fresh: boolean; error: unknown } {
    const wanted = JSON.stringify({ revision, changes });
    const [state, setState] = useState<{ check: Check | null; checked: string; error: unknown }>({
        check: null,
        checked: '',
        error: null,
    });
    const latest = useRef(wanted);
    latest.current = wanted;
    useEffect(() => {
        if (changes === null) return;
        const timer = setTimeout(
            async () => {
                try {
                    const check = await api.check(changes);
                    if (latest.current === wanted) setState({ check, checked: wanted, error: null });
                } catch (error) {
                    if (latest.current === wanted) setState((before) => ({ ...before, error }));
                }
            },
            changes.length === 0 ? 0 : PAUSE_MS,
        );
        return () => clearTimeout(timer);
    }, [wanted]);
    return { check: state.check, fresh: state.checked === wanted, error: state.error };
}
