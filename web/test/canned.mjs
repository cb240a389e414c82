/** The mock's answers: a small part of the real server's. */

const option = (name, tab, level, type, title, more = {}) => ({
    name, tab, level, type, title, about: `What ${name} does, and when one touches it.`,
    unit: null, default: null, least: null, most: null, choices: null, direction: null, ...more,
});

const words = (...all) => all.map((value) => ({ value, about: '' }));

export const OPTIONS = [
    option('enabled', 'basic', 'basic', 'switch', 'Shape this line', { default: '0' }),
    option('interface', 'basic', 'basic', 'device', 'Interface'),
    option('download', 'basic', 'basic', 'rate', 'Download speed'),
    option('upload', 'basic', 'basic', 'rate', 'Upload speed'),
    option('facing', 'basic', 'advanced', 'choice', 'The device leads to', {
        default: 'internet',
        choices: [
            { value: 'internet', about: 'the internet' },
            { value: 'lan', about: 'the home' },
        ],
    }),
    option('script', 'queue', 'basic', 'choice', 'Setup script', {
        choices: [
            { value: 'best_of_cake.qos', about: 'CAKE, each direction in its own way: what this program recommends' },
            { value: 'piece_of_cake.qos', about: 'CAKE with one tin' },
            { value: 'simple.qos', about: 'HTB with three classes' },
        ],
    }),
    option('qdisc', 'queue', 'advanced', 'choice', 'Queueing discipline', { default: 'fq_codel', choices: words('fq_codel', 'cake', 'codel') }),
    option('squash_dscp', 'queue', 'advanced', 'switch', 'Erase marks of what arrives'),
    option('ilimit', 'queue', 'expert', 'integer', 'Queue limit for what arrives', { unit: 'packets', least: 1 }),
    option('itarget', 'queue', 'expert', 'time', 'Delay target for what arrives', { choices: words('auto', 'default') }),
    option('eqdisc_opts', 'queue', 'expert', 'text', 'More words for the queue of what leaves'),
    option('cake_rtt', 'queue', 'advanced', 'time', 'Round-trip time', { choices: words('regional', 'internet', 'satellite') }),
    option('egress_cake_rtt', 'queue', 'expert', 'time', 'Round-trip time', { choices: words('regional', 'internet'), direction: 'egress' }),
    option('link', 'link', 'basic', 'choice', 'Kind of line', { choices: words('vdsl2-pppoe', 'docsis', 'adsl') }),
    option('linklayer', 'link', 'advanced', 'choice', 'Framing', { choices: words('none', 'ethernet', 'atm', 'ptm') }),
    option('overhead', 'link', 'advanced', 'integer', 'Overhead', { unit: 'bytes', least: -1500, most: 1500 }),
    option('tcMPU', 'link', 'advanced', 'integer', 'Smallest packet', { unit: 'bytes', least: 0 }),
];

export const LINKS = [
    ['vdsl2', 'VDSL2 or G.fast, IP over Ethernet', 'ptm', 22, 64],
    ['vdsl2-pppoe', 'VDSL2 or G.fast with PPPoE', 'ptm', 30, 64],
    ['adsl', 'ADSL, encapsulation not known', 'atm', 44, 0],
    ['docsis', 'cable', 'ethernet', 18, 64],
    ['unknown', 'kind of line not known', 'atm', 44, 0],
    ['ethernet', 'plain Ethernet as the bottleneck', 'ethernet', 38, 84],
].map(([name, about, linklayer, overhead_bytes, mpu_bytes]) => ({
    name, about, linklayer, overhead_bytes, mpu_bytes, counts_vlan: false, counts_pppoe: name.includes('pppoe'),
    source: 'ITU-T G.992.3 annex N, tc-cake(8)', on_the_line_bytes: 1500 + overhead_bytes,
}));

const use = (name, qoo) => ({
    name, qoo, quality: qoo >= 75 ? 'good' : qoo >= 50 ? 'fair' : qoo >= 25 ? 'poor' : 'bad',
    outcome: qoo >= 75 ? 'smooth' : qoo >= 50 ? 'may_stutter' : 'stutters',
});

