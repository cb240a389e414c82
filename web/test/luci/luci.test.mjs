/** Tests of the LuCI application in Chromium, with a stand-in for LuCI's modules and answers as rpcd gives them. */

import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { accessible, browse, fits, open, shot } from '../browser.mjs';
import { daemon, doctor, done, fine, plan, running, status } from './canned.mjs';
import { parsed, Router } from './router.mjs';
import { germanTexts } from './texts.mjs';

const ROOT = new URL('../../../', import.meta.url);

let chromium;
before(async () => {
    chromium = await browse();
});
after(() => chromium.close());

/** Opens a view on a router with this configuration. `answers` are those of the object `sqm`, by method. */
async function show(t, text, answers = {}, options = {}) {
    const sqm = answers === null ? undefined : (method, values) => {
        const answer = { check: fine, ...answers }[method];
        return typeof answer === 'function' ? answer(values) : answer;
    };
    const router = await new Router(text, sqm, options).listen();
    t.after(() => router.close());
    const page = await open(chromium.browser, router.url, options);
    await page.locator('#view > :not(.spinning)').first().waitFor();
    return { router, page };
}

/** The field of an option of a section. */
const field = (page, section, option) => page.locator(`[data-field="cbid.sqm.${section}.${option}"]`);
const control = (page, section, option) => field(page, section, option).locator('input, select');
const values = (page, section, options) => Promise.all(options.map((option) => control(page, section, option).inputValue()));

/** Saves the form, and waits until it has been read again. */
async function save(page) {
    await page.evaluate(() => document.querySelector('.cbi-map h2').setAttribute('data-old', ''));
    await page.locator('.cbi-button-save').click();
    await page.locator('.cbi-map h2:not([data-old])').waitFor();
}

const ODD = `
config queue 'wan'
	option enabled 'on'
	option interface 'eth1'
	option download '85mbit'
	option upload '10000'
	option qdisc 'fq_codel'
	option script 'my_own.qos'
	option squash_dscp 'maybe'
	option use_mq 'sometimes'
	option linklayer 'none'
	option cake_rtt '42ms'
	option unknown_to_sqm "it's \\"so\\""
	list autorate_reflectors '9.9.9.9'
	list autorate_reflectors '1.1.1.1'

config daemon
	option drift 'report'

config queue
	option interface 'eth2'
	option download '20000'
	option upload '2000'
	option script 'piece_of_cake.qos'
	option squash_ingress '0'
`;

test('values that the form does not know are shown, and are written back as they were', async (t) => {
    const { router, page } = await show(t, ODD);
    assert.deepEqual(await values(page, 'wan', ['download', 'upload', 'script', 'squash_dscp', 'use_mq', 'cake_rtt', 'autorate_reflectors']), ['85mbit', '10000', 'my_own.qos', 'maybe', 'sometimes', '42ms', '9.9.9.9 1.1.1.1']);
    assert.ok(await control(page, 'wan', 'enabled').isChecked());
    assert.equal(await control(page, 'cfg03abcd', 'enabled').isChecked(), false);
    await save(page);
    assert.deepEqual(router.changes, []);
    await page.finish();
});

test('only an edited option is written', async (t) => {
    const { router, page } = await show(t, ODD);
    await control(page, 'wan', 'upload').fill('12mbit');
    await control(page, 'cfg03abcd', 'enabled').check();
    await save(page);
    assert.deepEqual(router.changes.map(([method, { section, values: written }]) => [method, section, written]), [
        ['set', 'wan', { upload: '12mbit' }],
        ['set', 'cfg03abcd', { enabled: '1' }],
    ]);
    assert.equal(await control(page, 'wan', 'upload').inputValue(), '12mbit');
    router.changes.length = 0;
    // An emptied field takes its option out, and a list stays a list.
    await page.getByRole('link', { name: 'Queue Discipline' }).first().click();
    await control(page, 'wan', 'qdisc').selectOption('');
    await page.getByRole('link', { name: 'Basic Settings' }).first().click();
    await control(page, 'wan', 'autorate_reflectors').fill('9.9.9.9 8.8.8.8');
    await save(page);
    assert.deepEqual(router.sections.wan.autorate_reflectors, ['9.9.9.9', '8.8.8.8']);
    assert.equal(router.sections.wan.qdisc, undefined);
    assert.equal(router.sections.wan.unknown_to_sqm, 'it\'s "so"');
    assert.equal(router.changes.length, 2, JSON.stringify(router.changes));
    await page.finish();
});

