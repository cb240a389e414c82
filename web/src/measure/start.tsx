/** What to measure, and against whom. */

import { useState } from 'preact/hooks';
import { api, Refusal, type Test, type TestWanted, words } from '../api';
import { t } from '../i18n';
import { Errors } from '../ui/parts';

interface Props {
    kinds: { name: string; about: string }[];
    /** Its server is probably meant again. */
    last: Test | null;
    started: (test: Test) => Promise<void>;
}

export function Start({ kinds, last, started }: Props) {
    const [host, setHost] = useState(last?.host ?? '');
    const [kind, setKind] = useState(last?.kind ?? 'rrul_be');
    const [seconds, setSeconds] = useState('30');
    const [title, setTitle] = useState('');
    const [secret, setSecret] = useState('');
    const [wrong, setWrong] = useState('');
    const [isBusy, setIsBusy] = useState(false);
    const submit = async (event: Event) => {
        event.preventDefault();
        setWrong('');
        setIsBusy(true);
        const wanted: TestWanted = { host: host.trim(), kind, duration_s: Number(seconds) };
        if (title.trim()) wanted.title = title.trim();
        if (secret) wanted.secret = secret;
        try {
            await started(await api.startTest(wanted));
        } catch (problem) {
            setWrong(problem instanceof Refusal ? words(problem, t('app.no_answer')) : String(problem));
            setIsBusy(false);
        }
    };
    return (
        <form class="card" onSubmit={submit}>
            <p>{t('test.help', { n: (Number(seconds) || 30) + 10 })}</p>
            <div class="fields">
                <Server host={host} set={setHost} />
                <div class="field">
                    <label for="test-title">{t('test.name')}</label>
                    <input
                        id="test-title"
                        maxLength={100}
                        aria-describedby="test-title-help"
                        value={title}
                        onInput={(event) => setTitle(event.currentTarget.value)}
                    />
                    <span id="test-title-help" class="help">
                        {t('test.name_help')}
                    </span>
                </div>
            </div>
            <details>
                <summary>{t('settings.advanced')}</summary>
                <div class="fields">
                    <div class="field">
                        <label for="test-kind">{t('test.kind')}</label>
                        <select
                            id="test-kind"
                            aria-describedby="test-kind-help"
                            value={kind}
                            onChange={(event) => setKind(event.currentTarget.value)}
                        >
                            {kinds.map(({ name, about }) => (
                                <option key={name} value={name}>
                                    {name} – {about}
                                </option>
                            ))}
                        </select>
                        <span id="test-kind-help" class="help">
                            {t('test.kind_help')}
                        </span>
                    </div>
                    <div class="field">
                        <label for="test-seconds">{t('test.seconds')}</label>
                        <input
                            id="test-seconds"
                            type="number"
                            min={2}
                            max={300}
                            required
                            value={seconds}
                            onInput={(event) => setSeconds(event.currentTarget.value)}
                        />
                    </div>
                    <Secret secret={secret} set={setSecret} />
                </div>
            </details>
            <Errors of={wrong ? [wrong] : []} />
            <div>
                <button type="submit" class="main" disabled={isBusy}>
                    {t('do.start')}
                </button>
            </div>
        </form>
    );
}

export function Server({ host, set }: { host: string; set: (host: string) => void }) {
    return (
        <div class="field">
            <label for="server">{t('test.server')}</label>
            <input
                id="server"
                required
                maxLength={253}
                pattern="\s*[A-Za-z0-9:][A-Za-z0-9._:%\-]*\s*"
                title={t('test.server_help')}
                autocomplete="off"
                autocapitalize="off"
                spellcheck={false}
                placeholder="sqm.example.net"
                aria-describedby="server-help"
                value={host}
                onInput={(event) => set(event.currentTarget.value)}
            />
            <span id="server-help" class="help">
                {t('test.server_help')}
            </span>
        </div>
    );
}

export function Secret({ secret, set }: { secret: string; set: (secret: string) => void }) {
    return (
        <div class="field">
            <label for="secret">{t('test.token')}</label>
            <input
                id="secret"
                type="password"
                autocomplete="off"
                maxLength={256}
                aria-describedby="secret-help"
                value={secret}
                onInput={(event) => set(event.currentTarget.value)}
            />
            <span id="secret-help" class="help">
                {t('test.token_help')}
            </span>
        </div>
    );
}
