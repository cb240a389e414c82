/** The requests to the server and the types of its answers (docs/openapi.yaml). The page knows nothing else of the server. */

export interface Session {
    role: 'reader' | 'admin';
    password_set: boolean;
    logged_in: boolean;
    token: string;
    program: string;
}

export interface Unconfirmed {
    revision: string;
    seconds_left: number;
}

export interface Status {
    unix_ms: number;
    daemon: {
        running: boolean;
        health: 'ok' | 'degraded' | 'absent';
        error: string | null;
        file: string | null;
        errors: string[];
        warnings: string[];
    };
    interfaces: InterfaceStatus[];
    unconfirmed: Unconfirmed | null;
    running_test: string | null;
    tuning: boolean;
}

export type State = 'new' | 'waiting' | 'shaped' | 'failed' | 'drifted' | 'contested' | 'stopped' | 'unconfirmed';

export interface InterfaceStatus {
    interface: string;
    state: State;
    why: string | null;
    for_seconds: number;
    changes: string[];
    device: { mtu_bytes: number; up: boolean; carrier: boolean } | null;
    owner: string | null;
    download: Direction | null;
    upload: Direction | null;
    autorate?: Autorate | null;
}

/** The state of autorate and its last decisions. */
export interface Autorate {
    download: AutorateDirection;
    upload: AutorateDirection;
    is_probing: boolean;
    reflectors: { address: string; rtt_ms: number | null; answers: number; lost: number }[];
}

export interface AutorateDirection {
    rate_bits_per_sec: number;
    reason: string;
    cuts: number;
}

export interface Direction {
    way: 'egress' | 'ingress';
    device: string;
    kind: string;
    spec: string | null;
    shaped_bits_per_sec: number | null;
    rate_bits_per_sec: number | null;
    delay_avg_us: number | null;
    delay_peak_us: number | null;
    backlog_bytes: number;
    backlog_packets: number;
    drops: number;
    marks: number;
    drops_per_sec: number | null;
    marks_per_sec: number | null;
    tins: Tin[];
}

export interface Tin {
    name: string;
    threshold_bits_per_sec: number;
    rate_bits_per_sec: number | null;
    delay_avg_us: number;
    delay_peak_us: number;
    backlog_bytes: number;
    drops: number;
    marks: number;
    ack_drops: number;
    sparse_flows: number;
    bulk_flows: number;
}

export interface Sample {
    unix_ms: number;
    interfaces: {
        interface: string;
        state: State;
        up: boolean;
        carrier: boolean;
        download: Direction | null;
        upload: Direction | null;
    }[];
}

type Column = (number | null)[];

export interface Columns {
    rate_bits_per_sec: Column;
    shaped_bits_per_sec: Column;
    delay_peak_us: Column;
}

export interface History {
    unix_s: number[];
    interfaces: { interface: string; download: Columns; upload: Columns }[];
}

export interface LogEntry {
    number: number;
    unix_ms: number;
    kind: string;
    interface?: string;
    text: string;
}

export interface Option {
    name: string;
    tab: 'basic' | 'queue' | 'link';
    level: 'basic' | 'advanced' | 'expert';
    type: 'switch' | 'device' | 'rate' | 'choice' | 'integer' | 'time' | 'size' | 'mask' | 'text';
    title: string;
    about: string;
    unit: string | null;
    default: string | null;
    choices: { value: string; about: string }[] | null;
    direction: 'egress' | 'ingress' | null;
}

export interface Link {
    name: string;
    about: string;
    linklayer: 'none' | 'ethernet' | 'atm' | 'ptm';
    overhead_bytes: number;
    mpu_bytes: number;
    source: string;
}

export interface Interfaces {
    suggested: string | null;
    how: string | null;
    devices: { name: string; kind: string | null; default_route: boolean; encapsulations: string[] }[];
}

export interface Config {
    file: string;
    text: string;
    revision: string;
    sections: Section[];
    unconfirmed: Unconfirmed | null;
}

export interface Section {
    index: number;
    type: string;
    name: string | null;
    options: { name: string; value: string; list: boolean }[];
}

export interface Change {
    section: number;
    option?: string;
    value?: string | null;
    remove?: boolean;
}

export interface Finding {
    line: number;
    section: number | null;
    option: string | null;
    message: string;
    suggestion: string | null;
}

