/**
 * A mock of `sqm web` for tests of the page itself: serves web/dist with the server's content policy, and canned answers
 * as docs/openapi.yaml describes them. Its validator knows a few mistakes; lab.test.mjs uses the real one.
 */

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LINKS, OPTIONS, PICTURES, TESTS, TUNE_STEPS } from './canned.mjs';
import { judgeAnswer, judgeEvent } from './contract.mjs';

const DIST = fileURLToPath(new URL('../dist/', import.meta.url));

const TYPES = {
    '.html': 'text/html; charset=utf-8',
    '.js': 'text/javascript',
    '.css': 'text/css',
    '.svg': 'image/svg+xml',
    '.txt': 'text/plain; charset=utf-8',
};

const POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

export class Mock {
    /** Settings for a test: the user, the line's faults, the time for a confirmation. */
    role = 'admin';
    passwordSet = false;
    state = 'shaped';
    daemon = true;
    confirmSeconds = 60;
    tests = [...TESTS];
    findings = [];
    audit = [];
    tune = { state: 'none', interface: null, host: null, target_ms: null, started_unix_ms: null, steps: [], result: null, plots: [], error: null };
    /** What the page of a fleet shows; null: this is a router. */
    fleet = null;
    fleetEntries = [];
    /** Requests that made changes, for tests to check. */
    changes = [];
    /** Answers of this mock that violate docs/openapi.yaml. */
    wrong = [];
    /** While true, no request is answered, as if the line were cut. */
    isCut = false;
    /** Tests fail before the page listens: their stream is refused, as by the real server. */
    failsTests = false;
    /** A running test stops at this second of its 40. */
    lastSecond = Infinity;

    #text = '';
    #before = null;
    #streams = new Set();

