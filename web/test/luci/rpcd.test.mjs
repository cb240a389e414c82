/** Tests of the rpcd plugin, with stand-ins for OpenWrt's jshn and for the program, which records its arguments. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const PLUGIN = fileURLToPath(new URL('../../../packaging/openwrt/luci-app-sqm/root/usr/libexec/rpcd/sqm', import.meta.url));

/** jshn: reads an object of texts into variables. */
const JSHN = `json_load() { JSHN_INPUT="$1"; }
json_get_var() { eval "$1=\\$(printf '%s' \\"\\$JSHN_INPUT\\" | node -e 'process.stdout.write(JSON.parse(require(\\"fs\\").readFileSync(0))[process.argv[1]] ?? \\"\\")' \\"\\$2\\")"; }
`;

/** Shells differ in what `local` does to a variable of the caller: dash keeps its value, bash and the shell of OpenWrt do not. */
const SHELLS = ['sh', 'bash'];

/** A plugin in a folder of its own, with this program. */
async function plugin(t, program, shell = 'sh') {
    const root = await mkdtemp(join(tmpdir(), 'sqm-rpcd-test-'));
    t.after(() => rm(root, { recursive: true, force: true }));
    await mkdir(join(root, 'run'));
    await mkdir(join(root, 'bin'));
    await writeFile(join(root, 'jshn.sh'), JSHN);
    const source = (await readFile(PLUGIN, 'utf8')).replaceAll('/tmp/', `${root}/`).replaceAll('/usr/share/libubox/jshn.sh', join(root, 'jshn.sh')).replaceAll('/var/run/sqm', join(root, 'run')).replaceAll('/etc/sqm', join(root, 'etc')).replaceAll('/usr/lib/sqm', join(root, 'lib'));
    await writeFile(join(root, 'plugin'), source);
    await writeFile(join(root, 'bin/sqm'), `#!/bin/sh\nprintf '%s\\n' "$@" >>${root}/arguments\n${program}`);
    await chmod(join(root, 'bin/sqm'), 0o755);
    const run = (words, input = '') => new Promise((resolve, reject) => {
        const child = execFile(shell, [join(root, 'plugin'), ...words], { cwd: root, env: { ...process.env, PATH: `${root}/bin:${process.env.PATH}` } }, (error, stdout, stderr) => (error ? reject(new Error(stderr)) : resolve(JSON.parse(stdout))));
        child.stdin.on('error', reject);
        child.stdin.end(`${input}\n`);
    });
    return {
        root,
        call: (method, values = {}) => run(['call', method], JSON.stringify(values)),
        arguments: async () => (await readFile(join(root, 'arguments'), 'utf8').catch(() => '')).split('\n').slice(0, -1),
    };
}

test('an answer of the program is passed on, and so is its error', async (t) => {
    const { call, arguments: given } = await plugin(t, "case \"$*\" in 'status --json') echo '[{\"interface\":\"eth1\"}]' ;; 'status --daemon --json') echo 'sqm: the \"daemon\" is\tnot\nthere \\\\' >&2; exit 1 ;; *) echo 'tc \"a\"\n\ttc b' ;; esac\n");
    assert.deepEqual(await call('status'), { interfaces: [{ interface: 'eth1' }], error: '' });
    assert.deepEqual(await call('daemon'), { daemon: null, error: 'sqm: the "daemon" is\tnot\nthere \\' });
    assert.deepEqual(await call('plan'), { text: 'tc "a"\n\ttc b', error: '' });
    assert.deepEqual(await given(), ['status', '--json', 'status', '--daemon', '--json', 'plan', '--format', 'tc']);
});

for (const shell of SHELLS) test(`a text for the check reaches the program byte for byte (${shell})`, async (t) => {
    const { root, call } = await plugin(t, 'cat >seen; echo "{}"\n', shell);
    const text = "config 'queue'\n\toption 'interface' 'a'\\''; touch x; $(touch x) `touch x` \"\\\\n'";
    await call('check', { text });
    assert.equal(await readFile(join(root, 'seen'), 'utf8'), `${text}\n`);
    await assert.rejects(readFile(join(root, 'x')));
});