export interface Check {
    ok: boolean;
    revision: string;
    text: string;
    errors: Finding[];
    warnings: Finding[];
    plans: {
        interface: string;
        script: string;
        commands: string[];
        notes: string[];
        steps: string[] | null;
        steps_error: string | null;
    }[];
    text_diff: string[];
}

export interface Applied {
    revision: string;
    unconfirmed: Unconfirmed | null;
    interfaces: { interface: string; state: State; why: string | null }[];
}

export interface Verdict {
    findings: { severity: string; code: string; text: string }[];
    grade: {
        letter: string;
        added_ms: number;
        strict: string;
        worst_ms?: number;
        rpm_foreign?: number | null;
        rpm_word?: string | null;
    } | null;
}

export interface Summary {
    idle_ms?: number | null;
    latency_median_ms?: number | null;
    latency_p95_ms?: number | null;
    download_mbit?: number;
    upload_mbit?: number;
}

export interface Test {
    id: string;
    state: 'running' | 'done' | 'failed' | 'stopped';
    kind: string;
    host: string;
    title: string | null;
    started_unix_ms: number;
    duration_s: number;
    error: string | null;
    bytes: number | null;
    /** The pictures that are not empty. */
    plots?: Plot[];
    summary: Summary | null;
    verdict: Verdict | null;
    /** The result of a test of kind rpm, which has no file, summary or verdict. */
    responsiveness: Responsiveness | null;
}

export interface Responsiveness {
    draft: string;
    idle_rpm: number | null;
    download: ResponsivenessOf | null;
    upload: ResponsivenessOf | null;
}

export interface ResponsivenessOf {
    rpm: number;
    word: string;
    foreign_rpm: number;
    self_rpm: number;
    mbit: number;
    connections: number;
    confidence: 'low' | 'medium' | 'high';
}

export type Plot = 'all_scaled' | 'ping_cdf' | 'box_combine' | 'totals' | 'per_flow' | 'tcp';

export interface Tests {
    tests: Test[];
    running: string | null;
    most: number;
    kinds: { name: string; about: string }[];
}

export interface TestWanted {
    kind: string;
    duration_s: number;
    host?: string;
    title?: string;
    secret?: string;
    url?: string;
    upload_url?: string;
    reflector?: string;
    insecure?: boolean;
}

export interface Progress {
    stage: 'idle' | 'load' | 'after' | 'collect';
    elapsed_s: number;
    left_s: number;
    download_mbit: number;
    upload_mbit: number;
    rtt_ms: number | null;
}

export interface Comparison {
    runs: { id: string; name: string; summary: Summary | null; verdict: Verdict | null }[];
    differences: {
        from: string;
        to: string;
        figure: string;
        unit: string;
        mean: number;
        interval: number[] | null;
    }[];
}

export interface TuneStep {
    unix_ms: number;
    text: string;
}

export interface Tune {
    state: 'none' | 'running' | 'done' | 'failed' | 'stopped';
    interface: string | null;
    host: string | null;
    target_ms: number | null;
    started_unix_ms: number | null;
    steps: TuneStep[];
    /** The pictures of the search. */
    plots: ('latency' | 'before-download' | 'before-upload' | 'after')[];
    result: {
        interface: string;
        target_ms: number;
        download_kbit: number;
        upload_kbit: number;
        verified?: { idle_ms?: number; added_p95_ms?: number; download_mbit?: number; upload_mbit?: number } | null;
        /** A message if the target is missed. */
        warning?: string | null;
        /** Options that must change so that the shaper counts bytes as the line does. */
        overhead?: { advice: string[] } | null;
        /** The unshaped line in each direction that was searched. */
        found?: { direction: 'down' | 'up'; idle_ms: number; bloat_ms: number; unshaped_mbit: number }[];
    } | null;
    error: string | null;
}

export interface DoctorFinding {
    id: string;
    interface: string | null;
    what: string;
    evidence: string[];
    remedy: string;
    fixable: boolean;
}

export interface Diagnosis {
    findings: DoctorFinding[];
    fixed: DoctorFinding[];
}

export interface AuditEntry {
    unix_ms: number;
    who: string;
    from: string;
    what: string;
    outcome: string;
    before: string | null;
    after: string | null;
}

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
const BASE = 'api/v1/';

/** The time limit of a request: longer than a slow router takes to apply a configuration. */
const PATIENCE_MS = 30_000;

let token = '';

