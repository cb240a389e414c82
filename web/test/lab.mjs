/** The lab with `sqm daemon` and `sqm web` on its router, and a forwarded port for a browser on this machine. */

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const TARGET = process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL('../../target', import.meta.url));
const PROGRAM = process.env.SQM_LAB ?? join(TARGET, 'debug', 'sqm-lab');

/**
 * The kernel of `make lab-kernel`, in real time. Debian's kernel loses registers on processors with AMX, which breaks
 * compression.
 */
const KERNEL = process.env.SQM_LAB_KERNEL ?? join(homedir(), '.cache/sqm/lab/linux-virtual-time');

/** The lab's server beyond the line. */
export const SERVER = '10.66.0.2';

const run = promisify(execFile);

export class Lab {
    static async boot(line) {
        assert.ok(existsSync(PROGRAM), `${PROGRAM} is missing: make web && cargo build -p sqm`);
        const lab = new Lab();
        // A separate lab, so that one that already runs is not disturbed.
        lab.folder = await mkdtemp(join(tmpdir(), 'sqm-web-lab-'));
        await lab.lab('up', '--line', line, '--clock', 'wall');
        return lab;
    }

    async lab(...words) {
        const { stdout } = await run(PROGRAM, words, { env: this.#environment() });
        return stdout;
    }

    #environment() {
        return { ...process.env, XDG_RUNTIME_DIR: this.folder, SQM_LAB_KERNEL: KERNEL };
    }

    /** Runs a shell script on a host of the lab. */
    on(host, script) {
        return this.lab('run', host, '--', 'sh', '-euc', script);
    }

    /** Starts a program on a host and returns once it listens on that port. */
    async serve(host, port, command) {
        const hex = port.toString(16).toUpperCase().padStart(4, '0');
        await this.on(
            host,
            `(${command} >/run/${host}-${port}.log 2>&1 </dev/null &)
             for _ in $(seq 300); do grep -qs ':${hex} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.1; done
             cat /run/${host}-${port}.log >&2; exit 1`,
        );
    }

    /** Forwards a port for a browser; returns the address on this machine that leads to the port of that host. */
    async forward(host, port) {
        this.way = spawn(PROGRAM, ['forward', host, String(port), '--from', String(port)], {
            env: this.#environment(),
            stdio: ['ignore', 'pipe', 'inherit'],
        });
        const [line] = await once(createInterface(this.way.stdout), 'line');
        return `${line.split(' ')[0]}/`;
    }

    /** Ends the forwarding, as a cut cable would; programs in the lab continue. */
    async cut() {
        if (!this.way) return;
        this.way.kill('SIGKILL');
        await once(this.way, 'exit');
        this.way = null;
    }

    async down() {
        await this.cut();
        await this.lab('down');
        await rm(this.folder, { recursive: true, force: true });
    }
}
