/** The login dialog. */

import { useEffect, useRef, useState } from 'preact/hooks';
import { api, Refusal, type Session } from './api';
import { t } from './i18n';
import { words } from './ui/attempt';
import { Dialog } from './ui/parts';

export function LogIn({ command, done }: { command: string; done: (session: Session | null) => void }) {
    const [password, setPassword] = useState('');
    const [wrong, setWrong] = useState('');
    const field = useRef<HTMLInputElement>(null);
    useEffect(() => field.current?.focus(), []);
    const submit = async (event: Event) => {
        event.preventDefault();
        try {
            done(await api.logIn(password));
        } catch (error) {
            setWrong(reason(error));
            field.current?.select();
        }
    };
    return (
        <Dialog title={t('session.log_in')} close={() => done(null)}>
            <form class="stack" onSubmit={submit}>
                <div class="field">
                    <label for="password">{t('session.password')}</label>
                    <input
                        id="password"
                        ref={field}
                        type="password"
                        autocomplete="current-password"
                        required
                        aria-invalid={wrong !== ''}
                        aria-describedby="password-help password-wrong"
                        value={password}
                        onInput={(event) => setPassword(event.currentTarget.value)}
                    />
                    <span id="password-help" class="help">
                        {t('session.help', { command })}
                    </span>
                    <span id="password-wrong" class="wrong" role="alert">
                        {wrong}
                    </span>
                </div>
                <div class="row">
                    <button type="submit" class="main">
                        {t('session.log_in')}
                    </button>
                    <button type="button" onClick={() => done(null)}>
                        {t('do.cancel')}
                    </button>
                </div>
            </form>
        </Dialog>
    );
}

function reason(error: unknown): string {
    if (error instanceof Refusal && error.status === 401) return t('session.wrong');
    if (error instanceof Refusal && error.status === 429) return t('session.locked', { n: error.retryAfter });
    return words(error);
}