async function ask<T>(method: string, path: string, body?: unknown, isSecondTry = false): Promise<T> {
    const headers: Record<string, string> = {};
    if (method !== 'GET') headers['X-SQM-Token'] = token;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    let answer: Response;
    try {
        answer = await fetch(BASE + path, {
            method,
            headers,
            signal: AbortSignal.timeout(PATIENCE_MS),
            ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
    } catch {
        throw new Refusal(0, 'no-answer', 'no answer');
    }
    if (answer.ok) {
        const isJson = answer.headers.get('Content-Type')?.includes('json');
        return (isJson ? await answer.json() : undefined) as T;
    }
    const problem = await answer.json().catch(() => ({}));
    // A server that has been restarted no longer knows its earlier tokens.
    if (answer.status === 403 && method !== 'GET' && !isSecondTry && path !== 'session') {
        const before = token;
        await session();
        if (token !== before) return ask(method, path, body, true);
    }
    throw new Refusal(
        answer.status,
        problem.code ?? '',
        problem.message ?? `${answer.status} ${answer.statusText}`,
        problem.findings ?? [],
        Number(answer.headers.get('Retry-After') ?? 0),
    );
}

async function session(method = 'GET', body?: unknown): Promise<Session> {
    const answer = await ask<Session | undefined>(method, 'session', body);
    if (!answer) return session();
    token = answer.token;
    return answer;
}

const edit = (changes: Change[] | string) => (typeof changes === 'string' ? { text: changes } : { changes });

export const api = {
    session,
    logIn: (password: string) => session('POST', { password }),
    logOut: () => session('DELETE'),
    status: () => ask<Status>('GET', 'status'),
    history: (seconds: number, points: number) => ask<History>('GET', `history?seconds=${seconds}&points=${points}`),
    options: () => ask<{ options: Option[] }>('GET', 'options').then((answer) => answer.options),
    links: () => ask<{ links: Link[] }>('GET', 'links').then((answer) => answer.links),
    interfaces: () => ask<Interfaces>('GET', 'interfaces'),
    config: () => ask<Config>('GET', 'config'),
    /** Validates a whole configuration (`text`) or changes to the current one. */
    check: (changes: Change[] | string) => ask<Check>('POST', 'config/check', edit(changes)),
    apply: (revision: string, changes: Change[] | string) => ask<Applied>('PUT', 'config', { revision, ...edit(changes) }),
    confirm: () => ask<Applied>('POST', 'config/confirm'),
    revert: () => ask<Applied>('POST', 'config/revert'),
    tests: () => ask<Tests>('GET', 'tests'),
    test: (id: string) => ask<Test>('GET', `tests/${id}`),
    startTest: (wanted: TestWanted) => ask<Test>('POST', 'tests', wanted),
    stopTest: (id: string) => ask<void>('POST', `tests/${id}/stop`),
    deleteTest: (id: string) => ask<void>('DELETE', `tests/${id}`),
    compare: (ids: string[]) => ask<Comparison>('GET', `compare?ids=${ids.join(',')}`),
    tune: () => ask<Tune>('GET', 'tune'),
    startTune: (wanted: { host: string; interface: string; target_ms: number; secret?: string }) =>
        ask<Tune>('POST', 'tune', wanted),
    stopTune: () => ask<void>('POST', 'tune/stop'),
    acceptTune: (revision: string) => ask<Applied>('POST', 'tune/accept', { revision }),
    doctor: () => ask<Diagnosis>('GET', 'doctor'),
    fix: () => ask<Diagnosis>('POST', 'doctor/fix'),
    audit: () => ask<{ entries: AuditEntry[] }>('GET', 'audit').then((answer) => answer.entries),
};

/** URLs of links and pictures. */
export const address = {
    file: (id: string) => `${BASE}tests/${id}/result.flent.gz`,
    plot: (id: string, plot: string) => `${BASE}tests/${id}/plots/${plot}.svg`,
    comparison: (ids: string[], plot: string) => `${BASE}compare/${plot}.svg?ids=${ids.join(',')}`,
    tune: (plot: string) => `${BASE}tune/plots/${plot}.svg`,
    report: `${BASE}report`,
};

/** Receives server-sent events until the returned function is called. The browser reconnects by itself. */
export function follow(
    path: string,
    on: Record<string, (data: never) => void>,
    heard: (connected: boolean) => void = () => {},
): () => void {
    const source = new EventSource(BASE + path);
    source.onopen = () => heard(true);
    source.onerror = () => heard(false);
    for (const [name, listener] of Object.entries(on)) {
        source.addEventListener(name, (event) => listener(JSON.parse(event.data) as never));
    }
    return () => source.close();
}
