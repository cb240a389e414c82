/** The texts of the page. Each language is a file in `i18n/`; English is part of the first load, the others are loaded on demand. */

import { useEffect, useState } from 'preact/hooks';
import type { en as fleet } from './fleet/words/en';
import { en } from './i18n/en';

export type Words = Record<keyof typeof en, string>;
/** The texts of the router's page, and those that the page of a fleet adds. */
export type Key = keyof Words | keyof typeof fleet;

interface Language {
    words: Words;
    said: (text: string) => string;
}

/** The languages, each with its own name for itself. */
export const LANGUAGES: Record<string, { name: string; load: () => Promise<Language> }> = {
    en: { name: 'English', load: async () => ({ words: en, said: same }) },
    de: {
        name: 'Deutsch',
        load: () => import('./i18n/de'),
    },
};

let words = en as Record<Key, string>;
let language = 'en';
const listeners = new Set<() => void>();

/** The text of a key. `{name}` in it is replaced by the value of that name. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
    return words[key].replace(/\{(\w+)\}/g, (whole, name: string) => {
        const value = values[name];
        return value === undefined ? whole : typeof value === 'number' ? number(value) : value;
    });
}

const same = (text: string): string => text;

/** A sentence that the program writes, in the current language, or as it is if it has no translation. */
export let said = same;

/** The text of a key that may not exist, for example of an option that only a newer server has. */
export function maybe(key: string): string | undefined {
    return Object.hasOwn(words, key) ? words[key as Key] : undefined;
}

/** A number in the notation of the locale. */
export function number(value: number, digits?: number): string {
    const options = digits === undefined ? {} : { minimumFractionDigits: digits, maximumFractionDigits: digits };
    return new Intl.NumberFormat(locale(), options).format(value);
}

/** "a, b and c", as the locale writes it. */
export function listed(words: string[]): string {
    return new Intl.ListFormat(locale(), { type: 'conjunction' }).format(words);
}

export function clock(seconds: number, withSeconds = true): string {
    return new Intl.DateTimeFormat(locale(), {
        hour: '2-digit',
        minute: '2-digit',
        ...(withSeconds ? { second: '2-digit' } : {}),
    }).format(seconds * 1000);
}

export function date(seconds: number): string {
    return new Intl.DateTimeFormat(locale(), { dateStyle: 'medium', timeStyle: 'short' }).format(seconds * 1000);
}

/** The locale of the browser for the current language, such as `en-GB`. */
function locale(): string {
    return navigator.languages.find((tag) => tag.split('-')[0] === language) ?? language;
}

export function currentLanguage(): string {
    return language;
}

/** The current language. Re-renders the component when it changes. */
export function useLanguage(): string {
    const [, render] = useState(0);
    useEffect(() => {
        const changed = () => render((n) => n + 1);
        listeners.add(changed);
        return () => void listeners.delete(changed);
    }, []);
    return language;
}

export async function speak(wanted: string): Promise<void> {
    const known = LANGUAGES[wanted];
    if (!known) return;
    ({ words, said } = (await known.load()) as { words: typeof words; said: typeof said });
    language = wanted;
    document.documentElement.lang = wanted;
    for (const listener of listeners) listener();
}

/** The language that was chosen earlier, or else the first of the browser's languages that exists here. */
export function preferred(): string {
    const chosen = remembered();
    const wanted = chosen ? [chosen] : navigator.languages.map((tag) => tag.split('-')[0] ?? '');
    return wanted.find((tag) => tag in LANGUAGES) ?? 'en';
}

export function remember(chosen: string): void {
    try {
        localStorage.setItem(STORED, chosen);
    } catch {
        // Without local storage the choice is forgotten.
    }
}

function remembered(): string | null {
    try {
        return localStorage.getItem(STORED);
    } catch {
        return null;
    }
}

const STORED = 'sqm-language';
