/** The requests to the server. Their types are generated from docs/openapi.yaml. The page knows nothing else of the server. */

import type { components, paths } from './openapi';

export type Schemas = components['schemas'];

export type Session = Schemas['Session'];
export type Status = Schemas['Status'];
export type State = Schemas['State'];
export type InterfaceStatus = Schemas['InterfaceStatus'];
export type Autorate = NonNullable<Schemas['Autorate']>;
export type Direction = NonNullable<Schemas['Direction']>;
export type Sample = Schemas['Sample'];
export type Columns = NonNullable<Schemas['Columns']>;
export type History = Schemas['History'];
export type LogEntry = Schemas['LogEntry'];
export type Option = Schemas['Option'];
export type Link = Schemas['Link'];
export type Interfaces = Schemas['Interfaces'];
export type Config = Schemas['Config'];
export type Section = Schemas['Section'];
export type Change = Schemas['Change'];
export type LineRate = Schemas['LineRate'];
export type Speeds = Body<'/config/rates', 'post'>;
export type Finding = Schemas['Finding'];
export type Check = Schemas['Check'];
export type Test = Schemas['Test'];
export type Grade = Schemas['Grade'];
export type LoadGrade = Schemas['LoadGrade'];
export type Use = LoadGrade['uses'][number];
export type Tests = Answer<'/tests', 'get'>;
export type TestWanted = Body<'/tests', 'post'>;
export type Responsiveness = NonNullable<Schemas['Responsiveness']>;
export type ResponsivenessOf = NonNullable<Schemas['ResponsivenessOf']>;
export type Plot = Schemas['Plot'];
export type Progress = Schemas['Progress'];
export type Phase = Schemas['Phase'];
export type Tune = Schemas['Tune'];
export type TuneStep = Schemas['TuneStep'];
export type TunePlot = Schemas['TunePlot'];
export type Diagnosis = Schemas['Diagnosis'];
export type DoctorFinding = Schemas['DoctorFinding'];

/** The width of a picture: for a large screen, or for a phone. */
export type Sheet = 'wide' | 'narrow';

type Method = 'get' | 'post' | 'put' | 'delete';

/** The paths that have this method. */
type Path<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, object> ? P : never }[keyof paths];

/** The JSON of a successful answer; undefined if the answer has no body. */
type Answer<P extends Path<M>, M extends Method> = paths[P][M] extends { responses: infer R }
    ? R extends { [status in 200 | 202]?: { content: { 'application/json': infer T } } }
        ? T
        : undefined
    : never;

/** The JSON that a request carries; undefined if it has no body. */
type Body<P extends Path<M>, M extends Method> = paths[P][M] extends { requestBody: { content: { 'application/json': infer T } } }
    ? T
    : undefined;

/** The values for the parts of a path that are in braces, and for its query. */
type Parameters<P extends Path<M>, M extends Method> = In<paths[P][M], 'path'> & In<paths[P][M], 'query'>;
type In<Operation, K extends 'path' | 'query'> = Operation extends { parameters: { [k in K]?: infer T } }
    ? [NonNullable<T>] extends [never]
        ? unknown
        : NonNullable<T>
    : unknown;

/** An error response of the server; `status` is 0 if the server did not respond. */
export class Refusal extends Error {
    constructor(
        readonly status: number,
        readonly code: string,
        message: string,
        readonly findings: Finding[] = [],
        readonly retryAfter = 0,
    ) {
        super(message);
    }
}

/** Relative, because a proxy may serve the page below a path. */
const BASE = 'api/v1';

/** The time limit of a request: longer than a slow router takes to apply a configuration. */
const PATIENCE_MS = 30_000;

let token = '';

/** The URL of a request: the parameters take the places in braces, and the others become the query. */
function url<P extends Path<'get'>>(path: P, parameters: Parameters<P, 'get'>): string {
    return filled(path, parameters as Values);
}

type Values = Record<string, string | number>;

function filled(path: string, values: Values): string {
    const query: string[] = [];
    for (const [name, value] of Object.entries(values)) {
        const before = path;
        path = path.replace(`{${name}}`, encodeURIComponent(value));
        if (path === before) query.push(`${name}=${value}`);
    }
    return [BASE + path, ...(query.length > 0 ? [query.join('&')] : [])].join('?');
}

export const get = <P extends Path<'get'>>(path: P, parameters: Parameters<P, 'get'>): Promise<Answer<P, 'get'>> =>
    ask('get', filled(path, parameters as Values)) as Promise<Answer<P, 'get'>>;

/** Sends a request that changes something. */
const send = <M extends Exclude<Method, 'get'>, P extends Path<M>>(
    method: M,
    path: P,
    parameters: Parameters<P, M>,
    body: Body<P, M>,
): Promise<Answer<P, M>> => ask(method, filled(path, parameters as Values), body) as Promise<Answer<P, M>>;