/** The sections in the tests of the program: texts in its sources, and files. Values that a test computes are left out. */
async function sectionsOfTests() {
    const names = (await readdir(new URL('crates/', ROOT), { recursive: true })).filter((name) => /\.(rs|uci)$/.test(name)).map((name) => `crates/${name}`);
    const found = new Map();
    const seen = new Set();
    for (const name of [...names, 'fuzz/seeds/uci/config']) {
        const source = await readFile(new URL(name, ROOT), 'utf8');
        const texts = name.endsWith('.rs') ? [...source.matchAll(/"((?:[^"\\]|\\[^])*config queue(?:[^"\\]|\\[^])*)"/g)].map(([, text]) => text) : [source];
        for (const literal of texts) {
            const text = name.endsWith('.rs') ? literal.replace(/\\\n\s*/g, '').replaceAll('\\n', '\n').replaceAll('\\t', '\t').replaceAll('\\"', '"') : literal;
            for (const [section] of text.matchAll(/^config queue.*\n(?:[ \t]+(?:option|list) .*\n?)+/gm)) {
                const lines = section.split('\n').slice(1).map((line) => line.trim()).filter((line) => /^(option|list) [\w'"]+ \S/.test(line) && !/[{}\\;]|^[^']*'[^']*$/.test(line));
                const fresh = lines.filter((line) => !seen.has(line));
                fresh.forEach((line) => seen.add(line));
                if (fresh.length > 0) found.set(lines.join('\n'), lines);
            }
        }
    }
    return [...found.values()].map((lines) => `config queue\n${lines.join('\n')}\n`);
}

test('every section of the tests of the program is written back unchanged', async (t) => {
    const sections = await sectionsOfTests();
    assert.ok(sections.length > 60, `${sections.length} sections`);
    console.log(`${sections.length} sections`);
    // As many as a router can have; a page with all of them would be slow.
    for (let from = 0; from < sections.length; from += 12) {
        const { router, page } = await show(t, sections.slice(from, from + 12).join(''));
        const before = structuredClone(router.sections);
        await save(page);
        assert.deepEqual(router.changes, []);
        assert.deepEqual(router.sections, before);
        await page.finish();
    }
});

/** The program's answer about a download that is no rate. */
const wrong = ({ text }) => {
    const sections = Object.values(parsed(text));
    const errors = sections.flatMap(({ download }, section) => (/^\d+(mbit)?$/.test(download ?? '0') ? [] : [{ line: 1, section, option: 'download', message: `'${download}' is not a rate`, suggestion: '85mbit' }]));
    return { check: { version: 1, errors, warnings: [] }, error: '' };
};

test('an error of the program is shown at its section and field, and such an edit is not saved', async (t) => {
    const { router, page } = await show(t, ODD, { check: wrong });
    await control(page, 'cfg03abcd', 'download').fill('85mbt');
    await control(page, 'cfg03abcd', 'download').press('Tab');
    await page.locator('.sqm-findings[data-section="cfg03abcd"] li').waitFor();
    assert.equal(await page.locator('.sqm-findings[data-section="cfg03abcd"]').innerText(), 'download: \'85mbt\' is not a rate. Did you mean "85mbit"?');
    assert.equal(await page.locator('.sqm-findings[data-section="wan"]').innerText(), '');
    assert.equal(await control(page, 'cfg03abcd', 'download').getAttribute('aria-invalid'), 'true');
    await page.locator('.cbi-button-save').click();
    await page.getByRole('dialog').waitFor();
    assert.match(await page.getByRole('dialog').innerText(), /'85mbt' is not a rate/);
    await page.evaluate(() => document.addEventListener('stand-in-apply', () => (globalThis.isApplied = true)));
    await page.getByRole('button', { name: 'Dismiss' }).click();
    await page.locator('.cbi-button-apply').click();
    await page.getByRole('dialog').waitFor();
    assert.equal(await page.evaluate(() => globalThis.isApplied), undefined);
    await shot(page, 'luci-refused', false);
    assert.deepEqual(router.changes, []);
    await page.getByRole('button', { name: 'Dismiss' }).click();
    await control(page, 'cfg03abcd', 'download').fill('85mbit');
    await page.locator('.cbi-button-apply').click();
    await page.waitForFunction(() => globalThis.isApplied);
    assert.equal(router.sections.cfg03abcd.download, '85mbit');
    await page.finish();
});

test('an error in another section does not keep an edit from being saved', async (t) => {
    const { router, page } = await show(t, ODD.replace('85mbit', '85mbt'), { check: wrong });
    await page.locator('.sqm-findings[data-section="wan"] li').waitFor();
    await control(page, 'cfg03abcd', 'upload').fill('3000');
    await save(page);
    assert.equal(router.sections.cfg03abcd.upload, '3000');
    await page.finish();
});

