/**
 * End-to-end tests: a browser drives `sqm web` on the lab's router, and the kernel and `tc` show the effect. In real time,
 * because of the browser.
 */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { accessible, browse, fits, open, shot, shows } from './browser.mjs';
import { Lab, SERVER } from './lab.mjs';

const PORT = 18080;

let chromium;
let lab;
let url;

before(async () => {
    // In sequence, so that all that was started is known when it is closed.
    chromium = await browse();
    lab = await Lab.boot('cable24');
    await lab.on('router', 'mkdir -p /etc/config; rm -f /etc/config/sqm; mkdir -m 700 /run/web');
    await lab.serve('server', 35353, 'sqm serve');
    await lab.on(
        'router',
        `(sqm daemon --config /etc/config/sqm >/run/daemon.log 2>&1 </dev/null &)
         for _ in $(seq 100); do [ -S /var/run/sqm/api.sock ] && exit 0; sleep 0.1; done; cat /run/daemon.log >&2; exit 1`,
    );
    await lab.serve('router', PORT, `sqm web --listen 127.0.0.1:${PORT} --dir /run/web`);
    url = await lab.forward('router', PORT);
});

after(async () => {
    // Pictures of the pages that a failed test has left open.
    for (const [n, page] of (chromium?.browser.contexts() ?? []).flatMap((context) => context.pages()).entries()) {
        await shot(page, `lab-left-open-${n}`);
    }
    await chromium?.close();
    await lab?.down();
});

/** The kernel's queues, as the real tc prints them. */
const tc = (device = 'wan0') => lab.on('router', `tc qdisc show dev ${device}`);

const TEST_MS = 90_000;

/**
 * Runs a test and waits for its figures. Latency is checked in virtual time by tests/lab. Here time is real, and a guest
 * that waits for the processor delays packets, whatever its queues do.
 */
async function measure(page, name) {
    await page.getByRole('link', { name: 'Test', exact: true }).click();
    await page.getByLabel('Server').fill(SERVER);
    await page.getByLabel('Name').fill(name);
    await page.locator('summary', { hasText: 'Advanced' }).click();
    await page.getByLabel('Duration, seconds').fill('6');
    // A busy machine may show the progress too briefly for a query from outside of the page.
    await page.evaluate(() => {
        window.hasShownProgress = false;
        new MutationObserver(() => {
            window.hasShownProgress ||= /Running: \d+ of \d+ seconds/.test(document.body.textContent);
        }).observe(document.body, { childList: true, subtree: true, characterData: true });
    });
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('Under load', { exact: true }).waitFor({ timeout: TEST_MS });
    assert.ok(await page.evaluate(() => window.hasShownProgress), name);
    const loaded = page.locator('.figures > div', { hasText: 'Under load' }).locator('dd').first();
    assert.ok(Number.parseFloat(await loaded.innerText()) > 0, name);
}

test('a new user without a configuration measures, sets up the line, and measures again', async () => {
    const page = await open(chromium.browser, url);
    await measure(page, 'before');

    await page.getByRole('link', { name: 'Dashboard', exact: true }).click();
    const next = () => page.getByRole('button', { name: 'Next' }).click();
    await page.getByText('Step 1 of 4').waitFor();
    assert.equal(await page.getByLabel('Interface').inputValue(), 'wan0', 'the way to the internet is suggested');
    await next();
    await page.getByRole('radio', { name: 'DSL VDSL2' }).check();
    await page.getByLabel('(PPPoE)').check();
    await next();
    // 95 % of these are 22.4 and 3.9 Mbit/s.
    await page.getByLabel('I have measured').check();
    await page.getByLabel('Download').fill('23579 kbit/s');
    await page.getByLabel('Upload').fill('4105 kbps');
    await page.getByText('The shaper rate will be 3.90 Mbit/s.').waitFor();
    await next();
    await page.getByText("option link 'vdsl2-pppoe'").waitFor();
    await shot(page, 'lab-review', false);
    await page.getByRole('button', { name: 'Apply', exact: true }).click();
    await page.getByRole('button', { name: 'Keep changes' }).click();
    await page.getByText('The new settings have been kept.').waitFor();
    assert.match(await tc(), /cake .*root .*bandwidth 3900Kbit .*ptm overhead 30 mpu 64/);
    assert.match(await tc('ifb4wan0'), /cake .*root .*bandwidth 22400Kbit .*ptm overhead 30 mpu 64/);
    await lab.on('router', 'sqm verify --config /etc/config/sqm');

    await page.getByRole('link', { name: 'Dashboard', exact: true }).click();
    await page.getByText('Shaping as configured').waitFor();
    await measure(page, 'after');
    await shot(page, 'lab-result');
    await page.getByLabel('Select before').check();
    await page.getByLabel('Select after').check();
    await page.getByRole('button', { name: 'Compare selected' }).click();
    await page.getByRole('heading', { name: 'Comparison' }).waitFor();
    const compared = page.getByRole('region', { name: 'Comparison' });
    for (const name of ['before', 'after']) await compared.getByRole('link', { name }).waitFor();
    await page.getByRole('heading', { name: 'Distribution of rates and latency' }).scrollIntoViewIfNeeded();
    await page.waitForFunction(() => [...document.images].every((image) => image.complete && image.naturalWidth > 0));
    await shot(page, 'lab-comparison');
    await accessible(page);
    await page.getByRole('link', { name: 'Dashboard', exact: true }).click();
    await page.getByText('Shaping as configured').waitFor();
    await page.getByText('3.90 Mbit/s').first().waitFor();
    // Rates are known from the second sample on.
    await page.locator('.figures dd', { hasText: /^\d.*\sMbit\/s$/ }).first().waitFor();
    await shot(page, 'lab-dashboard');
    await page.finish();
});