async function ask(method: Method, address: string, body?: unknown, isSecondTry = false): Promise<unknown> {
    const headers: Record<string, string> = {};
    if (method !== 'get') headers['X-SQM-Token'] = token;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    let answer: Response;
    try {
        answer = await fetch(address, {
            method: method.toUpperCase(),
            headers,
            signal: AbortSignal.timeout(PATIENCE_MS),
            ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
    } catch {
        throw new Refusal(0, 'no-answer', 'no answer');
    }
    if (answer.ok) {
        const isJson = answer.headers.get('Content-Type')?.includes('json');
        return isJson ? await answer.json() : undefined;
    }
    const problem: Partial<Schemas['Problem']> = await answer.json().catch(() => ({}));
    // A server that has been restarted no longer knows its earlier tokens.
    if (answer.status === 403 && method !== 'get' && !isSecondTry && address !== url('/session', {})) {
        const before = token;
        await api.session();
        if (token !== before) return ask(method, address, body, true);
    }
    throw new Refusal(
        answer.status,
        problem.code ?? '',
        problem.message ?? `${answer.status} ${answer.statusText}`,
        problem.findings ?? [],
        Number(answer.headers.get('Retry-After') ?? 0),
    );
}

/** Keeps the token of a session. */
async function kept(session: Promise<Session>): Promise<Session> {
    const answer = await session;
    token = answer.token;
    return answer;
}

const edit = (changes: Change[] | string) => (typeof changes === 'string' ? { text: changes } : { changes });

export const api = {
    session: () => kept(get('/session', {})),
    logIn: (password: string) => kept(send('post', '/session', {}, { password })),
    logOut: async () => {
        await send('delete', '/session', {}, undefined);
        return api.session();
    },
    status: () => get('/status', {}),
    history: (seconds: number, points: number) => get('/history', { seconds, points }),
    options: async () => (await get('/options', {})).options,
    links: async () => (await get('/links', {})).links,
    interfaces: () => get('/interfaces', {}),
    config: () => get('/config', {}),
    /** Validates a whole configuration (`text`) or changes to the current one. */
    check: (changes: Change[] | string) => send('post', '/config/check', {}, edit(changes)),
    /** Reads speeds as a person types them. */
    rates: (speeds: Speeds) => send('post', '/config/rates', {}, speeds),
    apply: (revision: string, changes: Change[] | string) => send('put', '/config', {}, { revision, ...edit(changes) }),
    confirm: () => send('post', '/config/confirm', {}, undefined),
    revert: () => send('post', '/config/revert', {}, undefined),
    tests: () => get('/tests', {}),
    test: (id: string) => get('/tests/{id}', { id }),
    startTest: (wanted: TestWanted) => send('post', '/tests', {}, wanted),
    stopTest: (id: string) => send('post', '/tests/{id}/stop', { id }, undefined),
    deleteTest: (id: string) => send('delete', '/tests/{id}', { id }, undefined),
    compare: (ids: string[]) => get('/compare', { ids: ids.join(',') }),
    tune: () => get('/tune', {}),
    startTune: (wanted: Body<'/tune', 'post'>) => send('post', '/tune', {}, wanted),
    stopTune: () => send('post', '/tune/stop', {}, undefined),
    acceptTune: (revision: string) => send('post', '/tune/accept', {}, { revision }),
    doctor: () => get('/doctor', {}),
    fix: () => send('post', '/doctor/fix', {}, undefined),
    audit: async () => (await get('/audit', {})).entries,
};

/** URLs of links, pictures and streams. */
export const address = {
    file: (id: string) => url('/tests/{id}/result.flent.gz', { id }),
    plot: (id: string, plot: Plot, sheet: Sheet) => url('/tests/{id}/plots/{plot}.svg', { id, plot, sheet }),
    comparison: (ids: string[], plot: Plot, sheet: Sheet) =>
        url('/compare/{plot}.svg', { ids: ids.join(','), plot, sheet }),
    tune: (plot: TunePlot, sheet: Sheet) => url('/tune/plots/{plot}.svg', { plot, sheet }),
    report: url('/report', {}),
    live: (hz: number): Stream<{ sample: Sample }> => url('/live', { hz }),
    events: url('/events', {}) as Stream<Record<LogEntry['kind'], LogEntry>>,
    testLive: (id: string): Stream<{ progress: Progress; end: Test }> => url('/tests/{id}/live', { id }),
    tuneLive: url('/tune/live', {}) as Stream<{ step: TuneStep; end: Tune }>,
};

/** The URL of server-sent events, with the data of each event by its name. */
type Stream<Events> = string & { events?: Events };

/** Receives server-sent events until the returned function is called. The browser reconnects by itself. */
export function follow<Events>(
    stream: Stream<Events>,
    on: { [Name in keyof Events]: (data: Events[Name]) => void },
    heard: (connected: boolean) => void = () => {},
): () => void {
    const source = new EventSource(stream);
    source.onopen = () => heard(true);
    source.onerror = () => heard(false);
    for (const name in on) {
        source.addEventListener(name, (event) => on[name](JSON.parse(event.data)));
    }
    return () => source.close();
}
