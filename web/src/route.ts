/** The current part of the page: the fragment of the URL, such as `settings/0/queue`. */

import { useEffect, useState } from 'preact/hooks';

/** The places in the navigation. */
export const PLACES = ['dashboard', 'settings', 'test', 'tune', 'diagnose'] as const;
const ALL = [...PLACES, 'setup'] as const;
export type Place = (typeof ALL)[number];

export interface Route {
    place: Place;
    /** The segments after the first. */
    rest: string[];
}

export function useRoute(): Route {
    const [first, ...rest] = useHash();
    return { place: ALL.find((known) => known === first) ?? 'dashboard', rest };
}

/** The segments of the fragment. */
export function useHash(): string[] {
    const [hash, setHash] = useState(location.hash);
    useEffect(() => {
        const changed = () => setHash(location.hash);
        addEventListener('hashchange', changed);
        // It may have changed between the first drawing of the page and now.
        changed();
        return () => removeEventListener('hashchange', changed);
    }, []);
    return hash.replace(/^#\/?/, '').split('/').map(decoded);
}

export function go(...path: (string | number)[]): void {
    location.hash = `#/${path.join('/')}`;
}

function decoded(word: string): string {
    try {
        return decodeURIComponent(word);
    } catch {
        return word;
    }
}
