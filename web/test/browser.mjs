/** Starts Chromium for the tests, and has the checks that every test of the page makes. */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const OUT = fileURLToPath(new URL('../test-out/', import.meta.url));
const PROGRAM = process.env.SQM_CHROMIUM ?? '/usr/bin/chromium';

/** Starts a browser with a fresh profile; `close` ends it and removes the profile. */
export async function browse() {
    assert.ok(existsSync(PROGRAM), `${PROGRAM} is missing: lab/deps.sh browser installs it`);
    await mkdir(OUT, { recursive: true });
    const profile = await mkdtemp(join(tmpdir(), 'sqm-browser-'));
    const browser = await chromium.launch({
        executablePath: PROGRAM,
        headless: true,
        args: [
            '--no-sandbox',
            '--disable-gpu',
            '--disable-quic',
            '--no-first-run',
            '--disable-background-networking',
            '--disable-component-update',
            '--disable-sync',
            `--disk-cache-dir=${profile}`,
        ],
    });
    return {
        browser,
        async close() {
            await browser.close();
            await rm(profile, { recursive: true, force: true });
        },
    };
}

/** Pages whose tests have finished, by language. Another one in the same process takes a third of the time of a new one. */
const free = new Map();

/** Opens a page. Any error in its console fails the test, unless `isQuiet` is false, as in tests that cut the connection. */
export async function open(browser, url, { width = 1280, height = 900, scheme = 'light', locale = 'en-GB', isQuiet = true, isReusable = true } = {}) {
    const page = free.get(locale)?.pop() ?? (await blank(browser, locale));
    page.complaints = [];
    page.origin = new URL(url).origin;
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto(url);
    page.finish = async () => {
        const { complaints } = page;
        if (isReusable) await release(page, locale);
        else await page.context().close();
        if (isQuiet) assert.deepEqual(complaints, []);
    };
    return page;
}

/** A page in a context of its own, as each user of the program has. */
async function blank(browser, locale) {
    const context = await browser.newContext({ locale, timezoneId: 'UTC' });
    // A long timeout, for busy machines.
    context.setDefaultTimeout(180_000);
    const page = await context.newPage();
    page.on('console', (message) => ['error', 'warning'].includes(message.type()) && page.complaints.push(message.text()));
    page.on('pageerror', (error) => page.complaints.push(String(error)));
    page.on('request', (request) => {
        if (!request.url().startsWith(page.origin)) page.complaints.push(`a request to elsewhere: ${request.url()}`);
    });
    return page;
}

/** Lets the next test have this page, without anything that the last one left. */
async function release(page, locale) {
    await page.unrouteAll();
    await page.evaluate(() => {
        localStorage.clear();
        sessionStorage.clear();
    });
    page.complaints = [];
    page.origin = 'about:';
    await page.goto('about:blank');
    await page.context().clearCookies();
    if (!free.has(locale)) free.set(locale, []);
    free.get(locale).push(page);
}

/** Loads all pictures. The browser does not load pictures below the window without this. */
async function loadPictures(page) {
    await page.evaluate(() =>
        Promise.all(
            [...document.images].map((image) => {
                image.loading = 'eager';
                return image.decode().catch(() => undefined);
            })
        )
    );
}

/** Takes a screenshot after all pictures have loaded, if the person who runs the tests wants to look at them (`make test-web`). */
export async function shot(page, name, fullPage = true) {
    if (!process.env.SQM_PICTURES) return;
    await loadPictures(page);
    await page.screenshot({ path: join(OUT, `${name}.png`), fullPage });
}

/** Waits until the field of this option has the value. */
export const shows = (page, option, value) =>
    page.waitForFunction(([id, wanted]) => document.querySelector(id)?.value === wanted, [`#option-${option}`, value]);

/** Fails if something is wider than the window. */
export async function fits(page) {
    const wide = await page.evaluate(() => {
        const width = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= width) return [];
        return [...document.querySelectorAll('body *')]
            .filter((element) => element.getBoundingClientRect().right > width + 1)
            .map((element) => element.outerHTML.slice(0, 120));
    });
    assert.deepEqual(wide, [], 'wider than the window');
}

/** The smallest text that counts as legible, pixels. */
const LEGIBLE_PX = 11;

/** Fails if a text is too small to read, in the page or in a picture of the server, or if a column of a table is cut off. */
export async function legible(page) {
    await loadPictures(page);
    const wrong = await page.evaluate((least) => {
        const texts = [...document.querySelectorAll('body *')].filter((element) =>
            [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())
        );
        const small = texts.filter((element) => Number.parseFloat(getComputedStyle(element).fontSize) < least);
        // The server draws wide pictures in 960 px with text of 13 px, and narrow ones in 300 px with a smallest text of 11.5 px.
        const scale = ({ clientWidth, currentSrc }) => (currentSrc.includes('sheet=narrow') ? (11.5 * clientWidth) / 300 : (13 * clientWidth) / 960);
        const pictures = [...document.querySelectorAll('img.plot')].filter((picture) => scale(picture) < least);
        const cut = [...document.querySelectorAll('table')].filter((table) => table.parentElement.scrollWidth > table.parentElement.clientWidth + 1);
        // The chosen text of a list must fit into it, or stand below it.
        const pen = document.createElement('canvas').getContext('2d');
        const lists = [...document.querySelectorAll('select')].filter((list) => {
            const style = getComputedStyle(list);
            pen.font = style.font;
            const text = list.selectedOptions[0]?.text ?? '';
            const room = list.clientWidth - Number.parseFloat(style.paddingLeft) - Number.parseFloat(style.paddingRight);
            const others = [...list.parentElement.querySelectorAll('span')].filter(({ offsetParent }) => offsetParent !== null);
            return list.offsetParent !== null && pen.measureText(text).width > room && !others.some(({ innerText }) => innerText.includes(text));
        });
        return [...small, ...pictures, ...cut, ...lists].map((element) => element.outerHTML.slice(0, 120));
    }, LEGIBLE_PX);
    assert.deepEqual(wrong, [], 'too small to read, or cut off');
}

const require = createRequire(import.meta.url);
const axe = await readFile(require.resolve('axe-core/axe.min.js'), 'utf8');

/** Fails if axe-core finds a barrier to using the page. */
export async function accessible(page) {
    // The page's content policy allows no foreign script; code that a test evaluates is exempt from it.
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ['violations'] }));
    const serious = violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html}\n${failureSummary}`).join('\n')}`);
    assert.deepEqual(serious, []);
}
