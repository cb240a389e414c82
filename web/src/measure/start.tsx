/** What to measure, and against whom. */

import { useState } from 'preact/hooks';
import { api, type Test } from '../api';
import { t } from '../i18n';
import { ChoiceField, TextField } from '../ui/labelled';
import { StartForm } from './start-form';

/** The figures leave out the first four seconds and the last. */
const LEAST_SECONDS = 6;

interface Props {
    kinds: { name: string; about: string }[];
    last: Test | null;
    started: (test: Test) => Promise<void>;
}

export function Start({ kinds, last, started }: Props) {
    const [kind, setKind] = useState(last?.kind ?? 'rrul_be');
    const [seconds, setSeconds] = useState('30');
    const [title, setTitle] = useState('');
    const start = async (host: string, secret: { secret?: string }) => {
        const name = title.trim() ? { title: title.trim() } : {};
        await started(await api.startTest({ host, kind, duration_s: Number(seconds), ...name, ...secret }));
    };
    return (
        <StartForm
            about={t('test.help', { n: (Number(seconds) || 30) + 10 })}
            host={last?.host ?? ''}
            start={start}
            more={
                <>
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
                </>
            }
        >
            <TextField
                id="test-title"
                label={t('test.name')}
                help={t('test.name_help')}
                maxLength={100}
                value={title}
                set={setTitle}
            />
        </StartForm>
    );
}
