/** The field of one option: label, control, help text, and the findings of the validator. */

import { useState } from 'preact/hooks';
import type { Finding, Interfaces, Link, Option } from '../api';
import { maybe, t } from '../i18n';
import { WholeChoice } from '../ui/labelled';
import { rateShown, rateTyped } from '../units';
import { DeviceChoice } from './device-choice';
import type { Doubt } from './doubts';
import { type Line, ON } from './draft';

/** The line that the fields belong to, and what they need to know. */
export interface Form {
    line: Line;
    options: Map<string, Option>;
    links: Link[];
    interfaces: Interfaces | null;
    isLocked: boolean;
    set: (option: string, value: string | null) => void;
    errors: (option: string) => Finding[];
    warnings: (option: string) => Finding[];
    doubts: Doubt[];
}

export function title(option: Option): string {
    return maybe(`option.${option.name}`) ?? ofDirection(option, '') ?? option.title;
}

export function about(option: Option): string {
    return maybe(`option.${option.name}.about`) ?? ofDirection(option, '.about') ?? option.about;
}

/** A translation has one text for `cake_rtt`, which serves `egress_cake_rtt` and `ingress_cake_rtt` as well. */
function ofDirection({ name, direction }: Option, part: string): string | undefined {
    if (!direction) return undefined;
    const both = maybe(`option.${name.slice(direction.length + 1)}${part}`);
    return both && (part ? both : `${both} (${t(`direction.${direction}`)})`);
}

export function Field({ name, form }: { name: string; form: Form }) {
    const option = form.options.get(name);
    if (!option) return null;
    const id = `option-${name}`;
    const errors = form.errors(name);
    const warnings = form.warnings(name);
    const control: Control = {
        id,
        name,
        disabled: form.isLocked,
        'aria-invalid': errors.length > 0,
        'aria-describedby': `${id}-help ${id}-said`,
    };
    return (
        <div class={hasLongChoices(option) ? 'field wide' : 'field'}>
            {isTick(option) ? (
                <div class="tick">
                    <Tick option={option} form={form} control={control} />
                    <label for={id}>{title(option)}</label>
                </div>
            ) : (
                <>
                    <label for={id}>{title(option)}</label>
                    <Choose option={option} form={form} control={control} />
                </>
            )}
            <span id={`${id}-help`} class="help">
                {about(option)}
            </span>
            <code class="option-name">option {name}</code>
            <span id={`${id}-said`} class="stack">
                {errors.map((finding) => (
                    <FieldMessage key={finding.message} finding={finding} kind="wrong" form={form} option={name} />
                ))}
                {form.doubts
                    .filter(({ option }) => option === name)
                    .map(({ text }) => (
                        <span key={text} class="doubt">
                            {text}
                        </span>
                    ))}
                {warnings.map((finding) => (
                    <FieldMessage key={finding.message} finding={finding} kind="doubt" form={form} option={name} />
                ))}
            </span>
        </div>
    );
}

/** The longest text of a choice that fits into half of the form, characters. Measured at 1280 px. */
const FITS = 45;

const hasLongChoices = ({ type, name, choices }: Option) =>
    type === 'choice' &&
    name !== 'link' &&
    (choices ?? []).some(({ value, about: words }) => choiceText(name, value, words).length > FITS);

interface Control {
    id: string;
    name: string;
    disabled: boolean;
    'aria-invalid': boolean;
    'aria-describedby': string;
}

interface Part {
    option: Option;
    form: Form;
    control: Control;
}

/** A switch is a checkbox if it has a default; otherwise a third choice stands for "not set". */
const isTick = ({ type, default: fallback }: Option) => type === 'switch' && fallback !== null;

function Tick({ option, form, control }: Part) {
    const isOn = (value: string | null) => ON.includes((value ?? option.default ?? '0').toLowerCase());
    const before = form.line.before(option.name);
    // Back at the file's value is no change, whichever word the file has for it and even if it has none.
    const turn = (on: boolean) => form.set(option.name, on === isOn(before) ? before : on ? '1' : '0');
    return (
        <input
            {...control}
            type="checkbox"
            checked={isOn(form.line.value(option.name))}
            onChange={(event) => turn(event.currentTarget.checked)}
        />
    );
}

function Choose(part: Part) {
    const { option, control } = part;
    if (option.name === 'link') return <LinkChoice {...part} />;
    switch (option.type) {
        case 'switch':
            return <Select {...part} choices={SWITCH()} />;
        case 'choice':
            return <Select {...part} choices={option.choices ?? []} />;
        case 'rate':
            return <RateField {...part} />;
        case 'device':
            return <DeviceField {...part} />;
        default:
            return (
                <div class="with-unit">
                    <Text
                        {...part}
                        inputMode={option.type === 'integer' ? 'numeric' : 'text'}
                        placeholder={option.default ?? ''}
                        list={option.choices ? `${control.id}-words` : undefined}
                    />
                    {option.unit && <span>{maybe(`unit.of.${option.unit}`) ?? option.unit}</span>}
                    {option.choices && (
                        <datalist id={`${control.id}-words`}>
                            {option.choices.map(({ value, about }) => (
                                <option key={value} value={value}>
                                    {choiceText(option.name, value, about)}
                                </option>
                            ))}
                        </datalist>
                    )}
                </div>
            );
    }
}

interface TextAttributes {
    inputMode?: 'numeric' | 'text';
    placeholder?: string;
    list?: string | undefined;
}

