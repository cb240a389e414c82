/** What a test and a search for rates are started with: the server beyond the line, and what is its own. */

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { Failed, useAttempt } from '../ui/attempt';
import { TextField } from '../ui/labelled';

interface Props {
    about: string;
    /** The server that was used last is probably meant again. */
    host: string;
    start: (host: string, secret: { secret?: string }) => Promise<void>;
    /** Fields that everybody sees. */
    children: ComponentChildren;
    /** Fields that most never need. */
    more?: ComponentChildren;
}

export function StartForm({ about, host: last, start, children, more }: Props) {
    const [host, setHost] = useState(last);
    const [secret, setSecret] = useState('');
    const { error, isBusy, attempt } = useAttempt();
    const submit = (event: Event) => {
        event.preventDefault();
        void attempt(() => start(host.trim(), secret ? { secret } : {}));
    };
    return (
        <form class="card" onSubmit={submit}>
            <p>{about}</p>
            <div class="fields">
                <TextField
                    id="server"
                    label={t('test.server')}
                    help={t('test.server_help')}
                    required
                    maxLength={253}
                    pattern="\s*[A-Za-z0-9:][A-Za-z0-9._:%\-]*\s*"
                    title={t('test.server_help')}
                    autocapitalize="off"
                    spellcheck={false}
                    placeholder="sqm.example.net"
                    value={host}
                    set={setHost}
                />
                {children}
            </div>
            <details>
                <summary>{t('settings.advanced')}</summary>
                <div class="fields">
                    {more}
                    <TextField
                        id="secret"
                        label={t('test.token')}
                        help={t('test.token_help')}
                        type="password"
                        maxLength={256}
                        value={secret}
                        set={setSecret}
                    />
                </div>
            </details>
            <Failed of={error} />
            <div>
                <button type="submit" class="main" disabled={isBusy}>
                    {t('do.start')}
                </button>
            </div>
        </form>
    );
}
