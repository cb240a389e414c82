/** Translates sentences that the program writes in English. */

import { number } from '../i18n';

/** Sentences, each with its translation. `{}` stands for any text; both have it as often. */
type Sentences = readonly (readonly [english: string, translation: string])[];

/** A function that translates these sentences, and returns others as they are. */
export function translator(sentences: Sentences): (text: string) => string {
    const patterns = sentences.map(([english, translation]) => [pattern(english), translation] as const);
    const said = (text: string): string => {
        for (const [english, translation] of patterns) {
            const values = english.exec(text)?.slice(1);
            if (values) return translation.replace(/\{\}/g, () => value(values.shift() ?? '', said));
        }
        return text;
    };
    return said;
}

/** A value in a sentence: a number, or words that may have a translation. */
function value(text: string, said: (text: string) => string): string {
    const [, decimals] = /^-?\d+(?:\.(\d+))?$/.exec(text) ?? [text, null];
    return decimals === null ? said(text) : number(Number(text), decimals?.length ?? 0);
}

/** Matches the sentences that have any text in place of each `{}`. */
const pattern = (english: string): RegExp =>
    new RegExp(`^${english.replace(/[.*+?^$()|[\]\\]/g, '\\$&').replace(/\{\}/g, '(.+?)')}$`);