test('a change that cuts the connection is rolled back in the file and in the kernel', async () => {
    const page = await open(chromium.browser, `${url}#/settings/0/basic`, { isQuiet: false });
    // 8 s to confirm instead of the server's default of a minute, which the page leaves to the server.
    await page.route('**/api/v1/config', async (route) => {
        if (route.request().method() !== 'PUT') return route.continue();
        await route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), confirm_seconds: 8 }) });
    });
    await page.getByLabel('Upload speed').fill('1');
    await page.getByText('No errors.').waitFor();
    await page.getByRole('button', { name: 'Review changes' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Apply', exact: true }).click();
    await page.getByText(/rolled back in \d+ seconds/).waitFor();
    assert.match(await tc(), /bandwidth 1Mbit/);
    await lab.cut();
    await page.getByText(/No response from the router/).waitFor();
    await lab.on('router', `for _ in $(seq 900); do tc qdisc show dev wan0 | grep -q 'bandwidth 3900Kbit' && exit 0; sleep 0.1; done; exit 1`);
    assert.match(await lab.on('router', 'cat /etc/config/sqm'), /option upload '3900'/);
    await lab.forward('router', PORT);
    await page.getByText('The previous settings have been restored.').waitFor();
    // The page fetches the file after the event, and then the field shows the new value.
    await shows(page, 'upload', '3.9');
    await page.finish();
});

test('the program reports an invalid value in every text field', async () => {
    const page = await open(chromium.browser, `${url}#/settings/0/basic`);
    for (const tab of ['Basic Settings', 'Queue Discipline', 'Link Layer Adaptation']) {
        await page.getByRole('tab', { name: tab }).click();
        const closed = page.getByRole('tabpanel').locator('details:not([open]) > summary', { hasText: /Advanced|Experimental/ });
        while ((await closed.count()) > 0) await closed.first().click();
        // Autorate's other options are checked only if it is on. The name of its log is left out: nearly any text is valid.
        const autorate = page.locator('#option-autorate');
        if (await autorate.count()) await autorate.selectOption('1');
        const fields = await page
            .locator('input[id^="option-"]:not([type="checkbox"], #option-autorate_log)')
            .evaluateAll((all) => all.map(({ id }) => id));
        assert.ok(fields.length > 0, tab);
        for (const id of fields) {
            const field = page.locator(`#${id}`);
            const before = await field.inputValue();
            await field.fill('-7 apples');
            await page.locator(`#${id}-said .wrong`).first().waitFor();
            await field.fill(before);
            await page.locator(`#${id}-said .wrong`).first().waitFor({ state: 'detached' });
        }
        if (await autorate.count()) await autorate.selectOption('');
    }
    // All values are as before, so there is nothing to apply or to discard.
    await page.getByRole('button', { name: 'Review changes' }).waitFor({ state: 'detached' });
    await page.finish();
});

test('every text of the server has a translation', async () => {
    const german = await readFile(new URL('../src/i18n/de.ts', import.meta.url), 'utf8');
    const ask = async (path) => (await fetch(`${url}api/v1/${path}`)).json();
    const { options } = await ask('options');
    const { links } = await ask('links');
    const wanted = new Set(links.map(({ name }) => `link.${name}`));
    for (const { name, direction, choices, unit } of options) {
        const both = direction ? name.replace(`${direction}_cake`, 'cake') : name;
        wanted.add(`option.${both}`).add(`option.${both}.about`);
        if (unit && !unit.includes('bit/s')) wanted.add(`unit.of.${unit}`);
        const shared = name.replace(/^(egress_|ingress_|[ei](?=target))/, '');
        if (name !== 'link') for (const { value } of choices ?? []) wanted.add(`choice.${shared}.${value}`);
    }
    assert.deepEqual([...wanted].filter((key) => !german.includes(`'${key}':`)), []);
});

test('the page with the real options, kinds of line and findings is accessible and fits the window', async () => {
    for (const width of [360, 1440]) {
        const page = await open(chromium.browser, `${url}#/settings/0/queue`, { width });
        for (const tab of ['Queue Discipline', 'Link Layer Adaptation', 'Basic Settings']) {
            await page.getByRole('tab', { name: tab }).click();
            const closed = page.locator('details:not([open]) > summary');
            while ((await closed.count()) > 0) await closed.first().click();
            await fits(page);
            await shot(page, `lab-${tab.split(' ')[0].toLowerCase()}-${width}`);
            await accessible(page);
        }
        await page.getByRole('link', { name: 'Diagnose' }).click();
        await page.getByRole('button', { name: 'Check again' }).waitFor();
        await fits(page);
        await shot(page, `lab-diagnose-${width}`);
        await accessible(page);
        await page.finish();
    }
});

test('tune finds rates and writes them only on request', async () => {
    const page = await open(chromium.browser, `${url}#/tune`);
    await page.getByLabel('Server').fill(SERVER);
    // This checks the page, not the quality of the rates: a busy machine delays packets, too.
    await page.getByLabel('Allowed added latency, ms').fill('50');
    await page.getByRole('button', { name: 'Start' }).click();
    const found = page.getByRole('button', { name: /^Save these rates/ });
    await found.waitFor({ timeout: 240_000 });
    await shot(page, 'lab-tuned');
    assert.match(await tc(), /bandwidth 3900Kbit/, 'the previous shaping has been restored');
    await found.click();
    await page.getByRole('button', { name: 'Keep changes' }).click();
    await page.getByText('The new settings have been kept.').waitFor();
    assert.doesNotMatch(await tc(), /bandwidth 3900Kbit/);
    await lab.on('router', 'sqm verify --config /etc/config/sqm');
    await page.finish();
});
