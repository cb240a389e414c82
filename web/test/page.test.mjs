/** Tests of the page with a mock of the server: every part in every width and colour scheme, and users' actions. */

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { accessible, browse, fits, legible, open, shot, shows } from './browser.mjs';
import { FLEET, FLEET_ENTRIES, RPM_TEST, TESTS, TUNE_STEPS } from './canned.mjs';
import { Mock, TUNED } from './mock.mjs';

const LINE = "config queue\n\toption enabled '1'\n\toption interface 'pppoe-wan'\n\toption download '84000'\n\toption upload '38000'\n\toption script 'best_of_cake.qos'\n\toption link 'vdsl2-pppoe'\n";

const FINDING = {
    id: 'offload', interface: 'pppoe-wan', what: 'Flow offloading takes packets past the queues',
    evidence: ['flowtable inet fw4 ft: devices = { eth0, eth1 }, flags offload'], remedy: 'Switch hardware flow offloading off.', fixable: true,
};

const AUTORATE = {
    download: { rate_bits_per_sec: 84e6, reason: 'loaded, no queue: rate stays', load_bits_per_sec: 2e6, cuts: 3 },
    upload: { rate_bits_per_sec: 38e6, reason: 'long queue: rate cut; queue delay 21.0 ms', load_bits_per_sec: 37e6, cuts: 12 },
    is_probing: true, probes_sent: 400, tcp_samples: 0, reflectors: [{ address: '9.9.9.9', rtt_ms: 14.2, is_one_way: false, answers: 190, lost: 1 }],
    specially_treated: [],
};

let chromium;
before(async () => {
    chromium = await browse();
});
after(() => chromium.close());

/** Starts a mock, which is closed at the end of the test. */
async function serve(t, text, change = {}) {
    const mock = Object.assign(await new Mock(text).listen(), change);
    t.after(() => {
        mock.close();
        assert.deepEqual(mock.wrong, []);
    });
    return mock;
}

const PLACES = {
    dashboard: '#/dashboard',
    'settings-basic': '#/settings/0/basic',
    'settings-queue': '#/settings/0/queue',
    'settings-link': '#/settings/0/link',
    test: '#/test',
    'test-result': '#/test/20260102T020304-00000002',
    'test-responsiveness': '#/test/20251230T020304-00000004',
    'test-comparison': '#/test/compare/20260101T020304-00000001,20260102T020304-00000002',
    tune: '#/tune',
    diagnose: '#/diagnose',
};

const STEPS = TUNE_STEPS.map((text, n) => ({ unix_ms: 1_763_000_000_000 + n * 1000, text }));
const DONE = { state: 'done', interface: 'pppoe-wan', host: 'sqm.example.net', target_ms: 5, started_unix_ms: 1_763_000_000_000, steps: STEPS, result: TUNED, plots: ['latency', 'after'], error: null };
const TUNES = {
    done: DONE,
    missed: { ...DONE, result: { ...TUNED, warning: 'with both directions loaded, load adds 233.2 ms, above the target of 5.0 ms; run tune again, or set lower rates' } },
    failed: { ...DONE, state: 'failed', result: null, plots: [], error: 'sqm.example.net: no answer on port 35353' },
    stopped: { ...DONE, state: 'stopped', result: null, plots: [] },
};

describe('every part of the page', () => {
    // The narrow window has the longer texts. The other two are for those who look at the pictures.
    const combinations = [[390, 'dark', 'de-DE'], [1280, 'light', 'en-GB']];
    if (process.env.SQM_PICTURES) combinations.push([390, 'light', 'en-GB'], [1280, 'dark', 'de-DE']);
    for (const [width, scheme, locale] of combinations) {
        test(`${width} px, ${scheme}, ${locale}`, async (t) => {
            const mock = await serve(t, LINE, { findings: [FINDING], autorate: AUTORATE, tests: [...TESTS, RPM_TEST], lastSecond: 30 });
            const page = await open(chromium.browser, mock.url, { width, scheme, locale });
            const judge = async (name) => {
                await settled(page);
                // Opened details may hold others. A dialog covers those of the page behind it, so they are not clicked.
                const open = () => page.evaluate(() => {
                    const closed = [...document.querySelectorAll('details:not([open])')];
                    for (const one of closed) one.open = true;
                    return closed.length;
                });
                while ((await open()) > 0) await settled(page);
                await fits(page);
                await legible(page);
                await accessible(page);
                await shot(page, `${name}-${width}-${scheme}`);
            };
            for (const [name, place] of Object.entries(PLACES)) {
                await page.goto(mock.url + place);
                await judge(name);
            }
            const main = page.locator('form button.main:visible');
            await page.goto(`${mock.url}#/setup`);
            await judge('setup-interface');
            await main.click();
            await page.locator('input[value="vdsl2"]').check();
            await judge('setup-kind');
            await main.click();
            await page.locator('#setup-download').fill('100');
            await page.locator('#setup-upload').fill('40');
            await page.locator('form button.main:enabled').waitFor();
            await judge('setup-speeds');
            await main.click();
            await page.locator('pre').first().waitFor({ state: 'attached' });
            await judge('setup-summary');
            await page.goto(`${mock.url}#/settings/0/basic`);
            await page.locator('#option-upload').fill('20');
            await page.locator('.bottom .badge.good').waitFor();
            await page.locator('.bottom button.main').click();
            await page.getByRole('dialog').waitFor();
            await judge('review');
            for (const [name, tune] of Object.entries(TUNES)) {
                mock.tune = tune;
                await page.goto(mock.url);
                await page.goto(`${mock.url}#/tune`);
                await page.locator('nav a[href="#/tune"][aria-current=page]').waitFor();
                await judge(`tune-${name}`);
            }
            mock.tests = [{ ...TESTS[0], id: '20260103T020304-00000009', state: 'running', summary: null, verdict: null, bytes: null }, ...TESTS];
            await page.goto(`${mock.url}#/test/20260103T020304-00000009`);
            await page.getByText(/ 30 (of|von) 40 /).waitFor();
            await judge('test-running');
            await page.finish();
        });
    }
});

