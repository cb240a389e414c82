/** Asks the server's validator while somebody types. */

import { useEffect, useRef, useState } from 'preact/hooks';
import { api, type Change, type Check } from '../api';

/** Long enough not to ask for every letter, short enough to seem immediate. */
const PAUSE_MS = 250;

/** The verdict on these changes; null until there is one, and for readers (`changes` is null), whom the server does not answer.
    `fresh` says whether it is of exactly these. */
export function useCheck(changes: Change[] | null): { check: Check | null; fresh: boolean; error: unknown } {
    const wanted = JSON.stringify(changes);
    const [state, setState] = useState<{ check: Check | null; of: string; error: unknown }>({
        check: null,
        of: '',
        error: null,
    });
    const latest = useRef(wanted);
    latest.current = wanted;
    useEffect(() => {
        if (wanted === 'null') return;
        const timer = setTimeout(
            async () => {
                try {
                    const check = await api.check(JSON.parse(wanted) as Change[]);
                    if (latest.current === wanted) setState({ check, of: wanted, error: null });
                } catch (error) {
                    if (latest.current === wanted) setState((before) => ({ ...before, error }));
                }
            },
            wanted === '[]' ? 0 : PAUSE_MS,
        );
        return () => clearTimeout(timer);
    }, [wanted]);
    return { check: state.check, fresh: state.of === wanted, error: state.error };
}
