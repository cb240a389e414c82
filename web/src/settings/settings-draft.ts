/** The state of the settings form: the configuration that was read, and the changes to it that are not applied yet. */

import { useEffect, useState } from 'preact/hooks';
import { api, type Change, type Config, type Finding } from '../api';
import { add, changes, type Draft, EMPTY, type Line, lines, rebase, remove, set } from './draft';

export interface SettingsDraft {
    config: Config;
    /** The lines with their changes. */
    lines: Line[];
    changes: Change[];
    /** True if errors of this option are shown: the user has been there. */
    isTouched: (line: Line, option: string) => boolean;
    /** Changes an option; null removes it. */
    set: (line: Line, option: string, value: string | null) => void;
    /** Adds a line and returns its index. */
    add: (values: Record<string, string>) => number;
    remove: (line: Line) => void;
    discard: () => void;
    /** Reads the configuration again, and keeps the changes or drops them. */
    reload: (keepsChanges: boolean) => Promise<void>;
    /** From now on, shows these errors, even of options that the user has not been to. */
    touch: (errors: Finding[]) => void;
}

/** `isUnconfirmed` is true while an applied change waits for its confirmation. */
export function useSettingsDraft(first: Config, isUnconfirmed: boolean): SettingsDraft {
    const [config, setConfig] = useState(first);
    const [draft, setDraft] = useState<Draft>(EMPTY);
    const [touched, setTouched] = useState<Set<string>>(new Set());
    const wanted = changes(draft);

    useEffect(() => {
        // A change has been applied, kept or rolled back: the file may differ from the one that was read.
        const read = (next: Config) => {
            setDraft((before) => rebase(config, next, before));
            setConfig(next);
        };
        void api.config().then(read, () => {});
    }, [isUnconfirmed]);
    useEffect(() => {
        if (wanted.length === 0) return;
        const warn = (event: BeforeUnloadEvent) => event.preventDefault();
        addEventListener('beforeunload', warn);
        return () => removeEventListener('beforeunload', warn);
    }, [wanted.length === 0]);

    return {
        config,
        lines: lines(config, draft),
        changes: wanted,
        isTouched: (line, option) => touched.has(`${line.index} ${option}`),
        set: (line, option, value) => {
            setTouched((before) => new Set(before).add(`${line.index} ${option}`));
            setDraft((before) => set(config, before, line.index, option, value));
        },
        add: (values) => {
            const [next, index] = add(config, draft, values);
            setDraft(next);
            return index;
        },
        remove: (line) => setDraft(remove(config, draft, line.index)),
        discard: () => {
            setDraft(EMPTY);
            setTouched(new Set());
        },
        reload: async (keepsChanges) => {
            const next = await api.config();
            setDraft(keepsChanges ? rebase(config, next, draft) : EMPTY);
            setConfig(next);
            if (!keepsChanges) setTouched(new Set());
        },
        touch: (errors) => setTouched(new Set(errors.map(({ section, option }) => `${section} ${option}`))),
    };
}