test('a place that is chosen while the page is drawn is shown', async (t) => {
    const mock = await serve(t, LINE);
    // A script that runs at each load cannot be removed.
    const page = await open(chromium.browser, mock.url, { isReusable: false });
    await page.addInitScript(() => {
        const drawn = new MutationObserver(() => {
            if (!document.querySelector('nav')) return;
            drawn.disconnect();
            location.hash = '#/tune';
        });
        drawn.observe(document, { childList: true, subtree: true });
    });
    await page.reload();
    await page.locator('nav a[href="#/tune"][aria-current=page]').waitFor();
    await page.finish();
});

/** Waits until all requests of the page are answered. */
async function settled(page) {
    await page.locator('h1').waitFor();
    await page.waitForFunction(() => !/(Loading|Checking|geladen|geprüft) …/.test(document.body.innerText));
    await page.waitForFunction(() => [...document.images].every((image) => image.complete || image.loading === 'lazy'));
}

test('a new user is led through the setup and to the first test', async (t) => {
    const mock = await serve(t, '');
    const page = await open(chromium.browser, mock.url, { width: 390 });
    const next = () => page.getByRole('button', { name: 'Next' }).click();
    await page.getByText('Step 1 of 4').waitFor();
    assert.equal(await page.getByLabel('Interface').inputValue(), 'pppoe-wan', 'the detected device is suggested');
    await fits(page);
    await shot(page, 'setup-interface-390');
    await next();
    assert.ok(await page.getByRole('button', { name: 'Next' }).isDisabled(), 'the kind of line is not guessed');
    await page.getByRole('radio', { name: 'DSL VDSL2' }).check();
    assert.ok(await page.getByLabel('(PPPoE)').isChecked(), 'the layers that the kernel knows of are proposed');
    await fits(page);
    await accessible(page);
    await shot(page, 'setup-kind-390');
    await next();
    await page.getByLabel('Download').fill('fast');
    await page.getByText("'fast' is not a rate").waitFor();
    assert.ok(await page.getByRole('button', { name: 'Next' }).isDisabled());
    await page.getByLabel('Download').fill('100 Mbit/s');
    await page.getByLabel('Upload').fill('40mbps');
    await page.getByText('Read as 40.0 Mbit/s. The shaper rate will be 34.0 Mbit/s.').waitFor();
    await page.getByLabel('I have measured').check();
    await page.getByText('The shaper rate will be 95.0 Mbit/s.').waitFor();
    await fits(page);
    await accessible(page);
    await shot(page, 'setup-speeds-390');
    await next();
    await page.getByText("option download '95000'").waitFor();
    await fits(page);
    await accessible(page);
    await shot(page, 'setup-summary-390');
    await page.setViewportSize({ width: 1280, height: 900 });
    await shot(page, 'setup-summary-1280');
    assert.equal(mock.text, '', 'nothing is written before it is applied');
    await page.getByRole('button', { name: 'Apply', exact: true }).click();
    await page.getByText('Is everything still working?').waitFor();
    await page.getByText('Waiting for your confirmation').or(page.getByText('Shaping as configured')).first().waitFor();
    await page.getByRole('button', { name: 'Keep changes' }).click();
    await page.getByText('The new settings have been kept.').waitFor();
    assert.match(mock.text, /option enabled '1'/);
    assert.match(mock.text, /option link 'vdsl2-pppoe'/);
    assert.match(mock.text, /option upload '38000'/);
    await accessible(page);
    await shot(page, 'setup-kept-1280', false);
    await page.getByRole('link', { name: 'Find the best speeds' }).waitFor();
    await page.getByRole('link', { name: 'Test now' }).click();
    await page.getByRole('heading', { name: /^Test/ }).waitFor();
    await page.finish();
});

test('the setup switches on the section of a shipped sample and keeps its other options', async (t) => {
    const sample = LINE.replace("enabled '1'", "enabled '0'").replace("option link", "option qdisc 'cake'\n\toption link");
    const mock = await serve(t, sample);
    const page = await open(chromium.browser, mock.url);
    const next = () => page.getByRole('button', { name: 'Next' }).click();
    await page.getByText('Step 1 of 4').waitFor();
    await shot(page, 'setup-interface-1280');
    await next();
    await shot(page, 'setup-kind-1280');
    await page.getByRole('radio', { name: 'Cable' }).check();
    await next();
    await page.getByLabel('Download').fill('80');
    await page.getByLabel('Upload').fill('5000');
    await page.getByText('The shaper rate will be 68.0 Mbit/s.').waitFor();
    await shot(page, 'setup-speeds-1280');
    await next();
    await page.getByText('4.25 Gbit/s is more than the port of pppoe-wan carries').waitFor();
    await page.getByRole('button', { name: 'Apply', exact: true }).click();
    await page.getByRole('button', { name: 'Roll back now' }).click();
    await page.getByText('The previous settings have been restored.').waitFor();
    // After a rollback the answers are still there.
    await page.getByText('Step 1 of 4').waitFor();
    await next();
    assert.ok(await page.getByRole('radio', { name: 'Cable' }).isChecked());
    await next();
    await page.getByLabel('Upload').fill('40');
    await page.getByText('The shaper rate will be 34.0 Mbit/s.').waitFor();
    await next();
    await page.getByRole('button', { name: 'Apply', exact: true }).click();
    await page.getByRole('button', { name: 'Keep changes' }).click();
    await page.getByText('The new settings have been kept.').waitFor();
    assert.equal(mock.text.match(/config queue/g).length, 1);
    assert.match(mock.text, /option enabled '1'/);
    assert.match(mock.text, /option qdisc 'cake'/);
    await page.finish();
});

