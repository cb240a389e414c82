/** The form that starts a test. */

import { useState } from 'preact/hooks';
import { api, type Test, type TestWanted } from '../api';
import { maybe, t } from '../i18n';
import { useStore } from '../store';
import { ChoiceField, TextField, TickField } from '../ui/labelled';
import { CLOUDFLARE, NETWORK_QUALITY } from './public-servers';
import { kindName } from './name';
import { serverOf } from './server';
import { HostField, Preset, SecretField, ServerField, StartForm, UrlField, type Way, WayField } from './start-form';

/** The least length of a test, seconds: its figures leave out the first four and the last one. */
const LEAST_SECONDS = 6;

/** The test that the command line runs by default. */
const THREE_PHASES = 'three_phases';

const wayOf = (kind: string | undefined): Way => (kind === 'url' || kind === 'rpm' ? kind : 'server');

interface Props {
    isHidden: boolean;
    kinds: { name: string; about: string }[];
    last: Test | null;
    started: (test: Test) => Promise<void>;
}

export function Start({ isHidden, kinds, last, started }: Props) {
    const [way, setWay] = useState<Way>(wayOf(last?.kind));
    const [fields, setFields] = useState<Fields>({
        host: wayOf(last?.kind) === 'url' ? '' : (last?.host ?? ''),
        secret: '',
        url: wayOf(last?.kind) === 'url' ? (last?.host ?? '') : '',
        uploadUrl: '',
        reflector: '',
        kind: THREE_PHASES,
        seconds: '30',
        title: '',
    });
    const [isTrusting, setIsTrusting] = useState(false);
    const field = (name: keyof typeof fields) => ({
        value: fields[name],
        set: (value: string) => setFields((before) => ({ ...before, [name]: value })),
    });
    const start = async () => started(await api.startTest(wanted(way, fields, isTrusting)));
    const { status } = useStore();
    const shaped = (status?.interfaces ?? []).filter(({ state }) => state === 'shaped').map((one) => one.interface);
    const [chosen, setChosen] = useState('');
    const line = shaped.find((name) => name === chosen) ?? shaped[0];
    const startBoth = async () => {
        if (line === undefined) return;
        await started(await api.startTest({ ...wanted(way, fields, isTrusting), without_and_with: line }));
    };
    const seconds = Number(fields.seconds) || 30;
    return (
        <StartForm
            isHidden={isHidden}
            about={about(way, fields, seconds)}
            start={start}
            other={line === undefined ? null : { text: t('pair.start'), help: t('pair.start_help', { name: line }), start: startBoth }}
            more={
                <>
                    {way === 'server' && (
                        <ChoiceField
                            id="test-kind"
                            label={t('test.kind')}
                            help={aboutKind(kinds, fields.kind)}
                            value={fields.kind}
                            choices={kinds
                                .filter(({ name }) => wayOf(name) === 'server')
                                .map(({ name }) => ({ value: name, text: kindName(name) }))}
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
                    {shaped.length > 1 && (
                        <ChoiceField
                            id="test-line"
                            label={t('pair.line')}
                            help={t('pair.line_help')}
                            value={line ?? ''}
                            choices={shaped.map((name) => ({ value: name, text: name }))}
                            choose={setChosen}
                        />
                    )}
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
            <WayField id="test-way" way={way} set={setWay} />
            {way !== 'url' && (
                <ServerField help={way === 'rpm' ? t('test.server_help_rpm') : undefined} {...field('host')} />
            )}
            {way === 'rpm' && (
                <Preset text={t('test.preset_rpm')} help={NETWORK_QUALITY} use={() => field('host').set(NETWORK_QUALITY)} />
            )}
            {way === 'url' && (
                <Preset
                    text={t('test.preset_url')}
                    help={CLOUDFLARE.download}
                    use={() => {
                        field('url').set(CLOUDFLARE.download);
                        field('uploadUrl').set(CLOUDFLARE.upload);
                    }}
                />
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

/** What a test does, and how long it takes. */
function about(way: Way, { kind, url, uploadUrl }: Fields, seconds: number): string {
    if (way === 'rpm') return t('test.help_rpm');
    const isInTurn = way === 'server' ? kind === THREE_PHASES : url !== '' && uploadUrl !== '';
    return t(isInTurn ? 'test.help_in_turn' : 'test.help', { n: seconds + 10 });
}

/** What the chosen test does: a narrow window has no room for that in the list. */
function aboutKind(kinds: Props['kinds'], name: string): string {
    const about = maybe(`test.kind.${name}`) ?? kinds.find((kind) => kind.name === name)?.about;
    return about ? `${about}. ${t('test.kind_help')}` : t('test.kind_help');
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
    const server = serverOf(fields.host);
    const trust = isTrusting ? { insecure: true } : {};
    switch (way) {
        case 'server':
            return { kind: kind as ServerKind, ...all, ...server, ...given({ secret }) };
        case 'url':
            return { kind: 'url', ...all, ...given({ url, upload_url: uploadUrl, reflector }), ...trust };
        case 'rpm':
            return { kind: 'rpm', ...all, ...server, ...trust };
    }
}

/** The texts that are not empty. */
function given<K extends string>(texts: Record<K, string>): { [name in K]?: string } {
    const pairs = Object.entries<string>(texts).flatMap(([name, text]) => (text.trim() ? [[name, text.trim()]] : []));
    return Object.fromEntries(pairs) as { [name in K]?: string };
}
