/** The form that starts a test. */

import { useState } from 'preact/hooks';
import { api, type Test, type TestWanted } from '../api';
import { t } from '../i18n';
import { ChoiceField, TextField, TickField } from '../ui/labelled';
import { HostField, SecretField, ServerField, StartForm } from './start-form';

/** The least length of a test, seconds: its figures leave out the first four and the last one. */
const LEAST_SECONDS = 6;

/** The kinds of server: `sqm serve`, any web server with a large file, any responsiveness server. */
const WAYS = ['server', 'url', 'rpm'] as const;
type Way = (typeof WAYS)[number];

const wayOf = (kind: string | undefined): Way => (kind === 'url' || kind === 'rpm' ? kind : 'server');

interface Props {
    kinds: { name: string; about: string }[];
    last: Test | null;
    started: (test: Test) => Promise<void>;
}

export function Start({ kinds, last, started }: Props) {
    const [way, setWay] = useState<Way>(wayOf(last?.kind));
    const [fields, setFields] = useState<Fields>({
        host: wayOf(last?.kind) === 'url' ? '' : (last?.host ?? ''),
        secret: '',
        url: wayOf(last?.kind) === 'url' ? (last?.host ?? '') : '',
        uploadUrl: '',
        reflector: '',
        kind: wayOf(last?.kind) === 'server' ? (last?.kind ?? 'rrul_be') : 'rrul_be',
        seconds: '30',
        title: '',
    });
    const [isTrusting, setIsTrusting] = useState(false);
    const field = (name: keyof typeof fields) => ({
        value: fields[name],
        set: (value: string) => setFields((before) => ({ ...before, [name]: value })),
    });
    const start = async () => started(await api.startTest(wanted(way, fields, isTrusting)));
    const seconds = Number(fields.seconds) || 30;
    return (
        <StartForm
            about={way === 'rpm' ? t('test.help_rpm') : t('test.help', { n: seconds + 10 })}
            start={start}
            more={
                <>
                    {way === 'server' && (
                        <ChoiceField
                            id="test-kind"
                            label={t('test.kind')}
                            help={t('test.kind_help')}
                            value={fields.kind}
                            choices={kinds
                                .filter(({ name }) => wayOf(name) === 'server')
                                .map(({ name, about }) => ({ value: name, text: `${name} – ${about}` }))}
                            choose={field('kind').set}
                        />
                    )}
                    <TextField
                        id="test-seconds"
                        label={way === 'rpm' ? t('test.seconds_each') : t('test.seconds')}
                        type="number"
                        min={LEAST_SECONDS}
                        max={300}
                        required
                        {...field('seconds')}
                    />
                    {way === 'server' && <SecretField {...field('secret')} />}
                    {way === 'url' && (
                        <HostField
                            id="test-reflector"
                            label={t('test.reflector')}
                            help={t('test.reflector_help')}
                            {...field('reflector')}
                        />
                    )}
                    {way !== 'server' && (
                        <TickField
                            id="test-insecure"
                            label={t('test.insecure')}
                            help={t('test.insecure_help')}
                            isOn={isTrusting}
                            turn={setIsTrusting}
                        />
                    )}
                </>
            }
        >
            <ChoiceField
                id="test-way"
                label={t('test.way')}
                help={t(`test.way_help.${way}`)}
                value={way}
                choices={WAYS.map((one) => ({ value: one, text: t(`test.way.${one}`) }))}
                choose={(chosen) => setWay(chosen as Way)}
            />
            {way !== 'url' && (
                <ServerField help={way === 'rpm' ? t('test.server_help_rpm') : undefined} {...field('host')} />
            )}
            {way === 'url' && (
                <>
                    <UrlField
                        id="test-url"
                        label={t('test.url')}
                        help={t('test.url_help')}
                        required={!fields.uploadUrl}
                        {...field('url')}
                    />
                    <UrlField
                        id="test-upload-url"
                        label={t('test.upload_url')}
                        help={t('test.upload_url_help')}
                        required={false}
                        {...field('uploadUrl')}
                    />
                </>
            )}
            <TextField
                id="test-title"
                label={t('test.name')}
                help={t('test.name_help')}
                maxLength={100}
                {...field('title')}
            />
        </StartForm>
    );
}

/** The fields of the form. */
interface Fields {
    host: string;
    secret: string;
    url: string;
    uploadUrl: string;
    reflector: string;
    /** One of the kinds that the server offers. */
    kind: string;
    seconds: string;
    title: string;
}

type ServerKind = Exclude<NonNullable<TestWanted['kind']>, 'url' | 'rpm'>;

function wanted(way: Way, fields: Fields, isTrusting: boolean): TestWanted {
    const { secret, url, uploadUrl, reflector, kind, seconds, title } = fields;
    const all = { duration_s: Number(seconds), ...given({ title }) };
    const host = fields.host.trim();
    const trust = isTrusting ? { insecure: true } : {};
    switch (way) {
        case 'server':
            return { kind: kind as ServerKind, ...all, host, ...given({ secret }) };
        case 'url':
            return { kind: 'url', ...all, ...given({ url, upload_url: uploadUrl, reflector }), ...trust };
        case 'rpm':
            return { kind: 'rpm', ...all, host, ...trust };
    }
}

/** The texts that are not empty. */
function given<K extends string>(texts: Record<K, string>): { [name in K]?: string } {
    const pairs = Object.entries<string>(texts).flatMap(([name, text]) => (text.trim() ? [[name, text.trim()]] : []));
    return Object.fromEntries(pairs) as { [name in K]?: string };
}

interface UrlProps {
    id: string;
    label: string;
    help: string;
    required: boolean;
    value: string;
    set: (value: string) => void;
}

function UrlField({ required, ...field }: UrlProps) {
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