    constructor(text = '') {
        this.#text = text;
        this.server = createServer((request, response) => {
            this.#answer(request, response).catch((error) => {
                this.wrong.push(String(error));
                response.writeHead(500).end(String(error));
            });
        });
    }

    async listen() {
        await new Promise((done) => this.server.listen(0, '127.0.0.1', done));
        this.url = `http://127.0.0.1:${this.server.address().port}/`;
        return this;
    }

    close() {
        clearTimeout(this.#before?.timer);
        for (const end of this.#streams) end();
        this.server.closeAllConnections();
        this.server.close();
    }

    /** Cuts the line: ends all connections. */
    cut() {
        this.isCut = true;
        this.server.closeAllConnections();
    }

    /** The time for the confirmation of a change is over. */
    expire() {
        this.#revert();
    }

    get text() {
        return this.#text;
    }

    /** Another program writes the configuration. */
    write(text) {
        this.#text = text;
    }

    async #answer(request, response) {
        if (this.isCut) return request.socket.destroy();
        const url = new URL(request.url, 'http://mock');
        response.setHeader('Content-Security-Policy', POLICY);
        response.setHeader('X-Content-Type-Options', 'nosniff');
        if (!url.pathname.startsWith('/api/v1/')) return this.#file(url.pathname, response);
        const body = await read(request);
        const path = url.pathname.slice('/api/v1/'.length);
        response.request = { method: request.method, path };
        const isChange = request.method !== 'GET' && path !== 'config/check' && path !== 'config/rates' && path !== 'session';
        if (request.method !== 'GET' && request.headers['x-sqm-token'] !== 'token') {
            return problem(response, 403, 'forbidden', 'the token is missing');
        }
        const isOpen = request.method === 'GET' || path === 'session';
        if (!isOpen && this.role !== 'admin') return problem(response, 403, 'forbidden', 'log in first');
        if (isChange) this.changes.push([request.method, path, body]);
        return this.#route(`${request.method} ${path}`, url, body, response);
    }

    async #file(path, response) {
        const file = join(DIST, normalize(path === '/' ? (this.fleet ? '/fleet.html' : '/index.html') : path));
        const bytes = await readFile(file).catch(() => null);
        if (!bytes) return response.writeHead(404).end();
        response.setHeader('Content-Type', TYPES[extname(file)] ?? 'application/octet-stream');
        response.end(bytes);
    }

    #route(what, url, body, response) {
        const test = /^(GET|POST|DELETE) tests\/([^/]+)(?:\/(.+))?$/.exec(what);
        if (test) return this.#test(test[1], test[2], test[3], url, response);
        if (/^GET fleet\//.test(what)) return json(response, { entries: this.fleetEntries });
        if (/^GET (compare|tune\/plots)\//.test(what)) return picture(response, url);
        switch (what) {
            case 'GET session':
                return json(response, this.#session());
            case 'POST session':
                if (body.password === 'locked') {
                    response.setHeader('Retry-After', '30');
                    return problem(response, 429, 'locked', 'too many attempts');
                }
                if (body.password !== 'right') return problem(response, 401, 'wrong-password', 'wrong');
                this.role = 'admin';
                this.isLoggedIn = true;
                return json(response, this.#session());
            case 'DELETE session':
                this.role = 'reader';
                this.isLoggedIn = false;
                return response.writeHead(204).end();
            case 'GET status':
                return json(response, this.#status());
            case 'GET live':
                return this.#stream(response, 200, () => ['sample', this.#sample()]);
            case 'GET history':
                return json(response, history(Number(url.searchParams.get('seconds')), this.#names()));
            case 'GET events':
                return this.#stream(response, 0, (n) => {
                    const text = ['set up: 7 steps', 'the line lost its carrier', 'repaired: the root queue was replaced'][n];
                    return text && ['changed', { number: n, unix_ms: 1_763_000_000_000 + n * 60_000, kind: 'changed', interface: 'pppoe-wan', text }];
                });
            case 'GET options':
                return json(response, { options: OPTIONS });
            case 'GET links':
                return json(response, { links: LINKS });
            case 'GET interfaces':
                return json(response, INTERFACES);
            case 'GET config':
                return json(response, this.#config());
            case 'POST config/check':
                return json(response, this.#check(body));
            case 'POST config/rates':
                return json(response, { download: lineRate(body.download, body.source), upload: lineRate(body.upload, body.source) });
            case 'PUT config':
                return this.#apply(body, response);
            case 'POST config/confirm':
                clearTimeout(this.#before?.timer);
                this.#before = null;
                return json(response, this.#applied());
            case 'POST config/revert':
                this.#revert();
                return json(response, this.#applied());
            case 'GET tests':
                return json(response, {
                    tests: this.tests,
                    running: this.tests.find(({ state }) => state === 'running')?.id ?? null,
                    most: 50,
                    kinds: [
                        { name: 'three_phases', about: 'downloads alone, uploads alone, then both at once' },
                        { name: 'rrul_be', about: 'both directions, one kind of traffic' },
                        { name: 'rrul', about: 'both directions, four kinds of traffic' },
                    ],
                });
            case 'POST tests': {
                const { without_and_with, ...rest } = body;
                const pair = without_and_with ? { interface: without_and_with, is_shaped: false, other: null } : null;
                const begun = { ...TESTS[0], ...rest, pair, id: `20260102T030405-000000${(10 + this.tests.length).toString(16).padStart(2, '0')}`, title: body.title ?? null, state: 'running', summary: null, verdict: null, bytes: null, started_unix_ms: Date.now() };
                this.tests = [begun, ...this.tests];
                return json(response, begun, 202);
            }
            case 'GET compare':
                return json(response, comparison(url.searchParams.get('ids').split(','), this.tests));
            case 'GET tune':
                return json(response, this.tune);
            case 'POST tune':
                this.tune = { ...this.tune, state: 'running', interface: body.interface, host: body.host, target_ms: body.target_ms, steps: [], result: null };
                return json(response, this.tune, 202);
            case 'GET tune/live':
                return this.#stream(response, 60, (n) => {
                    if (this.tune.state !== 'running') return ['end', this.tune];
                    if (n < TUNE_STEPS.length) {
                        const step = { unix_ms: 1_763_000_000_000 + n * 1000, text: TUNE_STEPS[n] };
                        this.tune.steps = [...this.tune.steps, step];
                        return ['step', step];
                    }
                    this.tune = { ...this.tune, state: 'done', result: { ...TUNED, warning: this.tuneWarning ?? null }, plots: ['latency', 'after'] };
                    return ['end', this.tune];
                });
            case 'POST tune/stop':
                this.tune = { ...this.tune, state: 'stopped' };
                return response.writeHead(202).end();
            case 'POST tune/accept':
                return this.#apply({ revision: body.revision, changes: [
                    { section: 0, option: 'download', value: String(TUNED.download_kbit) },
                    { section: 0, option: 'upload', value: String(TUNED.upload_kbit) },
                ] }, response);
            case 'GET doctor':
                return json(response, { findings: this.findings, fixed: [], unknown: [], checks: 12 });
            case 'POST doctor/fix': {
                const fixed = this.findings.filter(({ fixable }) => fixable);
                this.findings = this.findings.filter(({ fixable }) => !fixable);
                return json(response, { findings: this.findings, fixed, unknown: [], checks: 12 });
            }
            case 'GET fleet':
                if (this.role !== 'admin') return problem(response, 403, 'forbidden', 'log in first');
                return json(response, this.fleet);
            case 'GET audit':
                return json(response, { entries: this.audit });
            case 'GET report':
                response.setHeader('Content-Type', 'text/plain');
                response.setHeader('Content-Disposition', 'attachment; filename="sqm-report.txt"');
                return response.end('report\n');
            default:
                return problem(response, 404, 'not-found', `there is no ${what}`);
        }
    }

    #session() {
        return { role: this.role, password_set: this.passwordSet, logged_in: this.isLoggedIn ?? false, token: 'token', program: '0.0.0', tls: false };
    }

    #names() {
        return sections(this.#text)
            .filter(({ options }) => value(options, 'enabled') === '1')
            .map(({ options }) => value(options, 'interface'));
    }

    #status() {
        return {
            unix_ms: Date.now(),
            daemon: { running: this.daemon, health: this.daemon ? 'ok' : 'absent', error: this.daemon ? null : 'cannot connect to /var/run/sqm/api.sock', program: '0.0.0', file: '/etc/config/sqm', errors: [], warnings: [] },
            interfaces: this.#sample().interfaces.map((one) => ({
                ...one, why: this.state === 'shaped' ? null : 'the kernel refused the change', for_seconds: 4000,
                ...(this.state === 'paused' ? { paused_for_seconds: 41.2 } : {}), applied: 1, repaired: 0, changes: [],
                autorate: this.autorate ?? null, device: { index: 3, mtu_bytes: 1492, up: true, carrier: true }, owner: 'sqm',
            })),
            unconfirmed: this.#unconfirmed(),
            running_test: this.tests.find(({ state }) => state === 'running')?.id ?? null,
            tuning: this.tune.state === 'running',
        };
    }

    #sample() {
        const now = Date.now();
        return {
            unix_ms: now,
            interfaces: this.#names().map((name) => ({
                interface: name, state: this.state, up: true, carrier: true,
                download: direction('ingress', `ifb4${name}`, 84e6, now / 1000),
                upload: direction('egress', name, 38e6, now / 1000 + 40),
            })),
        };
    }

    /** Sends events one after another until there are no more. */
    #stream(response, every, next) {
        response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
        let n = 0;
        const send = () => {
            const event = next(n);
            n += 1;
            if (!event) return false;
            this.#judge(() => judgeEvent(event[0], response.request.path, event[1]));
            response.write(`event: ${event[0]}\ndata: ${JSON.stringify(event[1])}\n\n`);
            if (event[0] === 'end') response.end();
            return event[0] !== 'end';
        };
        const end = () => clearInterval(timer);
        const timer = setInterval(() => send() || end(), every);
        send();
        this.#streams.add(end);
        response.on('close', end);
    }

    /** For a stream, which cannot be answered with an error. */
    #judge(judgement) {
        try {
            judgement();
        } catch (error) {
            this.wrong.push(String(error));
        }
    }

    #test(method, id, part, url, response) {
        const at = this.tests.findIndex((test) => test.id === id);
        const test = this.tests[at];
        if (!test) return problem(response, 404, 'not-found', 'there is no such test');
        if (part?.startsWith('plots/')) return part.includes('tcp') ? problem(response, 404, 'not-found', 'nothing to draw') : picture(response, url);
        if (part === 'live' && this.failsTests) {
            setTimeout(() => {
                this.tests[at] = { ...TESTS[2], id, host: test.host, title: test.title };
            }, 300);
            return problem(response, 409, 'nothing-waits', 'no such test is running');
        }
        if (part === 'live') {
            return this.#stream(response, 50, (n) => {
                const second = Math.min(n, this.lastSecond);
                if (second < 40 && this.tests[at].state === 'running') return ['progress', progress(second)];
                const isFirst = test.pair?.is_shaped === false;
                const kept = { id, host: test.host, title: test.title, pair: test.pair };
                this.tests[at] = { ...TESTS[isFirst ? 1 : 0], ...kept, state: second < 40 ? 'stopped' : 'done' };
                return ['end', isFirst && second >= 40 ? this.#second(at) : this.tests[at]];
            });
        }
        if (part === 'stop') {
            this.tests[at] = { ...test, state: 'stopped' };
            return response.writeHead(202).end();
        }
        if (method === 'DELETE') {
            this.tests = this.tests.filter((other) => other !== test);
            return response.writeHead(204).end();
        }
        return json(response, test);
    }

    /** Begins the second test of a pair, and answers the first one. */
    #second(at) {
        const first = this.tests[at];
        const second = { ...first, id: first.id.replace(/.$/, 'f'), state: 'running', summary: null, verdict: null, bytes: null };
        this.tests[at] = { ...first, pair: { ...first.pair, other: second.id } };
        this.tests = [{ ...second, pair: { ...first.pair, is_shaped: true, other: first.id } }, ...this.tests];
        return this.tests[at + 1];
    }

    #unconfirmed() {
        return this.#before && { revision: revision(this.#text), seconds_left: Math.max(0, (this.#before.until - Date.now()) / 1000) };
    }

    #config() {
        return { file: '/etc/config/sqm', text: this.#text, revision: revision(this.#text), sections: sections(this.#text), unconfirmed: this.#unconfirmed() };
    }

    #check({ text, changes }) {
        const wanted = text ?? changed(this.#text, changes ?? []);
        const all = sections(wanted);
        const errors = all.flatMap(mistakes);
        const removed = this.#text.split('\n').filter((line) => !wanted.split('\n').includes(line));
        const added = wanted.split('\n').filter((line) => !this.#text.split('\n').includes(line));
        return {
            ok: errors.length === 0,
            revision: revision(this.#text),
            text: wanted,
            errors,
            warnings: [],
            plans: errors.length > 0 ? [] : all.filter(({ options }) => value(options, 'enabled') === '1').map(({ options }) => plan(options)),
            text_diff: [...removed.map((line) => `-${line}`), ...added.map((line) => `+${line}`)],
        };
    }

    #apply({ revision: known, text, changes }, response) {
        if (known !== revision(this.#text)) {
            return problem(response, 409, 'conflict', 'the configuration has been changed since it was read', { revision: revision(this.#text) });
        }
        if (this.#before) return problem(response, 409, 'unconfirmed', 'another change waits for its confirmation');
        const check = this.#check({ text, changes });
        if (!check.ok) return problem(response, 422, 'invalid', 'the configuration has errors', { findings: check.errors });
        const seconds = this.confirmSeconds;
        this.#before = { text: this.#text, until: Date.now() + seconds * 1000, timer: setTimeout(() => this.#revert(), seconds * 1000) };
        this.#text = check.text;
        // The answer is lost if the applied change cuts the line.
        if (this.cutsOnApply) return this.cut();
        return json(response, this.#applied());
    }

    #revert() {
        if (!this.#before) return;
        clearTimeout(this.#before.timer);
        this.#text = this.#before.text;
        this.#before = null;
    }

    #applied() {
        return { revision: revision(this.#text), unconfirmed: this.#unconfirmed(), interfaces: [] };
    }
}

export const TUNED = { interface: 'pppoe-wan', target_ms: 5, download_kbit: 91200, upload_kbit: 36400, verified: { idle_ms: 14.1, added_p95_ms: 3.4, download_mbit: 86.2, upload_mbit: 34.3 }, warning: null, overhead: { advice: ['packet sizes show PTM with 30 bytes of overhead, as configured'], options: [] }, found: [{ direction: 'down', idle_ms: 14.2, bloat_ms: 388, unshaped_mbit: 92.1 }, { direction: 'up', idle_ms: 14.2, bloat_ms: 412.9, unshaped_mbit: 37.9 }] };

const INTERFACES = {
    suggested: 'pppoe-wan',
    how: 'the default route leaves through it',
    devices: [
        { name: 'eth0', kind: null, up: true, carrier: true, mtu_bytes: 1500, default_route: false, encapsulations: [], encapsulation_bytes: 0, speed_mbit: 1000 },
        { name: 'pppoe-wan', kind: 'ppp', up: true, carrier: true, mtu_bytes: 1492, default_route: true, encapsulations: ['PPPoE'], encapsulation_bytes: 8, speed_mbit: 1000 },
        { name: 'br-lan', kind: 'bridge', up: true, carrier: true, mtu_bytes: 1500, default_route: false, encapsulations: [], encapsulation_bytes: 0, speed_mbit: 1000 },
    ],
};

async function read(request) {
    let text = '';
    for await (const chunk of request) text += chunk;
    return text ? JSON.parse(text) : {};
}

function json(response, answer, status = 200) {
    judgeAnswer(response.request.method, response.request.path, status, answer);
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer));
}

function problem(response, status, code, message, more = {}) {
    json(response, { code, message, ...more }, status);
}

function picture(response, url) {
    response.writeHead(200, { 'Content-Type': 'image/svg+xml' }).end(PICTURES[url.searchParams.get('sheet')]);
}

const revision = (text) => createHash('sha256').update(text).digest('hex').slice(0, 16);

const value = (options, name) => options.find((option) => option.name === name)?.value ?? '';

function sections(text) {
    const all = [];
    for (const [n, line] of text.split('\n').entries()) {
        const words = /^\s*(config|option)\s+(\S+)(?:\s+'(.*)')?/.exec(line);
        if (words?.[1] === 'config') all.push({ index: all.length, line: n + 1, type: words[2], name: words[3] ?? null, options: [] });
        if (words?.[1] === 'option') all.at(-1)?.options.push({ name: words[2], value: words[3] ?? '', line: n + 1, list: false });
    }
    return all;
}

function changed(text, changes) {
    const all = sections(text).map(({ options }) => new Map(options.map(({ name, value: given }) => [name, given])));
    for (const { section, option, value: given, remove } of changes) {
        if (remove) all[section] = null;
        else {
            all[section] ??= new Map();
            if (given === null) all[section].delete(option);
            else all[section].set(option, given);
        }
    }
    return all
        .filter(Boolean)
        .map((options) => `config queue\n${[...options].map(([name, given]) => `\toption ${name} '${given}'\n`).join('')}`)
        .join('\n');
}

function mistakes({ index, line, options }) {
    const found = [];
    const wrong = (option, message, suggestion = null) => found.push({ line, section: index, option, message, suggestion });
    if (!value(options, 'interface')) wrong('interface', 'missing: name the network device to shape');
    for (const rate of ['download', 'upload']) {
        const given = value(options, rate);
        if (!given) wrong(rate, 'missing, and there is no default: give the line’s rate');
        else if (!/^\d+([kmg]bit)?$/.test(given)) wrong(rate, `'${given}' is not a rate`, given.replace(/mbits$/, 'mbit'));
    }
    for (const { name, value: given } of options) {
        const known = OPTIONS.find((option) => option.name === name);
        if (known?.type === 'integer' && !/^-?\d+$/.test(given)) wrong(name, `'${given}' is not a whole number`);
        if (known?.type === 'time' && !/^\d+(us|ms|s)$/.test(given)) wrong(name, `'${given}' is not a time`);
    }
    return found;
}

/** A few spellings; the real server reads all. */
function lineRate(text, source) {
    const [, number, unit] = /^\s*(\d+)\s*(mbit\/s|mbps|mbit|)\s*$/i.exec(text) ?? [];
    if (unit === undefined) return { line_kbit: null, shaper_kbit: null, error: `'${text}' is not a rate` };
    const kilobits = Number(number) * 1000;
    return { line_kbit: kilobits, shaper_kbit: Math.round(kilobits * (source === 'measured' ? 0.95 : 0.85)), error: null };
}

function plan(options) {
    const name = value(options, 'interface');
    return {
        interface: name,
        script: value(options, 'script'),
        commands: [
            `tc qdisc replace dev ${name} root handle 1: cake bandwidth ${value(options, 'upload')}kbit diffserv4 dual-srchost nat nowash no-ack-filter split-gso rtt 100ms ptm overhead 30 mpu 64`,
            `ip link add ifb4${name} type ifb`,
            `tc qdisc replace dev ifb4${name} root handle 1: cake bandwidth ${value(options, 'download')}kbit besteffort dual-dsthost nat wash ingress rtt 100ms ptm overhead 30 mpu 64`,
        ],
        notes: [],
        steps: [`change cake 1: on ${name}`],
        steps_error: null,
    };
}

/** Counters of a line in use: some browsing, some video, occasional bursts. */
function load(at) {
    const wave = Math.sin(at / 3.1) + Math.sin(at / 7.7) + 0.5 * Math.sin(at * 1.3);
    return Math.min(0.985, Math.max(0.02, 0.45 + 0.35 * wave));
}

function direction(way, device, shaped, at) {
    const share = load(at);
    const delay = share > 0.97 ? 4200 + 900 * Math.sin(at * 3) : 120 + 1500 * share ** 4;
    const tin = (name, part, most) => ({
        name, threshold_bits_per_sec: shaped * most, rate_bits_per_sec: shaped * share * part, delay_avg_us: Math.round(delay * 0.6), delay_peak_us: Math.round(delay),
        backlog_bytes: Math.round(9000 * share), drops: 321, marks: 57, ack_drops: 0, sparse_flows: 3, bulk_flows: 2, unresponsive_flows: 0,
    });
    return {
        way, device, kind: 'cake', spec: null, shaped_bits_per_sec: shaped, rate_bits_per_sec: shaped * share, packets_per_sec: 4000,
        delay_avg_us: Math.round(delay * 0.6), delay_peak_us: Math.round(delay), delay_base_us: 20, backlog_bytes: 9000, backlog_packets: 6,
        drops: 1234, marks: 567, drops_per_sec: share > 0.9 ? 3.2 : 0, marks_per_sec: 0.4,
        tins: way === 'ingress' ? [tin('Best Effort', 1, 1)] : [tin('Bulk', 0.05, 0.0625), tin('Best Effort', 0.7, 1), tin('Video', 0.2, 0.5), tin('Voice', 0.05, 0.25)],
    };
}

function history(seconds, names) {
    const step = Math.max(1, seconds / 600);
    const now = Date.now() / 1000;
    const time = Array.from({ length: Math.floor(seconds / step) }, (_, n) => now - seconds + n * step);
    const columns = (shaped, offset) => ({
        rate_bits_per_sec: time.map((at) => shaped * load(at + offset)),
        shaped_bits_per_sec: time.map(() => shaped),
        delay_avg_us: time.map(() => 300),
        delay_peak_us: time.map((at) => direction('egress', '', shaped, at + offset).delay_peak_us),
        backlog_bytes: time.map(() => 3000),
        drops: time.map(() => 0),
        marks: time.map(() => 0),
    });
    return { unix_s: time, interfaces: names.map((name) => ({ interface: name, download: columns(84e6, 0), upload: columns(38e6, 40) })) };
}

function progress(n) {
    const isLoaded = n > 8 && n < 34;
    const wave = Math.sin(n);
    return {
        stage: n <= 8 ? 'idle' : isLoaded ? 'load' : 'after',
        phase: !isLoaded ? null : n <= 17 ? 'download' : n <= 25 ? 'upload' : 'both',
        elapsed_s: n, left_s: 40 - n,
        download_mbit: isLoaded ? 79 + wave : 0, upload_mbit: isLoaded ? 35 + wave / 2 : 0,
        rtt_ms: isLoaded ? 16 + 2 * wave : 14 + 0.3 * wave,
    };
}

function comparison(ids, tests) {
    const runs = ids.map((id) => tests.find((test) => test.id === id)).map(({ id, title, summary, verdict }) => ({ id, name: title, summary, verdict }));
    return {
        runs,
        differences: [{ from: runs[0].name, to: runs[1].name, figure: 'latency', unit: 'ms', mean: -412.6, interval: null, clear: true }],
    };
}

// `node test/mock.mjs` serves the mock for your own browser.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const mock = await new Mock("config queue\n\toption enabled '1'\n\toption interface 'pppoe-wan'\n\toption download '84000'\n\toption upload '38000'\n\toption script 'best_of_cake.qos'\n\toption link 'vdsl2-pppoe'\n").listen();
    console.log(mock.url);
}