test('sentences of the program are translated, with their numbers', async (t) => {
    const mock = await serve(t, LINE, { tune: TUNES.missed, autorate: AUTORATE });
    const page = await open(chromium.browser, `${mock.url}#/tune`, { locale: 'de-DE' });
    await page.getByText('Download: ohne Shaping: 92,10 Mbit/s, Last verlängert die Latenz um 412,0 ms').waitFor({ state: 'attached' });
    await page.getByText('beide: beide Richtungen unter Last: Last verlängert die Latenz um 3,4 ms').waitFor({ state: 'attached' });
    await page.getByText('um 233,2 ms, mehr als das Ziel von 5,0 ms').waitFor();
    await page.goto(`${mock.url}#/dashboard`);
    await page.getByText('lange Warteschlange: die Rate sinkt; Wartezeit 21,0 ms').waitFor();
    await page.finish();
});

test('probes that the carrier treats specially are named', async (t) => {
    const mock = await serve(t, LINE, { autorate: { ...AUTORATE, specially_treated: ['icmp', 'udp'] } });
    const page = await open(chromium.browser, `${mock.url}#/dashboard`);
    await page.getByText('Treated specially on this line: ICMP, UDP.').waitFor();
    await page.finish();
});

test('a user who may not change anything is not led to the setup', async (t) => {
    const mock = await serve(t, '', { role: 'reader', passwordSet: true });
    const page = await open(chromium.browser, mock.url);
    await page.getByText('No line is being shaped yet').waitFor();
    assert.equal(await page.getByText('Step 1 of 4').count(), 0);
    await page.finish();
});

test('settings that are valid but have no effect are reported before they are applied', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/settings/0/basic`);
    await page.locator('#option-enabled').uncheck();
    await page.locator('#option-enabled-said').getByText('nothing will be shaped').waitFor();
    await page.getByLabel('Interface', { exact: true }).selectOption({ label: 'Another device, which appears later …' });
    await page.getByLabel('Name of the device').fill('wwan7');
    await page.locator('#option-interface-said').getByText('There is no device wwan7 at the moment.').waitFor();
    await page.locator('#option-download').fill('300');
    await page.locator('#option-download-said').getByText('far more than the fastest test measured (79.4 Mbit/s)').waitFor();
    await page.locator('#option-upload').fill('9999999');
    await page.locator('#option-upload-said').getByText('faster than any line').waitFor();
    await page.getByText('No errors.').waitFor();
    await fits(page);
    await accessible(page);
    await shot(page, 'settings-doubts-1280');
    await page.getByRole('button', { name: 'Review changes' }).click();
    const dialog = page.getByRole('dialog');
    for (const text of ['nothing will be shaped', 'wwan7 at the moment', 'fastest test', 'any line']) {
        await dialog.locator('.notice').getByText(text).waitFor();
    }
    await dialog.getByText('None: no line is enabled').waitFor();
    await shot(page, 'settings-doubts-review-1280', false);
    await dialog.getByRole('button', { name: 'Apply', exact: true }).click();
    await page.getByRole('button', { name: 'Keep changes' }).click();
    await page.getByText('No line is enabled, so nothing is being shaped.').waitFor();
    assert.equal(await page.getByRole('link', { name: 'Test now' }).count(), 0);
    await page.finish();
});

test('a test runs, shows its result and is compared', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/test`);
    mock.lastSecond = 5;
    await page.getByLabel('Server').fill('sqm.example.net');
    await page.getByLabel('Name').fill('evening');
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('Loads the line with downloads, then with uploads, then with both at once').waitFor({ state: 'attached' });
    for (const [second, now] of [[5, 'measuring the idle line'], [12, 'loading the download alone'], [20, 'loading the upload alone'], [30, 'loading both directions at once']]) {
        // The test goes on to this second and no further.
        mock.lastSecond = second;
        await page.getByText(new RegExp(`Running: \\d+ of 40 seconds · ${now}`)).waitFor();
    }
    await shot(page, 'test-running');
    await fits(page);
    await accessible(page);
    mock.lastSecond = Infinity;
    await page.getByText('A+', { exact: true }).waitFor();
    // The page puts the sentence together in its own language; in English it is that of the command line.
    await page.getByText(`${TESTS[0].verdict.grade.sentence}.`).waitFor();
    await page.getByText('How the grade is made').click();
    await page.getByText('by DSLReports').waitFor();
    // The phases of the test by name, without the idle line after the load.
    const phases = page.getByRole('region', { name: 'The phases of the test' });
    assert.deepEqual(await phases.getByRole('rowheader').allInnerTexts(), ['Idle line', 'Download alone', 'Upload alone', 'Both at once']);
    assert.deepEqual(await phases.getByRole('row', { name: 'Both at once' }).getByRole('cell').allInnerTexts(), ['62.3', '31.8', '18.2', '21.8', '2 of 51']);
    const [, , asked] = mock.changes.find(([method, path]) => method === 'POST' && path === 'tests');
    assert.equal(asked.kind, 'three_phases', 'the default of the command line');
    await page.getByLabel('Select evening').check();
    await page.getByLabel('Select before').check();
    await page.getByRole('button', { name: 'Compare selected' }).click();
    await page.getByRole('heading', { name: 'Comparison' }).waitFor();
    await page.getByRole('cell', { name: '427' }).waitFor();
    await page.finish();
});

