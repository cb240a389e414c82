/** A field outside of the settings: its label, control and help text, linked for screen readers. */

interface Attributes {
    type?: 'text' | 'number' | 'password' | 'url';
    inputMode?: 'decimal';
    required?: boolean;
    min?: number;
    max?: number;
    step?: 'any';
    maxLength?: number;
    pattern?: string;
    title?: string;
    placeholder?: string;
    autocapitalize?: 'off';
    spellcheck?: false;
}

interface Props extends Attributes {
    id: string;
    label: string;
    help?: string;
    unit?: string;
    value: string;
    set: (value: string) => void;
}

export function TextField({ id, label, help, unit, value, set, ...attributes }: Props) {
    const field = (
        <input
            id={id}
            autocomplete="off"
            aria-describedby={help ? `${id}-help` : undefined}
            {...(attributes as object)}
            value={value}
            onInput={(event) => set(event.currentTarget.value)}
        />
    );
    return (
        <div class="field">
            <label for={id}>{label}</label>
            {unit ? (
                <div class="with-unit">
                    {field}
                    <span>{unit}</span>
                </div>
            ) : (
                field
            )}
            {help && <Help fieldId={id} text={help} />}
        </div>
    );
}

interface ChoiceProps {
    id: string;
    label: string;
    help?: string;
    value: string | number;
    choices: { value: string | number; text: string }[];
    choose: (value: string) => void;
}

export function ChoiceField({ id, label, help, value, choices, choose }: ChoiceProps) {
    return (
        <div class="field">
            <label for={id}>{label}</label>
            <select
                id={id}
                aria-describedby={help ? `${id}-help` : undefined}
                value={value}
                onChange={(event) => choose(event.currentTarget.value)}
            >
                {choices.map((choice) => (
                    <option key={choice.value} value={choice.value}>
                        {choice.text}
                    </option>
                ))}
            </select>
            {help && <Help fieldId={id} text={help} />}
        </div>
    );
}

interface TickProps {
    id: string;
    label: string;
    help: string;
    isOn: boolean;
    turn: (isOn: boolean) => void;
}

export function TickField({ id, label, help, isOn, turn }: TickProps) {
    return (
        <div class="field">
            <div class="tick">
                <input
                    id={id}
                    type="checkbox"
                    aria-describedby={`${id}-help`}
                    checked={isOn}
                    onChange={(event) => turn(event.currentTarget.checked)}
                />
                <label for={id}>{label}</label>
            </div>
            <Help fieldId={id} text={help} />
        </div>
    );
}

function Help({ fieldId, text }: { fieldId: string; text: string }) {
    return (
        <span id={`${fieldId}-help`} class="help">
            {text}
        </span>
    );
}

/** The longest text of a choice that a phone shows whole, characters. Measured at 390 px. */
const FITS_PHONE = 32;

/** The whole text of the chosen choice below its list, where a narrow window cuts it off. */
export function WholeChoice({ text }: { text: string }) {
    return text.length > FITS_PHONE ? <span class="phone-only">{text}</span> : null;
}