test('a host with a character that no name or address has is refused', async (t) => {
    const { root, call, arguments: given } = await plugin(t, '');
    for (const host of ['', '--help', '-4', 'a b', '$(touch x)', '`touch x`', 'a;touch x', "a'b", 'a\nb', '../x', 'a/b', '*', 'a"b', 'ä']) {
        for (const method of ['test', 'tune']) assert.match((await call(method, { host })).error, /is no name or address/, JSON.stringify(host));
    }
    assert.deepEqual(await given(), []);
    await assert.rejects(readFile(join(root, 'x')));
    assert.deepEqual(await call('job'), { kind: null });
});

/** Waits until the job is as wanted; each question starts a process. */
async function until(call, isWanted) {
    for (;;) {
        const job = await call('job');
        if (isWanted(job)) return job;
    }
}

test('a test outlasts its request, shows its progress and ends with its output', async (t) => {
    // The program waits until it may end.
    const { root, call, arguments: given } = await plugin(t, 'case "$1" in test) echo \'warning: a "word"\' >&2; echo \'{"stage":"load","left_s":3}\' >&2; mkfifo wait; read -r go <wait; echo \'Grade A+\' ;; esac\n');
    assert.deepEqual(await call('test', { host: 'fe80::1' }), { error: '' });
    const job = await until(call, ({ progress }) => progress?.stage === 'load');
    assert.deepEqual(job, { kind: 'test', host: 'fe80::1', is_running: true, code: null, progress: { stage: 'load', left_s: 3 }, output: '', messages: 'warning: a "word"' });
    assert.match((await call('tune', { host: 'other' })).error, /is running already/);
    await writeFile(join(root, 'wait'), 'go\n');
    const { code, output } = await until(call, ({ is_running }) => !is_running);
    assert.deepEqual([code, output], [0, 'Grade A+']);
    assert.deepEqual(await given(), ['test', 'fe80::1', '--progress', 'json']);
});

test('a test is stopped', async (t) => {
    // A shell in the background ignores SIGINT, as POSIX says; the program does not.
    const { call } = await plugin(t, 'exec node -e \'process.on("SIGINT", () => process.exit(130)); console.error("{\\"stage\\":\\"idle\\"}"); setInterval(() => {}, 1000)\'\n');
    await call('test', { host: 'server' });
    await until(call, ({ progress }) => progress !== null);
    await call('stop');
    assert.equal((await until(call, ({ is_running }) => !is_running)).code, 130);
});

test('setup scripts of the user\'s own are listed', async (t) => {
    const { root, call } = await plugin(t, 'echo "sqm 0.1.0"\n');
    await mkdir(join(root, 'etc'));
    await mkdir(join(root, 'lib'));
    for (const name of ['etc/mine.tc', 'etc/a "b" $(x).tc', 'etc/other.txt', 'lib/theirs.tc']) await writeFile(join(root, name), '');
    assert.deepEqual((await call('features')).scripts, ['a "b" $(x).tc', 'mine.tc', 'theirs.tc']);
});

test('only the full program has tune', async (t) => {
    const full = await plugin(t, 'echo "sqm 0.1.0"\n');
    assert.deepEqual(await full.call('features'), { version: 'sqm 0.1.0', tune: true, scripts: [] });
    const router = await plugin(t, '[ "$1" != tune ] || exit 2; echo "sqm 0.1.0"\n');
    assert.deepEqual(await router.call('features'), { version: 'sqm 0.1.0', tune: false, scripts: [] });
    // The package sqm-web brings the full program beside that for routers.
    await writeFile(join(router.root, 'bin/sqm-web'), `#!/bin/sh\necho "full $*"\n`);
    await chmod(join(router.root, 'bin/sqm-web'), 0o755);
    assert.deepEqual(await router.call('features'), { version: 'sqm 0.1.0', tune: true, scripts: [] });
    await router.call('tune', { host: 'server' });
    assert.equal((await until(router.call, ({ is_running }) => !is_running)).output, 'full tune server');
});