test('one button tests without SQM and then with it, and shows both grades side by side', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/test`);
    await page.getByLabel('Server').fill('sqm.example.net');
    await page.getByRole('button', { name: 'Test without and with SQM' }).click();
    await page.getByText('Test 1 of 2, without SQM: pppoe-wan is not shaped until this test ends.').first().waitFor();
    const [, , asked] = mock.changes.find(([method, path]) => method === 'POST' && path === 'tests');
    assert.equal(asked.without_and_with, 'pppoe-wan');
    await page.getByText('Test 2 of 2, with SQM: pppoe-wan is shaped again.').first().waitFor();
    const pair = page.getByRole('region', { name: 'Without and with SQM' });
    await pair.getByText('With SQM, load adds +2.30 ms of latency instead of +413 ms.').waitFor();
    assert.deepEqual(await pair.locator('.grade').allInnerTexts(), ['F', 'A+']);
    await page.getByText(/, without SQM/).first().waitFor();
    await accessible(page);
    await shot(page, 'test-pair-1280-light');
    await page.setViewportSize({ width: 390, height: 844 });
    await fits(page);
    // Loads the pictures of this width.
    await shot(page, 'test-pair-390-light');
    await legible(page);
    // A line that is paused says so, and until when.
    mock.state = 'paused';
    await page.goto(`${mock.url}#/dashboard`);
    await page.getByText('The shaping returns by itself, in 42 seconds at the latest.').first().waitFor();
    // The grade of the dashboard is the one with SQM.
    await page.getByRole('region', { name: 'Last test' }).getByText('A+').waitFor();
    await page.finish();
});

test('a test without SQM that is stopped has no second test, and the page says that the line is shaped', async (t) => {
    const mock = await serve(t, LINE, { lastSecond: 5 });
    const page = await open(chromium.browser, `${mock.url}#/test`);
    await page.getByLabel('Server').fill('sqm.example.net');
    await page.getByRole('button', { name: 'Test without and with SQM' }).click();
    await page.getByText('Test 1 of 2').first().waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('There was no second test, with SQM. The shaping of pppoe-wan has been restored.').first().waitFor();
    await page.finish();
});

test('the grade of a responsiveness test is shown as that of any other', async (t) => {
    const mock = await serve(t, LINE, { tests: [RPM_TEST, ...TESTS] });
    const page = await open(chromium.browser, mock.url);
    await page.locator('section', { hasText: 'Tested' }).locator('.grade', { hasText: /^F$/ }).waitFor();
    await page.goto(`${mock.url}#/test/${RPM_TEST.id}`);
    await page.locator('.verdict, .stack').locator('.grade', { hasText: /^F$/ }).waitFor();
    await page.getByText('F · 413 RPM').waitFor();
    // The letters of other speed tests need the latency of each direction.
    await page.getByText('How the grade is made').click();
    await page.getByText('+131 ms').first().waitFor();
    assert.equal(await page.getByText('undefined').count(), 0);
    await page.finish();
});

test('a test runs against a file on the web or a responsiveness server', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/test`, { width: 360 });
    // The test runs until it is stopped.
    mock.lastSecond = 30;
    const started = async () => {
        await page.getByRole('button', { name: 'Start' }).click();
        await page.getByRole('button', { name: 'Stop' }).click();
        await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' });
        return mock.changes.find(([, path]) => path === 'tests')?.[2];
    };
    await page.getByLabel('Test with').selectOption({ label: 'A file on the web' });
    await page.getByRole('button', { name: 'Start' }).click();
    assert.equal(mock.changes.length, 0, 'no request is sent without a URL');
    await page.getByLabel('File to download').fill('https://example.net/1GB.bin');
    await page.locator('summary', { hasText: 'Advanced' }).click();
    await page.getByLabel('Host to probe').fill('192.0.2.53');
    await shot(page, 'test-url');
    await fits(page);
    await accessible(page);
    assert.deepEqual(await started(), { kind: 'url', duration_s: 30, url: 'https://example.net/1GB.bin', reflector: '192.0.2.53' });

    mock.changes = [];
    await page.getByLabel('Test with').selectOption({ label: 'A responsiveness server' });
    await page.getByLabel('Server').fill('192.0.2.1');
    await page.getByLabel('Accept any certificate').check();
    await shot(page, 'test-rpm');
    await fits(page);
    assert.deepEqual(await started(), { kind: 'rpm', duration_s: 30, host: '192.0.2.1', insecure: true });
    await page.finish();
});

test('after a failed test the form and its values are still there, and the list says that it failed', async (t) => {
    const mock = await serve(t, LINE, { failsTests: true });
    const page = await open(chromium.browser, `${mock.url}#/test`, { isQuiet: false });
    await page.getByLabel('Server').fill('192.0.2.1:4443');
    await page.getByLabel('Name').fill('evening');
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('no answer on port 35353').waitFor();
    await page.getByText('Your entries are still there.').waitFor();
    assert.deepEqual(
        mock.changes.find(([, path]) => path === 'tests')?.[2],
        { kind: 'three_phases', duration_s: 30, title: 'evening', host: '192.0.2.1', port: 4443 },
    );
    assert.equal(await page.getByLabel('Server').inputValue(), '192.0.2.1:4443');
    await page.locator('.runs li', { hasText: 'evening' }).getByText('failed', { exact: true }).waitFor();
    assert.equal(await page.locator('.runs').getByText('running', { exact: true }).count(), 0);
    await shot(page, 'test-failed-1280');
    await page.finish();
});

