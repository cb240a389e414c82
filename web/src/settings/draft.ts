/** Changes that are not applied yet. The server edits the text of the file, so that its comments stay. */

import type { Change, Config, Section } from '../api';

/** For each section and option a value, or null to remove the option. Sections with an index beyond the file's are new. */
export interface Draft {
    sets: Record<number, Record<string, string | null>>;
    removed: number[];
}

/** The words of a switch that is on. */
export const ON = ['1', 'on', 'true', 'yes', 'enabled'];

export const EMPTY: Draft = { sets: {}, removed: [] };

/** A line with its changes. */
export interface Line {
    index: number;
    isNew: boolean;
    /** The value with the changes; null if the option is not set. */
    value: (option: string) => string | null;
    /** The value in the file; null if the option is not set. */
    before: (option: string) => string | null;
}

/** True if the line is to be shaped. */
export const isOn = (line: Line) => ON.includes((line.value('enabled') ?? '0').toLowerCase());

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
    // The values of a list are joined with spaces; otherwise the last value wins, as in UCI.
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

/** Adds a section with these values. Returns its index as well. */
export function add(config: Config, draft: Draft, values: Record<string, string>): [Draft, number] {
    const index = Math.max(config.sections.length, ...Object.keys(draft.sets).map((known) => Number(known) + 1));
    return [{ ...draft, sets: { ...draft.sets, [index]: values } }, index];
}

export function remove(config: Config, draft: Draft, index: number): Draft {
    const sets: Draft['sets'] = {};
    // The indices of new sections are consecutive: those after a removed one move up.
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
 * Moves the changes to a configuration that another browser or program has written meanwhile. Sections are matched by their
 * interface. Changes to a section that no longer exists are dropped.
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