const grade = (letter, added_ms) => ({
    letter, loaded: ['down', 'up'], mostly: letter === 'F' ? 'up' : null, added_ms, added_p95_ms: added_ms * 1.3, added_p99_ms: added_ms * 1.5, lost: 0,
    decided_by: 'median',
    sentence: letter === 'F'
        ? "Calls, games and remote work will stutter and films may while somebody downloads and uploads at the same time; most of the delay is the upload's"
        : 'Calls, games, films and remote work run smoothly while somebody downloads and uploads at the same time',
    uses: [['calls', 0], ['games', 0], ['films', 58], ['work', 0]].map(([name, qoo]) => use(name, letter === 'F' ? qoo : 100)),
    conventional: letter, conventional_ms: added_ms / 2, strict: letter, worst_ms: added_ms, basis: 'one_way',
    rpm_foreign: 3400, rpm_self: 2100, rpm_word: 'high',
});

/** The part of a grade that a test of responsiveness has, too. */
const loadGrade = (letter, added_ms) => {
    const { conventional, conventional_ms, strict, worst_ms, basis, rpm_foreign, rpm_self, rpm_word, ...of } = grade(letter, added_ms);
    return of;
};

const delay = (median_ms, lost = 0) => ({ median_ms, p95_ms: median_ms === null ? null : median_ms * 1.2, jitter_ms: median_ms === null ? null : 0.4, lost });

/** The phases of a test; the last one is the idle line after the load. */
const phases = (loaded_ms) => [
    [[], null, null, 14.2], [['down'], 79.4, null, loaded_ms * 0.8], [['up'], null, 35.1, loaded_ms], [['down', 'up'], 62.3, 31.8, loaded_ms * 1.1], [[], null, null, 14.4],
].map(([loaded, download_mbit, upload_mbit, median_ms], n) => ({
    loaded, from_ms: n * 10_000, to_ms: n * 10_000 + 5000, download_mbit, upload_mbit, sent: 51, round_trip: delay(median_ms, n === 3 ? 2 : 0), down: delay(null), up: delay(null),
}));

const test = (id, title, letter, added_ms, latency_median_ms, latency_p95_ms) => ({
    id, state: 'done', kind: 'three_phases', host: 'sqm.example.net', title, started_unix_ms: 1_763_000_000_000, duration_s: 30, error: null, bytes: 84_211,
    plots: ['all_scaled', 'ping_cdf', 'box_combine', 'totals'], responsiveness: null, pair: null,
    summary: { idle_ms: 14.2, latency_median_ms, latency_p95_ms, download_mbit: 79.4, upload_mbit: 35.1, phases: phases(latency_median_ms) },
    verdict: { findings: [], grade: grade(letter, added_ms) },
});

export const TESTS = [
    test('20260102T020304-00000002', 'with sqm', 'A+', 2.3, 16.5, 18.9),
    test('20260101T020304-00000001', 'before', 'F', 412.9, 427.1, 530.4),
    { ...test('20251231T020304-00000003', null, 'A', 1, 1, 1), state: 'failed', error: 'sqm.example.net: no answer on port 35353', summary: null, verdict: null, bytes: null },
];

const direction = (rpm, word, foreign_rpm, self_rpm, mbit, confidence) => ({
    rpm, word, foreign_rpm, self_rpm, mbit, connections: 8, foreign_probes: 190, self_probes: 240, confidence,
});

/** A result of another kind, which has no file. */
export const RPM_TEST = {
    ...TESTS[0], id: '20251230T020304-00000004', kind: 'rpm', host: 'rpm.example.net', title: 'responsiveness', duration_s: 20,
    bytes: null, plots: [], summary: null, verdict: null,
    responsiveness: {
        draft: 'draft-ietf-ippm-responsiveness-09', host: 'rpm.example.net', idle_rpm: 3912.4, grade: loadGrade('F', 131.4),
        download: direction(412.6, 'fair', 601.2, 224.1, 78.3, 'high'), upload: direction(1893.1, 'good', 2441.8, 1344.4, 34.6, 'medium'),
    },
};

export const TUNE_STEPS = [
    'download: unshaped: 92.10 Mbit/s, load adds 412.0 ms',
    'download: 88.40 Mbit/s: standing queue 9.8 ms, above target',
    'download: 85.60 Mbit/s: standing queue 2.1 ms',
    'upload: 36.40 Mbit/s: standing queue 1.4 ms',
    'both: with both directions loaded, load adds 3.4 ms',
];