test('the program checks the form as it would be saved, and every value reaches it as it is', async (t) => {
    const { router, page } = await show(t, ODD);
    const hostile = "eth1'; touch /tmp/x; $(reboot) `id` \" \\";
    await control(page, 'wan', 'interface').fill(hostile);
    await save(page);
    const [, { text }] = router.calls.filter(([method]) => method === 'check').at(-1);
    const sections = text.split(/^config /m).slice(1);
    assert.equal(sections.length, 3);
    assert.ok(text.includes(`\toption 'interface' 'eth1'\\''; touch /tmp/x; $(reboot) \`id\` " \\'\n`), text);
    assert.ok(text.includes("\tlist 'autorate_reflectors' '9.9.9.9'\n\tlist 'autorate_reflectors' '1.1.1.1'\n"), text);
    assert.equal(router.sections.wan.interface, hostile);
    await page.finish();
});

test('a new section shapes nothing until it is enabled', async (t) => {
    const { router, page } = await show(t, '');
    await page.getByRole('button', { name: 'Add' }).click();
    await page.getByRole('heading', { name: 'New section' }).waitFor();
    const [[method, { values: written }]] = router.changes;
    assert.deepEqual([method, written], ['add', { enabled: '0', script: 'best_of_cake.qos' }]);
    const devices = await control(page, Object.keys(router.sections)[0], 'interface').evaluate((input) => [...input.list.options].map(({ value }) => value));
    assert.deepEqual(devices, ['eth0', 'eth1', 'pppoe-wan']);
    await page.finish();
});

test('options that few need are hidden until they are asked for, unless the section has them', async (t) => {
    const { page } = await show(t, ODD);
    const isShown = (option) => field(page, 'wan', option).evaluate((node) => !node.classList.contains('hidden'));
    assert.deepEqual(await Promise.all(['use_mq', 'cake_rtt', 'cake_tins', 'cake_wash', 'egress_cake_rtt'].map(isShown)), [true, true, false, false, false]);
    await page.getByRole('link', { name: 'Queue Discipline' }).first().click();
    await control(page, 'wan', '_options_queue').selectOption('advanced');
    assert.deepEqual(await Promise.all(['cake_tins', 'cake_wash', 'egress_cake_rtt'].map(isShown)), [true, true, false]);
    await control(page, 'wan', '_options_queue').selectOption('expert');
    assert.ok(await isShown('egress_cake_rtt'));
    assert.match(await field(page, 'wan', 'egress_cake_rtt').innerText(), /\(egress\)/);
    // Every option of the table has its field.
    const table = await readFile(new URL('packaging/openwrt/luci-app-sqm/htdocs/luci-static/resources/sqm/options.js', ROOT), 'utf8');
    const known = [...table.matchAll(/^\t\t\tname: '(\w+)'/gm)].map(([, name]) => name).sort();
    const fields = await page.locator('#cbi-sqm-wan [data-name]').evaluateAll((nodes) => nodes.map((node) => node.dataset.name).filter((name) => !name.startsWith('_')));
    assert.deepEqual(fields.sort(), known);
    await page.finish();
});

test('setup scripts of the user\'s own can be chosen', async (t) => {
    const { router, page } = await show(t, ODD, { features: { version: 'sqm 0.1.0', tune: false, scripts: ['mine.tc'] } });
    await page.getByRole('link', { name: 'Queue Discipline' }).first().click();
    await control(page, 'wan', 'script').selectOption('mine.tc');
    await save(page);
    assert.equal(router.sections.wan.script, 'mine.tc');
    assert.equal(router.changes.length, 1);
    await page.finish();
});

test('without the program the form still saves', async (t) => {
    const { router, page } = await show(t, ODD, null);
    await control(page, 'wan', 'upload').fill('12mbit');
    await save(page);
    assert.equal(router.sections.wan.upload, '12mbit');
    await page.finish();
});

/** Answers for the status, whose counters grow with each reading. */
function live(name) {
    let n = 0;
    return { status: () => status((n += 1), name), daemon, doctor, plan };
}

test('the status shows rates, findings, the daemon and the plan', async (t) => {
    const { page } = await show(t, '', live('eth1'), { view: 'network/sqm_status' });
    await page.locator('figcaption', { hasText: 'ingress: ' }).waitFor();
    const text = await page.locator('#view').innerText();
    for (const wanted of ['shaped', '1h 2m 3s', 'there is no device eth2', 'another program sets the rates', 'is not a rate', 'no such option', 'there is no network device eth2\n', '85.0 Mbit/s', '0.8 ms', 'nothing is shaped there', 'check the name', 'tc qdisc add dev eth1']) {
        assert.ok(text.includes(wanted), wanted);
    }
    await page.finish();
});