test('a fast line is shown in Gbit/s, and an error of the command line names the field of the page', async (t) => {
    const fast = { ...TESTS[0], summary: { ...TESTS[0].summary, download_mbit: 16147.56 } };
    const refused = { ...TESTS[2], kind: 'rpm', error: 'rpm.example.net: If only its certificate is refused, --insecure accepts it' };
    const mock = await serve(t, LINE, { tests: [fast, refused] });
    const page = await open(chromium.browser, `${mock.url}#/test/${fast.id}`);
    await page.getByText('16.1 Gbit/s').waitFor();
    await page.goto(`${mock.url}#/test/${refused.id}`);
    await page.getByText('On this page, --insecure is “Accept any certificate” under “Advanced”.').waitFor();
    await page.finish();
});

test('a second browser learns that a test runs and that it has ended', async (t) => {
    const mock = await serve(t, LINE, { lastSecond: 30 });
    const first = await open(chromium.browser, `${mock.url}#/test`);
    const second = await open(chromium.browser, `${mock.url}#/test`);
    await second.getByRole('button', { name: 'Start' }).waitFor();
    await first.getByLabel('Server').fill('[2001:db8::1]:443');
    await first.getByLabel('Name').fill('evening');
    await first.getByRole('button', { name: 'Start' }).click();
    await second.getByText('A test is running, perhaps started in another browser.').waitFor();
    await second.getByRole('link', { name: 'Watch it' }).waitFor();
    assert.equal(await second.getByRole('button', { name: 'Start' }).count(), 0);
    mock.lastSecond = Infinity;
    await second.getByRole('button', { name: 'Start' }).waitFor();
    await second.locator('.runs li', { hasText: 'evening' }).getByText('A+').waitFor();
    const { host, port } = mock.changes.find(([, path]) => path === 'tests')?.[2];
    assert.deepEqual({ host, port }, { host: '2001:db8::1', port: 443 });
    await first.getByRole('link', { name: 'Find the best speeds' }).waitFor();
    await first.finish();
    await second.finish();
});

test('public servers fill in the form, and tune takes them too', async (t) => {
    const mock = await serve(t, LINE, { tuneWarning: 'load adds 233 ms, more than the 5 ms allowed' });
    const page = await open(chromium.browser, `${mock.url}#/test`, { width: 390 });
    await page.getByLabel('Test with').selectOption({ label: 'A responsiveness server' });
    await page.getByRole('button', { name: 'Use Apple’s server' }).click();
    assert.equal(await page.getByLabel('Server').inputValue(), 'mensura.cdn-apple.com');
    await page.getByLabel('Test with').selectOption({ label: 'A file on the web' });
    await page.getByRole('button', { name: 'Use Cloudflare’s speed test' }).click();
    assert.match(await page.getByLabel('Upload URL').inputValue(), /^https:/);
    await fits(page);

    await page.getByRole('link', { name: 'Tune', exact: true }).click();
    await page.getByLabel('Test with').selectOption({ label: 'A file on the web' });
    await page.getByRole('button', { name: 'Use Cloudflare’s speed test' }).click();
    await fits(page);
    await accessible(page);
    await shot(page, 'tune-url-390');
    await page.getByRole('button', { name: 'Start' }).click();
    // Rates that missed their target are not what the page recommends.
    await page.getByText('load adds 233 ms').waitFor();
    const save = page.getByRole('button', { name: 'Save these rates anyway' });
    assert.doesNotMatch((await save.getAttribute('class')) ?? '', /main/);
    await shot(page, 'tune-warned-390');
    const [, , body] = mock.changes.find(([, path]) => path === 'tune');
    assert.match(body.host, /^https:/);
    assert.match(body.upload_url, /^https:/);

    mock.changes = [];
    await page.getByLabel('Test with').selectOption({ label: 'A responsiveness server' });
    await page.getByLabel('Server').fill('rpm.example.net:443');
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' });
    assert.deepEqual(mock.changes.find(([, path]) => path === 'tune')?.[2], {
        host: 'rpm.example.net', port: 443, rpm: true, interface: 'pppoe-wan', target_ms: 5,
    });
    await page.finish();
});

