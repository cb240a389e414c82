/** What to measure, and against whom. */

import { useState } from 'preact/hooks';
import { api, type Test, type TestWanted, words } from '../api';
import { t } from '../i18n';
import { ChoiceField, TextField } from '../ui/labelled';
import { Errors } from '../ui/parts';

/** The figures leave out the first four seconds and the last. */
const LEAST_SECONDS = 6;

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
            setWrong(words(problem, t('app.no_answer')));
            setIsBusy(false);
        }
    };
    return (
        <form class="card" onSubmit={submit}>
            <p>{t('test.help', { n: (Number(seconds) || 30) + 10 })}</p>
            <div class="fields">
                <Server value={host} set={setHost} />
                <TextField
                    id="test-title"
                    label={t('test.name')}
                    help={t('test.name_help')}
                    maxLength={100}
                    value={title}
                    set={setTitle}
                />
            </div>
            <details>
                <summary>{t('settings.advanced')}</summary>
                <div class="fields">
                    <ChoiceField
                        id="test-kind"
                        label={t('test.kind')}
                        help={t('test.kind_help')}
                        value={kind}
                        choices={kinds.map(({ name, about }) => ({ value: name, text: `${name} – ${about}` }))}
                        choose={setKind}
                    />
                    <TextField
                        id="test-seconds"
                        label={t('test.seconds')}
                        type="number"
                        min={LEAST_SECONDS}
                        max={300}
                        required
                        value={seconds}
                        set={setSeconds}
                    />
                    <Secret value={secret} set={setSecret} />
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

interface Text {
    value: string;
    set: (value: string) => void;
}

export function Server({ value, set }: Text) {
    return (
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
            value={value}
            set={set}
        />
    );
}

export function Secret({ value, set }: Text) {
    return (
        <TextField
            id="secret"
            label={t('test.token')}
            help={t('test.token_help')}
            type="password"
            maxLength={256}
            value={value}
            set={set}
        />
    );
}
