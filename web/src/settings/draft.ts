/** What was changed and not yet applied. The file's own text stays with the server, which keeps its comments. */

import type { Change, Config, Section } from '../api';

/** By section, by option: a value, or null to take the option away. A section beyond the file's is new. */
export interface Draft {
    sets: Record<number, Record<string, string | null>>;
    removed: number[];
}

export const EMPTY: Draft = { sets: {}, removed: [] };

/** A line that can be looked at and changed. */
export interface Line {
    index: number;
    isNew: boolean;
    /** The value as it would be, or null. */
    value: (option: string) => string | null;
    /** The value that the file has, or null. */
    before: (option: string) => string | null;
}

export function lines(config: Config, draft: Draft): Line[] {
    const known = config.sections
        .filter(({ type, index }) => type === 'queue' && !draft.removed.includes(index))
        .map((section) => line(section.index, section, draft));
    const added = Object.keys(draft.sets)
        .map(Number)
        .filter((index) => index >= config.sections.length)
        .map((index) => line(index, null, draft));
    return [...known, ...added];
}

function line(index: number, section: Section | null, draft: Draft): Line {
    return {
        index,
        isNew: section === null,
        value: (option) => {
            const set = draft.sets[index]?.[option];
            return set === undefined ? given(section, option) : set;
        },
        before: (option) => given(section, option),
    };
}

function given(section: Section | null | undefined, option: string): string | null {
    const values = section?.options.filter(({ name }) => name === option) ?? [];
    if (values.length === 0) return null;
    // A list is its values with blanks between; of the others the last wins.
    return values.some(({ list }) => list) ? values.map(({ value }) => value).join(' ') : (values.at(-1)?.value ?? null);
}

export function set(config: Config, draft: Draft, index: number, option: string, value: string | null): Draft {
    const section = config.sections.find((one) => one.index === index);
    const wanted = value === '' ? null : value;
    const sets = { ...draft.sets[index] };
    if (section && given(section, option) === wanted) delete sets[option];
    else sets[option] = wanted;
    const all = { ...draft.sets, [index]: sets };
    if (section && Object.keys(sets).length === 0) delete all[index];
    return { ...draft, sets: all };
}

/** One more section, with these values; answers its index too. */
export function add(config: Config, draft: Draft, values: Record<string, string>): [Draft, number] {
    const index = Math.max(config.sections.length, ...Object.keys(draft.sets).map((known) => Number(known) + 1));
    return [{ ...draft, sets: { ...draft.sets, [index]: values } }, index];
}

export function remove(config: Config, draft: Draft, index: number): Draft {
    const sets: Draft['sets'] = {};
    // New sections stand one after the other.
    for (const [known, values] of Object.entries(draft.sets)) {
        const at = Number(known);
        if (at === index) continue;
        sets[at > index && index >= config.sections.length ? at - 1 : at] = values;
    }
    const isNew = index >= config.sections.length;
    return { sets, removed: isNew ? draft.removed : [...draft.removed, index] };
}

export function changes({ sets, removed }: Draft): Change[] {
    return [
        ...Object.entries(sets).flatMap(([section, options]) =>
            Object.entries(options).map(([option, value]) => ({ section: Number(section), option, value })),
        ),
        ...removed.map((section) => ({ section, remove: true })),
    ];
}

/**
 * The same changes to a file that somebody else has written meanwhile: sections are found by their interface. What was
 * changed in a section that is gone is dropped.
 */
export function rebase(before: Config, after: Config, draft: Draft): Draft {
    const place = (index: number): number | undefined => {
        if (index >= before.sections.length) return index - before.sections.length + after.sections.length;
        const name = given(before.sections[index], 'interface');
        const same = after.sections[index];
        if (same && given(same, 'interface') === name) return index;
        return after.sections.find((section) => given(section, 'interface') === name)?.index;
    };
    const sets: Draft['sets'] = {};
    for (const [index, values] of Object.entries(draft.sets)) {
        const at = place(Number(index));
        if (at !== undefined) sets[at] = values;
    }
    return { sets, removed: draft.removed.map(place).filter((at) => at !== undefined) };
}