test('tune shows its steps and writes the rates only on request', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/tune`);
    await page.getByLabel('Server').fill('sqm.example.net');
    await page.getByLabel('Allowed added latency, ms').fill('7.5');
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('standing queue 9.8 ms, above target').first().waitFor();
    await page.getByText('91.2 Mbit/s').waitFor();
    assert.equal(await page.getByLabel('Allowed added latency, ms').inputValue(), '7.5', 'the value stays for the next search');
    await shot(page, 'tune-result');
    assert.ok(await page.locator('img.plot').first().evaluate((image) => image.naturalWidth > 0), 'the pictures are shown');
    await fits(page);
    await accessible(page);
    assert.doesNotMatch(mock.text, /91200/);
    await page.getByRole('button', { name: 'Save these rates to the settings' }).click();
    await page.getByRole('button', { name: 'Keep changes' }).click();
    await page.getByText('The new settings have been kept.').waitFor();
    assert.match(mock.text, /91200/);
    await page.finish();
});

test('invalid input is reported beside its field and cannot be applied', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/settings/0/basic`);
    const wrong = async (id, text, message) => {
        const field = page.locator(`#option-${id}`);
        const before = await field.inputValue();
        await field.fill(text);
        await page.locator(`#option-${id}-said`).getByText(message).waitFor();
        assert.equal(await field.getAttribute('aria-invalid'), 'true');
        await page.getByRole('button', { name: 'Review changes' }).click();
        assert.equal(await page.getByRole('dialog').count(), 0, `${id} is wrong and must not be applied`);
        await field.fill(before);
        await page.getByRole('button', { name: 'Review changes' }).waitFor({ state: 'detached' });
    };
    const device = page.locator('#option-interface');
    await device.selectOption('');
    await page.locator('#option-interface-said').getByText('missing').waitFor();
    await page.getByRole('button', { name: 'Review changes' }).click();
    assert.equal(await page.getByRole('dialog').count(), 0);
    await device.selectOption('pppoe-wan');
    await page.getByRole('button', { name: 'Review changes' }).waitFor({ state: 'detached' });
    await wrong('download', 'fast', "'fast' is not a rate");
    await wrong('upload', '-3', "'-3' is not a rate");
    await page.getByRole('tab', { name: 'Queue Discipline' }).click();
    await page.getByText('Experimental').click();
    await wrong('ilimit', 'many', "'many' is not a whole number");
    await wrong('itarget', '5 apples', "'5 apples' is not a time");
    await page.getByRole('tab', { name: 'Link Layer Adaptation' }).click();
    await page.getByText('Advanced').click();
    await wrong('overhead', '1e3', "'1e3' is not a whole number");

    // The suggested value is one click away.
    await page.getByRole('tab', { name: 'Basic Settings' }).click();
    await page.locator('#option-download').fill('90mbits');
    await page.getByRole('button', { name: 'Use 90mbit' }).click();
    await page.getByText('No errors.').waitFor();
    assert.equal(await page.locator('#option-download').inputValue(), '90');
    await page.finish();
});

test('a checkbox that is back in its old state is not a change', async (t) => {
    const mock = await serve(t, LINE.replace("enabled '1'", "enabled 'yes'"));
    const page = await open(chromium.browser, `${mock.url}#/settings/0/basic`);
    const enabled = page.locator('#option-enabled');
    await enabled.uncheck();
    await page.getByText('1 change', { exact: true }).waitFor();
    await page.getByText('No errors.').waitFor();
    await enabled.check();
    await page.getByText('1 change', { exact: true }).waitFor({ state: 'detached' });

    mock.write(LINE.replace("\toption enabled '1'\n", ''));
    await page.reload();
    await enabled.check();
    await page.locator('pre', { hasText: "option enabled '1'" }).waitFor({ state: 'attached' });
    await enabled.uncheck();
    await page.getByText('1 change', { exact: true }).waitFor({ state: 'detached' });
    await page.finish();
});

test('the review button leads to an error on another tab', async (t) => {
    const mock = await serve(t, '');
    const page = await open(chromium.browser, `${mock.url}#/settings`);
    await page.getByRole('button', { name: 'Add a line' }).click();
    await page.getByRole('tab', { name: 'Link Layer Adaptation' }).click();
    await page.getByText('2 errors to fix').waitFor();
    await page.getByRole('button', { name: 'Review changes' }).click();
    await page.locator('#option-download:focus').waitFor();
    await page.locator('#option-download-said').getByText('missing').waitFor();
    await page.finish();
});

