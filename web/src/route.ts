/** The current part of the page: the fragment of the URL, such as `settings/0/queue`. */

import { useEffect, useState } from 'preact/hooks';

export const PLACES = ['dashboard', 'settings', 'test', 'tune', 'diagnose'] as const;
export type Place = (typeof PLACES)[number];

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
    const place = PLACES.find((known) => known === first) ?? 'dashboard';
    return { place, rest: rest.map(decoded) };
}

function decoded(word: string): string {
    try {
        return decodeURIComponent(word);
    } catch {
        return word;
    }
}
