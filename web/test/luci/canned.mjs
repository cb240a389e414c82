/** Answers of the object `sqm`, in the form of packaging/openwrt/luci-app-sqm/root/usr/libexec/rpcd/sqm. */

const queue = (device, rate, sent) => ({
    device, kind: 'cake', rate_bits_per_sec: rate, drops: 12, marks: 3, backlog_bytes: 1514, backlog_packets: 1,
    delay_peak_us: 2900, delay_avg_us: 810, delay_base_us: 4,
    qdiscs: [{ handle: '1:', parent: null, kind: 'cake', spec: 'cake', statistics: { sent_bytes: sent, sent_packets: 1000, drops: 12, overlimits: 0, requeues: 0, backlog_bytes: 1514, backlog_packets: 1 } }],
    classes: [],
});

/** The status of one interface; its counters grow with `n`. */
export const status = (n, interfaceName = 'eth1') => ({
    interfaces: [{ version: 1, interface: interfaceName, owner: 'sqm', egress: queue(interfaceName, 10e6, n * 1_000_000), ingress: queue(`ifb4${interfaceName}`, 85e6, n * 9_000_000) }],
    error: "warning: /etc/config/sqm:7: option 'blorp': ignored: sqm has no such option\nsqm: there is no network device eth2",
});

export const daemon = {
    daemon: {
        version: 1, program: '0.1.0', process: 1234, health: 'degraded',
        configuration: { file: '/etc/config/sqm', errors: ["/etc/config/sqm:4: option 'download': '85mbt' is not a rate"], warnings: ["/etc/config/sqm:7: option 'blorp': ignored: sqm has no such option"] },
        interfaces: [
            { interface: 'eth1', state: 'shaped', why: null, for_seconds: 3723.4, applied: 1, repaired: 2, changes: [], device: null, rate_controller: { directions: ['download'], for_seconds: 60, silent_for_seconds: 1, ends_after_seconds: 600 } },
            { interface: 'eth2', state: 'waiting', why: 'there is no device eth2', for_seconds: 12, applied: 0, repaired: 0, changes: [], device: null },
        ],
    },
    error: '',
};

export const doctor = {
    doctor: {
        version: 1, fixed: [], unknown: ['offloads of eth1: no permission'], checks: 22,
        findings: [{ id: 'no-device', interface: 'eth2', what: 'there is no network device eth2: nothing is shaped there', evidence: ['the default route goes through eth1'], remedy: 'check the name', fix: null }],
    },
    error: '',
};

export const plan = { text: 'tc qdisc add dev eth1 root handle 1: cake bandwidth 10mbit besteffort triple-isolate nat nowash no-ack-filter split-gso rtt 100ms raw overhead 0\n', error: '' };

export const running = {
    kind: 'test', host: 'server.example', is_running: true, code: null,
    progress: { stage: 'load', phase: 'down', elapsed_s: 10.2, left_s: 29.8, download_mbit: 84.1, upload_mbit: 0.2, rtt_ms: 14.9 }, output: '', messages: '',
};

export const done = { kind: 'test', host: 'server.example', is_running: false, code: 0, progress: null, output: 'Download   84.1 Mbit/s\nGrade      A+\n', messages: '' };

/** Nothing is wrong with any text. */
export const fine = { check: { version: 1, errors: [], warnings: [] }, error: '' };
