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
    const [route, setRoute] = useState(read);
    useEffect(() => {
        const changed = () => setRoute(read());
        addEventListener('hashchange', changed);
        return () => removeEventListener('hashchange', changed);
    }, []);
    return route;
}

export function go(...path: (string | number)[]): void {
    location.hash = `#/${path.join('/')}`;
}

function read(): Route {
    const [first, ...rest] = location.hash.replace(/^#\/?/, '').split('/');
    const place = ALL.find((known) => known === first) ?? 'dashboard';
    return { place, rest: rest.map(decoded) };
}

function decoded(word: string): string {
    try {
        return decodeURIComponent(word);
    } catch {
        return word;
    }
}