test('rates are typed in Mbit/s and written as sqm-scripts reads them', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/settings/0/basic`, { locale: 'de-DE' });
    const field = page.locator('#option-download');
    await field.waitFor();
    assert.equal(await field.inputValue(), '84');
    await page.getByText('Konfigurationsdatei', { exact: true }).click();
    for (const [typed, written] of [['85,5', '85500'], ['0', '0'], ['0.064', '64'], ['1000', '1000000']]) {
        await field.fill(typed);
        await page.locator('pre', { hasText: `option download '${written}'` }).waitFor();
        assert.equal(await field.inputValue(), typed, 'the spelling of the user stays');
    }
    await page.finish();
});

test('the second of two browsers sees the conflict and can reapply its changes', async (t) => {
    const { mock, first, second } = await changeDuringReview(t);
    await first.getByRole('button', { name: 'Keep changes' }).click();
    await first.getByText('The new settings have been kept.').waitFor();

    await second.getByRole('dialog').getByRole('button', { name: 'Apply', exact: true }).click();
    await second.getByText('The settings were changed elsewhere in the meantime').first().waitFor();
    await shot(second, 'conflict', false);
    assert.doesNotMatch(mock.text, /20000/, 'no change of the second browser is applied');
    await second.getByRole('button', { name: 'Reapply my changes to the new settings' }).first().click();
    // The new settings are loaded and checked before they can be reviewed.
    await second.getByText('No errors.').waitFor();
    await apply(second);
    await second.getByRole('button', { name: 'Keep changes' }).click();
    await second.getByText('The new settings have been kept.').waitFor();
    assert.match(mock.text, /download '60000'/);
    assert.match(mock.text, /upload '20000'/);
    await first.finish();
    await second.finish();
});

test('a review is not applied over a change that another browser keeps meanwhile', async (t) => {
    const { mock, first, second } = await changeDuringReview(t);
    // The second browser's status requests report the change, and later that it is kept. Its review stays open.
    await second.getByText('Is everything still working?').waitFor();
    await first.getByRole('button', { name: 'Keep changes' }).click();
    await second.getByText('The new settings have been kept.').waitFor();
    await second.getByRole('dialog').getByText("-\toption upload '38000'").waitFor();

    await second.getByRole('dialog').getByRole('button', { name: 'Apply', exact: true }).click();
    await second.getByRole('dialog').getByText('The settings were changed elsewhere in the meantime').waitFor();
    assert.doesNotMatch(mock.text, /20000/, 'the text that was reviewed is not the file\'s any more');

    await second.getByRole('dialog').getByRole('button', { name: 'Reapply my changes to the new settings' }).click();
    await second.getByText('No errors.').waitFor();
    await second.getByRole('button', { name: 'Review changes' }).click();
    await second.getByRole('dialog').getByRole('button', { name: 'Apply', exact: true }).click();
    await second.getByRole('button', { name: 'Keep changes' }).click();
    await second.getByText('The new settings have been kept.').waitFor();
    assert.match(mock.text, /download '60000'/);
    assert.match(mock.text, /upload '20000'/);
    await first.finish();
    await second.finish();
});

/** Two browsers: the first applies a change of the download while the second reviews one of the upload. */
async function changeDuringReview(t) {
    const mock = await serve(t, LINE);
    const first = await open(chromium.browser, `${mock.url}#/settings/0/basic`);
    const second = await open(chromium.browser, `${mock.url}#/settings/0/basic`, { isQuiet: false });
    await second.locator('#option-upload').fill('20');
    await second.getByText('No errors.').waitFor();
    await second.getByRole('button', { name: 'Review changes' }).click();

    await first.locator('#option-download').fill('60');
    await apply(first);
    return { mock, first, second };
}

async function apply(page) {
    await page.getByText('No errors.').waitFor();
    await page.getByRole('button', { name: 'Review changes' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Apply', exact: true }).click();
}

test('settings are rolled back if the connection is lost while they are applied', async (t) => {
    const mock = await serve(t, LINE, { cutsOnApply: true });
    const page = await open(chromium.browser, `${mock.url}#/settings/0/basic`, { isQuiet: false });
    await page.locator('#option-upload').fill('20');
    await apply(page);
    await page.getByText('No response from the router. If it applied the change').waitFor();
    await shot(page, 'lost', false);
    assert.match(mock.text, /20000/);
    mock.expire();
    mock.isCut = false;
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByText('No response').waitFor({ state: 'detached' });
    await shows(page, 'upload', '38');
    await page.finish();
});

test('an unconfirmed change is rolled back, and every browser says so', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/settings/0/basic`);
    const other = await open(chromium.browser, mock.url);
    await page.locator('#option-upload').fill('20');
    await apply(page);
    await page.getByText(/rolled back in [1-9][0-9]? seconds/).waitFor();
    await other.getByText('Is everything still working?').waitFor();
    mock.expire();
    await page.getByText('The previous settings have been restored.').waitFor();
    await other.getByText('The previous settings have been restored.').waitFor();
    await shows(page, 'upload', '38');
    await page.finish();
    await other.finish();
});

test('a user who is not logged in can read but not change', async (t) => {
    const mock = await serve(t, LINE, { role: 'reader', passwordSet: true });
    const page = await open(chromium.browser, `${mock.url}#/settings/0/basic`, { isQuiet: false });
    await page.getByText('Log in to make changes.').waitFor();
    assert.ok(await page.locator('#option-download').isDisabled());
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByLabel('Password').fill('wrong');
    await page.getByRole('dialog').getByRole('button', { name: 'Log in' }).click();
    await page.getByText('Wrong password.').waitFor();
    await accessible(page);
    await shot(page, 'log-in', false);
    await page.getByLabel('Password').fill('locked');
    await page.getByRole('dialog').getByRole('button', { name: 'Log in' }).click();
    await page.getByText('Try again in 30 seconds.').waitFor();
    await page.getByLabel('Password').fill('right');
    await page.getByRole('dialog').getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('button', { name: 'Log out' }).waitFor();
    assert.ok(await page.locator('#option-download').isEnabled());
    await page.finish();
});

test('the settings can be used with the keyboard alone', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/settings/0/basic`);
    await page.getByRole('tab', { name: 'Basic Settings' }).focus();
    await page.keyboard.press('ArrowRight');
    await page.getByRole('tab', { name: 'Queue Discipline', selected: true }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.id), 'tab-queue');
    await page.keyboard.press('End');
    await page.getByRole('tab', { name: 'Link Layer Adaptation', selected: true }).waitFor();
    await page.keyboard.press('Home');
    await page.getByRole('tab', { name: 'Basic Settings', selected: true }).waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'option-enabled');
    await page.keyboard.press('Space');
    await page.getByText('1 change').waitFor();
    await page.finish();
});

test('the dashboard reports a missing daemon and a failed line', async (t) => {
    const mock = await serve(t, LINE, { daemon: false, state: 'failed' });
    const page = await open(chromium.browser, mock.url);
    await page.getByText('The sqm daemon is not responding: cannot connect to /var/run/sqm/api.sock').waitFor();
    await page.getByText('the kernel refused the change').waitFor();
    await shot(page, 'dashboard-failed', false);
    await accessible(page);
    await page.finish();
});

test('doctor’s findings are shown and fixed', async (t) => {
    const mock = await serve(t, LINE, { findings: [FINDING] });
    const page = await open(chromium.browser, `${mock.url}#/diagnose`);
    await page.getByText('Flow offloading takes packets past the queues').waitFor();
    await page.getByRole('button', { name: 'Apply safe fixes' }).click();
    await page.getByText('No problems found (12 checks).').waitFor();
    await page.finish();
});

