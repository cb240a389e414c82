/** The fields of a tab. The server gives each option its tab and level; the first rows of the first tab are ordered here. */

import { useState } from 'preact/hooks';
import type { Option } from '../api';
import { t } from '../i18n';
import { Field, type Form } from './field';
import { Rates } from './rates';

export const TAB_IDS = ['basic', 'queue', 'link'] as const;
export type TabId = (typeof TAB_IDS)[number];

/** The first rows: what a line needs to be shaped. */
const ROWS = [['enabled'], ['interface', 'link'], ['download', 'upload']];
const FIRST = ROWS.flat();

export function Tab({ id, options, form }: { id: TabId; options: Option[]; form: Form }) {
    const here = options.filter(({ tab, name }) => tab === id && !(id === 'basic' && FIRST.includes(name)));
    const basic = here.filter(({ level }) => level === 'basic');
    const advanced = here.filter(({ level }) => level === 'advanced');
    const expert = here.filter(({ level }) => level === 'expert');
    return (
        <>
            {id === 'basic' && (
                <>
                    {ROWS.map((names) => (
                        <Fields key={names[0]} names={names} form={form} />
                    ))}
                    <Rates form={form} />
                </>
            )}
            <Fields names={basic.map(({ name }) => name)} form={form} />
            <More title={t('settings.advanced')} help={t('settings.advanced_help')} options={advanced} form={form} />
            <More title={t('settings.expert')} help={t('settings.expert_help')} options={expert} form={form} />
        </>
    );
}

/** The number of errors on a tab. */
export function countIn(id: TabId, options: Option[], form: Form): number {
    return options
        .filter(({ tab, name }) => tab === id || (id === 'basic' && name === 'link'))
        .reduce((sum, { name }) => sum + form.errors(name).length, 0);
}

function Fields({ names, form }: { names: string[]; form: Form }) {
    if (names.length === 0) return null;
    return (
        <div class="fields">
            {names.map((name) => (
                <Field key={name} name={name} form={form} />
            ))}
        </div>
    );
}

/** Options that few users need. Open at first if one of them is set or has an error. */
function More({ title, help, options, form }: { title: string; help: string; options: Option[]; form: Form }) {
    const isUsed = options.some(({ name }) => form.line.value(name) !== null || form.errors(name).length > 0);
    const [isOpen, setIsOpen] = useState(isUsed);
    if (options.length === 0) return null;
    const namesOf = (direction: Option['direction']) =>
        options.filter((option) => option.direction === direction).map(({ name }) => name);
    return (
        <details open={isOpen || undefined} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
            <summary>{title}</summary>
            {isOpen && (
                <div class="stack">
                    <p class="soft small">{help}</p>
                    <Fields names={namesOf(null)} form={form} />
                    {(['egress', 'ingress'] as const).map(
                        (direction) =>
                            namesOf(direction).length > 0 && (
                                <fieldset key={direction}>
                                    <legend>{t(`settings.only.${direction}`)}</legend>
                                    <Fields names={namesOf(direction)} form={form} />
                                </fieldset>
                            ),
                    )}
                </div>
            )}
        </details>
    );
}