/** A picture for each width: `sheet` in the query of the request. */
export const PICTURES = {
    wide: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 384"><style>path{fill:none;stroke:#0072b2;stroke-width:3}</style>
<rect width="960" height="384" fill="#fff"/><path d="M20 340 C 300 330 350 90 930 40"/></svg>`,
    narrow: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 240"><style>path{fill:none;stroke:#0072b2;stroke-width:3}</style>
<rect width="300" height="240" fill="#fff"/><path d="M20 200 C 100 190 110 60 280 30"/></svg>`,
};

const NOW = 1_800_000_000;

/** A router of a fleet. */
const router = (name, group, site, state, reason, felt = [null, null, null, null], revisions = [7, 7]) => ({
    router: name, group, site, state, reason, wanted: revisions[0], in_force: revisions[1],
    before_grade: felt[0], before_p95_ms: felt[1], after_grade: felt[2], after_p95_ms: felt[3],
    last_seen_unix_s: state === 'never seen' ? null : NOW - (state === 'silent' ? 7300 : 20),
    sqm_version: '0.1.0', hardware: 'GL.iNet GL-MT6000',
});

const WENT = 'under load the 95th percentile of the added round trip went from';

export const FLEET = {
    server: 'tls://hub.example.net:4222', now_unix_s: NOW, read_unix_s: NOW, error: null,
    routers: [
        router('r1', 'berlin', 'mitte', 'kept', `${WENT} 212.4 ms to 11.2 ms`, ['C', 212.4, 'A', 11.2]),
        router('r2', 'berlin', 'mitte', 'rolled back', `${WENT} 4.1 ms to 1204.8 ms`, ['A+', 4.1, 'F', 1204.8], [7, 6]),
        router('r3', 'berlin', 'wedding', 'unjudged', 'too little load for a verdict: 3 s under load before the change and 0 s after it, where 20 s are needed'),
        router('r4', 'hamburg', null, 'refused', 'its signature is wrong: it was altered after it was signed', undefined, [7, 6]),
        router('r5', 'hamburg', null, 'silent', 'last heard 2 h ago', undefined, [7, 6]),
        router('r6', null, null, 'never seen', 'it has not connected yet', undefined, [7, null]),
    ],
    places: [
        { group: null, site: null, routers: 1, states: [{ state: 'never seen', routers: 1 }], in_force: [{ revision: null, routers: 1 }] },
        { group: 'berlin', site: 'mitte', routers: 2, states: [{ state: 'kept', routers: 1 }, { state: 'rolled back', routers: 1 }], in_force: [{ revision: 6, routers: 1 }, { revision: 7, routers: 1 }] },
        { group: 'berlin', site: 'wedding', routers: 1, states: [{ state: 'unjudged', routers: 1 }], in_force: [{ revision: 7, routers: 1 }] },
        { group: 'hamburg', site: null, routers: 2, states: [{ state: 'refused', routers: 1 }, { state: 'silent', routers: 1 }], in_force: [{ revision: 6, routers: 2 }] },
    ],
    roll_outs: [
        { name: 'evening', state: 'running', text: 'step 2 of 4: 3 routers: 1 busy, 2 kept it', revision: 7, created_unix_s: NOW - 3600, routers: 12 },
        { name: 'too-fast', state: 'halted', text: 'halted in step 2 of 4: 3 of 3 routers of this step failed (3 rolled the document back; unjudged ones are not counted): r1, r2, r3', revision: 5, created_unix_s: NOW - 90_000, routers: 12 },
    ],
};

export const FLEET_ENTRIES = [
    { at: '2027-01-15T07:58:00Z', kind: 'report', by: 'router', key: null, revision: 7, text: `revision 7: rolled back: ${WENT} 4.1 ms to 1204.8 ms` },
    { at: '2027-01-15T07:50:00Z', kind: 'document', by: 'operator', key: `UABC${'D'.repeat(48)}WXYZ`, revision: 7, text: 'revision 7' },
    { at: '2027-01-14T07:50:00Z', kind: 'document', by: 'operator', key: null, revision: null, text: 'routers refuse it: its signature is wrong: it was altered after it was signed' },
];