function Text({ option, form, control, ...attributes }: Part & TextAttributes) {
    return (
        <input
            {...control}
            {...attributes}
            type="text"
            autocomplete="off"
            spellcheck={false}
            value={form.line.value(option.name) ?? ''}
            onInput={(event) => form.set(option.name, event.currentTarget.value)}
        />
    );
}

const SWITCH = () => [
    { value: '1', about: t('settings.on') },
    { value: '0', about: t('settings.off_word') },
];

function Select({ option, form, control, choices }: Part & { choices: { value: string; about: string }[] }) {
    const given = form.line.value(option.name);
    const known = option.type === 'switch' ? normal(given) : given;
    const unset =
        option.default === null ? t('settings.unset') : t('settings.default', { value: option.default });
    const textOf = ({ value, about }: { value: string; about: string }) =>
        option.type === 'switch' ? about : choiceText(option.name, value, about);
    const chosen = choices.find(({ value }) => value === known);
    return (
        <>
            <select
                {...control}
                value={known ?? ''}
                onChange={(event) => form.set(option.name, event.currentTarget.value)}
            >
                <option value="">{unset}</option>
                {choices.map((choice) => (
                    <option key={choice.value} value={choice.value}>
                        {textOf(choice)}
                    </option>
                ))}
                {/* An unknown value of the file stays visible; the validator reports it. */}
                {known !== null && !chosen && <option value={known}>{known}</option>}
            </select>
            <WholeChoice text={chosen ? textOf(chosen) : ''} />
        </>
    );
}

/** Options of each direction share their choices: `egress_ecn` and `ingress_ecn`, `itarget` and `etarget`. */
function choiceText(option: string, value: string, about: string): string {
    const both = option.replace(/^(egress_|ingress_|[ei](?=target))/, '');
    const text = maybe(`choice.${both}.${value}`) ?? about;
    return text && text !== value ? `${value} – ${text}` : value;
}

function normal(value: string | null): string | null {
    if (value === null) return null;
    if (ON.includes(value.toLowerCase())) return '1';
    return ['0', 'off', 'false', 'no', 'disabled'].includes(value.toLowerCase()) ? '0' : value;
}

function RateField({ option, form, control }: Part) {
    const value = form.line.value(option.name) ?? '';
    const [typed, setTyped] = useState(() => rateShown(value));
    return (
        <div class="with-unit">
            <input
                {...control}
                type="text"
                autocomplete="off"
                inputMode="decimal"
                // Keep the user's spelling as long as it means the value that is set.
                value={rateTyped(typed) === value ? typed : rateShown(value)}
                onInput={(event) => {
                    setTyped(event.currentTarget.value);
                    form.set(option.name, rateTyped(event.currentTarget.value));
                }}
            />
            <span>Mbit/s</span>
        </div>
    );
}

function DeviceField({ option, form, control }: Part) {
    const { interfaces, isLocked } = form;
    const value = form.line.value(option.name) ?? '';
    const suggested = interfaces?.suggested;
    return (
        <>
            <DeviceChoice interfaces={interfaces} value={value} set={(name) => form.set(option.name, name)} control={control} />
            {suggested && suggested !== value && !isLocked && (
                <span>
                    <button type="button" class="link" onClick={() => form.set(option.name, suggested)}>
                        {t('settings.use', { value: suggested })}
                    </button>
                </span>
            )}
        </>
    );
}

const FAMILIES = ['ptm', 'atm', 'ethernet', 'none'] as const;

function LinkChoice({ option, form, control }: Part) {
    const given = form.line.value('link');
    const chosen = form.links.find(({ name }) => name === given);
    const device = form.interfaces?.devices.find(({ name }) => name === form.line.value('interface'));
    return (
        <>
            <select {...control} value={given ?? ''} onChange={(event) => form.set(option.name, event.currentTarget.value)}>
                <option value="">{t('settings.link_unset')}</option>
                <LinkOptions links={form.links} />
                {given !== null && !chosen && <option value={given}>{given}</option>}
            </select>
            {chosen && (
                <details class="help">
                    <summary>{t('settings.details')}</summary>
                    {t('settings.kind_figures', {
                        overhead: chosen.overhead_bytes,
                        layer: t(`settings.layer.${chosen.linklayer}`),
                        mpu: chosen.mpu_bytes,
                    })}{' '}
                    {chosen.source}.
                </details>
            )}
            {device && device.encapsulations.length > 0 && (
                <span class="help">
                    {t('settings.encapsulations', { device: device.name, layers: device.encapsulations.join(', ') })}
                </span>
            )}
        </>
    );
}

/** All presets, by link layer. */
export function LinkOptions({ links: all }: { links: Link[] }) {
    return (
        <>
            {FAMILIES.map((family) => {
                const links = all.filter(({ linklayer }) => linklayer === family);
                return (
                    links.length > 0 && (
                        <optgroup key={family} label={t(`settings.family.${family}`)}>
                            {links.map((link) => (
                                <option key={link.name} value={link.name}>
                                    {linkTitle(link)}
                                </option>
                            ))}
                        </optgroup>
                    )
                );
            })}
        </>
    );
}

export const linkTitle = ({ name, about }: Link) => maybe(`link.${name}`) ?? about;

function FieldMessage({ finding, kind, form, option }: { finding: Finding; kind: 'wrong' | 'doubt'; form: Form; option: string }) {
    const { suggestion } = finding;
    return (
        <span class={kind}>
            {finding.message}{' '}
            {suggestion !== null && !form.isLocked && (
                <button type="button" class="link" onClick={() => form.set(option, suggestion)}>
                    {t('settings.use', { value: suggestion })}
                </button>
            )}
        </span>
    );
}
