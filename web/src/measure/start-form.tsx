/** The form that starts a test or a search for rates: its frame, and the fields that both have. */

import type { ComponentChildren } from 'preact';
import { t } from '../i18n';
import { Failed, useAttempt } from '../ui/attempt';
import { ChoiceField, TextField } from '../ui/labelled';

interface Props {
    about: string;
    isHidden?: boolean;
    start: () => Promise<void>;
    /** Fields that are always visible. */
    children: ComponentChildren;
    /** Fields under "Advanced". */
    more?: ComponentChildren;
    /** A second way to start, with a button and a help text of its own. */
    other?: { text: string; help: string; start: () => Promise<void> } | null;
}

/** The name of the button for the second way to start. */
const OTHER = 'other';

export function StartForm({ about, isHidden = false, start, children, more, other }: Props) {
    const { error, isBusy, attempt } = useAttempt();
    const submit = (event: Event) => {
        event.preventDefault();
        const isOther = (event as SubmitEvent).submitter?.getAttribute('name') === OTHER;
        void attempt(isOther && other ? other.start : start);
    };
    return (
        <form class="card" hidden={isHidden} onSubmit={submit}>
            <p>{about}</p>
            <div class="fields">{children}</div>
            <details>
                <summary>{t('settings.advanced')}</summary>
                <div class="fields">{more}</div>
            </details>
            <Failed error={error} />
            <div class="row">
                <button type="submit" class="main" disabled={isBusy}>
                    {t('do.start')}
                </button>
                {other && (
                    <button type="submit" name={OTHER} disabled={isBusy} aria-describedby="other-help">
                        {other.text}
                    </button>
                )}
            </div>
            {other && (
                <p id="other-help" class="help">
                    {other.help}
                </p>
            )}
        </form>
    );
}

interface FieldProps {
    value: string;
    set: (value: string) => void;
}

/** The kinds of server: `sqm serve`, any web server with a large file, any responsiveness server. */
const WAYS = ['server', 'url', 'rpm'] as const;
export type Way = (typeof WAYS)[number];

/** The choice of the kind of server. */
export function WayField({ id, way, set }: { id: string; way: Way; set: (way: Way) => void }) {
    return (
        <ChoiceField
            id={id}
            label={t('test.way')}
            help={t(`test.way_help.${way}`)}
            value={way}
            choices={WAYS.map((one) => ({ value: one, text: t(`test.way.${one}`) }))}
            choose={(chosen) => set(chosen as Way)}
        />
    );
}

/** The field for the name or address of a host. */
export function HostField({ id, label, help, required, placeholder, ...field }: FieldProps & HostText) {
    return (
        <TextField
            id={id}
            label={label}
            help={help}
            {...(required ? { required } : {})}
            maxLength={253}
            pattern="\s*[A-Za-z0-9:\[][A-Za-z0-9._:%\[\]\-]*\s*"
            title={help}
            autocapitalize="off"
            spellcheck={false}
            {...(placeholder ? { placeholder } : {})}
            {...field}
        />
    );
}

interface HostText {
    id: string;
    label: string;
    help: string;
    required?: true;
    placeholder?: string;
}

/** The field for the host that runs `sqm serve`, or another server if `help` says so. */
export function ServerField({ help, ...field }: FieldProps & { help?: string | undefined }) {
    return (
        <HostField
            id="server"
            label={t('test.server')}
            help={help ?? t('test.server_help')}
            required
            placeholder="sqm.example.net"
            {...field}
        />
    );
}

/** A button that fills in a public server. */
export function Preset({ text, help, use }: { text: string; help: string; use: () => void }) {
    return (
        <div class="field">
            <span>
                <button type="button" class="link" onClick={use}>
                    {text}
                </button>
            </span>
            <span class="help">{help}</span>
        </div>
    );
}

/** The field for the secret of `sqm serve`. */
export function SecretField(field: FieldProps) {
    return (
        <TextField
            id="secret"
            label={t('test.token')}
            help={t('test.token_help')}
            type="password"
            maxLength={256}
            {...field}
        />
    );
}

interface UrlProps {
    id: string;
    label: string;
    help: string;
    required: boolean;
    value: string;
    set: (value: string) => void;
}

/** The field for a URL. */
export function UrlField({ required, ...field }: UrlProps) {
    return (
        <TextField
            type="url"
            maxLength={2048}
            pattern="https?://\S+"
            title={field.help}
            autocapitalize="off"
            spellcheck={false}
            {...(required ? { required } : {})}
            {...field}
        />
    );
}