test('the dashboard shows the grade of the last test and explains drops and tins', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, mock.url, { width: 390 });
    const last = page.getByRole('region', { name: 'Last test' });
    await last.getByText('A+', { exact: true }).waitFor();
    await last.getByText('run smoothly').waitFor();
    await page.getByText('normal: this is how the shaper tells senders to slow down').first().waitFor();
    await page.getByText('Traffic classes (tins)').click();
    await page.getByText('CAKE calls its traffic classes tins.').waitFor();
    await fits(page);
    await legible(page);
    await shot(page, 'dashboard-390');
    await last.getByRole('link').click();
    await page.getByRole('heading', { name: 'with sqm' }).waitFor();
    await page.finish();
});

test('the base of a comparison is the test that was selected first', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/test`, { width: 390 });
    await page.getByLabel('Select with sqm').check();
    await page.getByLabel('Select before').check();
    await page.getByRole('button', { name: 'Compare selected' }).click();
    await page.getByText('with sqm → before').waitFor();
    await legible(page);
    await shot(page, 'comparison-390');
    await page.finish();
});

test('the field of the setup script shows its whole choice', async (t) => {
    const mock = await serve(t, LINE);
    const page = await open(chromium.browser, `${mock.url}#/settings/0/queue`);
    const script = page.locator('#option-script');
    await script.waitFor();
    const [width, needed] = await script.evaluate((select) => {
        const pen = document.createElement('canvas').getContext('2d');
        pen.font = getComputedStyle(select).font;
        return [select.clientWidth, Math.max(...[...select.options].map(({ text }) => pen.measureText(text).width))];
    });
    assert.ok(needed + 40 < width, `${needed} of ${width} px`);
    await page.locator('code', { hasText: 'option script' }).waitFor();
    await page.finish();
});

describe('the page of a fleet', () => {
    for (const [width, scheme, locale, words] of [
        [1280, 'light', 'en-GB', { rolled_back: 'rolled back', roll_outs: 'Roll-outs', key: 'operator, key UABC…WXYZ', silent: 'The hub at tls://hub.example.net:4222 does not answer', old: 'was read 2 min ago' }],
        [390, 'dark', 'de-DE', { rolled_back: 'zurückgenommen', roll_outs: 'Verteilungen', key: 'Betreiber, Schlüssel UABC…WXYZ', silent: 'Der Hub tls://hub.example.net:4222 antwortet nicht', old: 'wurde vor 2 Min. gelesen' }],
    ]) {
        test(`${width} px, ${scheme}, ${locale}`, async (t) => {
            const mock = await serve(t, '', { fleet: structuredClone(FLEET), fleetEntries: FLEET_ENTRIES });
            const page = await open(chromium.browser, mock.url, { width, scheme, locale });
            const judge = async (name) => {
                await fits(page);
                await legible(page);
                await accessible(page);
                await shot(page, `fleet-${name}-${width}`);
            };
            const rows = page.locator('.fleet li');
            // Who needs a person comes first.
            await rows.first().getByText(words.rolled_back).waitFor();
            assert.match(await rows.first().innerText(), /A\+? \(.*ms\).* F \(.*ms\)/s, 'both measurements');
            await judge('routers');
            await page.locator('select').nth(1).selectOption('berlin');
            assert.equal(await rows.count(), FLEET.routers.filter(({ group }) => group === 'berlin').length);
            await rows.first().getByRole('link').click();
            await page.getByText(words.key).first().waitFor();
            await judge('history');
            await page.getByRole('link', { name: words.roll_outs, exact: true }).first().click();
            await page.getByText('3 of 3 routers of this step failed').waitFor();
            await judge('roll-outs');

            // What changes at the hub is shown without a reload, and so is that it does not answer.
            mock.fleet.roll_outs[0].text = 'done: all 12 routers have their document';
            await page.getByText('all 12 routers').waitFor();
            mock.fleet = { ...mock.fleet, error: 'no answer from the server: connection refused', now_unix_s: FLEET.read_unix_s + 125 };
            await page.getByText(words.silent).waitFor();
            await page.getByText(words.old).waitFor();
            await judge('silent');
            await page.finish();
        });
    }

    test('is shown only to those who have logged in', async (t) => {
        const mock = await serve(t, '', { fleet: FLEET, role: 'reader', passwordSet: true });
        const page = await open(chromium.browser, mock.url);
        await page.getByText('Log in to see the routers.').waitFor();
        assert.equal(await page.locator('.fleet li').count(), 0);
        await page.getByRole('button', { name: 'Log in' }).click();
        await page.getByText('sqm fleet web --set-password').waitFor();
        await page.getByLabel('Password').fill('right');
        await page.getByRole('dialog').getByRole('button', { name: 'Log in' }).click();
        await page.locator('.fleet li').first().waitFor();
        await page.finish();
    });
});