test('names of devices are text, never code', async (t) => {
    const name = '<img src=x onerror=alert(1)>';
    const hostile = structuredClone(daemon);
    hostile.daemon.interfaces[0].interface = hostile.daemon.interfaces[0].why = name;
    hostile.daemon.configuration.errors = [name];
    const { page } = await show(t, `config queue\n option interface '${name}'\n option script '${name}'\n`, {
        check: { check: { errors: [{ section: 0, option: 'script', message: name, suggestion: name }], warnings: [] } },
    });
    await page.locator('.sqm-findings li').waitFor();
    assert.equal(await page.locator('img').count(), 0);
    await page.finish();
    const { page: other } = await show(t, '', { ...live(name), daemon: hostile, plan: { text: name, error: name } }, { view: 'network/sqm_status' });
    await other.getByText('check the name').waitFor();
    assert.equal(await other.locator('img').count(), 0);
    await other.finish();
});

test('without the daemon the status offers to start it', async (t) => {
    const { router, page } = await show(t, '', { ...live('eth1'), daemon: { daemon: null, error: 'sqm: the daemon does not respond' } }, { view: 'network/sqm_status' });
    await page.getByText('the daemon does not respond').waitFor();
    await page.getByRole('button', { name: 'Enable and start the service' }).click();
    await page.waitForFunction(() => !document.querySelector('button.spinning'));
    assert.deepEqual(router.changes, [['setInitAction', { name: 'sqm', action: 'enable' }], ['setInitAction', { name: 'sqm', action: 'start' }]]);
    await page.finish();
});

test('a test is started, followed and shown', async (t) => {
    let job = { kind: null };
    const answers = {
        features: { version: 'sqm 0.1.0', tune: false },
        job: () => job,
        test: ({ host }) => (host.startsWith('-') ? { error: `'${host}' is no name or address of a machine` } : ((job = running), { error: '' })),
    };
    const { page } = await show(t, '', answers, { view: 'network/sqm_test' });
    assert.equal(await page.getByRole('button', { name: 'Find the best rates' }).count(), 0, 'the program for routers has no tune');
    await page.getByLabel('Server').fill('--help');
    await page.getByRole('button', { name: 'Start a test' }).click();
    await page.getByRole('alert').waitFor();
    await page.getByLabel('Server').fill('server.example');
    await page.getByRole('button', { name: 'Start a test' }).click();
    await page.getByText('30 s left; download 84.1 Mbit/s').waitFor();
    assert.ok(await page.getByRole('button', { name: 'Start a test' }).isDisabled());
    job = done;
    await page.locator('pre', { hasText: 'A+' }).waitFor();
    assert.ok(await page.getByRole('button', { name: 'Stop' }).isDisabled());
    await page.finish();
});

test('users who may only read can start nothing', async (t) => {
    const { page } = await show(t, '', { features: { tune: true }, job: { kind: null } }, { view: 'network/sqm_test', isReadOnly: true });
    for (const name of ['Start a test', 'Find the best rates', 'Stop']) assert.ok(await page.getByRole('button', { name }).isDisabled(), name);
    await page.finish();
    const { page: other } = await show(t, '', { ...live('eth1'), daemon: { daemon: null, error: '' } }, { view: 'network/sqm_status', isReadOnly: true });
    assert.ok(await other.getByRole('button', { name: 'Enable and start the service' }).isDisabled());
    await other.finish();
});

test('the full program offers to find the best rates', async (t) => {
    let host;
    const answers = { features: { version: 'sqm 0.1.0', tune: true }, job: { kind: null }, tune: (request) => ((host = request.host), { error: '' }) };
    const { page } = await show(t, '', answers, { view: 'network/sqm_test' });
    await page.getByLabel('Server').fill('192.0.2.1');
    await page.getByRole('button', { name: 'Find the best rates' }).click();
    await page.waitForFunction(() => !document.querySelector('button.spinning'));
    assert.equal(host, '192.0.2.1');
    await page.finish();
});

describe('each view fits, and axe finds no barrier', () => {
    const VIEWS = { sqm: 'network/sqm', status: 'network/sqm_status', test: 'network/sqm_test' };
    for (const [width, language] of [[390, 'en'], [1280, 'de']]) {
        test(`${width} px, ${language}`, async (t) => {
            const translations = language === 'de' ? await germanTexts() : {};
            for (const [name, view] of Object.entries(VIEWS)) {
                const answers = { ...live('eth1'), check: wrong, features: { tune: true }, job: running };
                const { page } = await show(t, ODD.replace('85mbit', '85mbt'), answers, { view, width, translations });
                if (view === 'network/sqm') {
                    await page.locator('.sqm-findings li').waitFor();
                    for (const [n, tab] of (await page.locator('.cbi-tabmenu').first().locator('a').all()).entries()) {
                        await tab.click();
                        await fits(page);
                        await shot(page, `luci-${name}-${width}-${n}`);
                    }
                } else if (name === 'status') await page.locator('figcaption', { hasText: 'Mbit/s' }).waitFor();
                await fits(page);
                if (width === 390) await accessible(page);
                await shot(page, `luci-${name}-${width}`);
                await page.finish();
            }
        });
    }
});
