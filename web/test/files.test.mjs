/** Tests of the built files and of the translations. */

import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';

const read = (path) => readFile(new URL(`../${path}`, import.meta.url), 'utf8');

test('the first load is below 60 KB gzipped', async () => {
    const html = await read('dist/index.html');
    const files = [...html.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, file]) => file);
    assert.ok(files.length >= 3, 'script, style and icon');
    const sizes = await Promise.all([html, ...files.map((file) => read(`dist/${file}`))].map(async (text) => gzipSync(await text).length));
    const sum = sizes.reduce((one, two) => one + two);
    console.log(`first load: ${sum} bytes gzipped`);
    assert.ok(sum < 60_000, `${sum} bytes`);
});

test('nothing in the page needs more than the policy allows', async () => {
    const html = await read('dist/index.html');
    assert.doesNotMatch(html, /<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=/);
    // The page fills the address of a public server into a form, and sends no request to it: page.test.mjs fails if it does.
    for (const file of await readdir(new URL('../dist/assets/', import.meta.url))) {
        assert.doesNotMatch(await read(`dist/assets/${file}`), /\beval\(|new Function\(|https?:\/\/(?!www\.w3\.org|speed\.cloudflare\.com)/, file);
    }
});

/** The folders with a file of texts for each language, and how many texts they have at least. */
const WORDS = { 'src/i18n/': 200, 'src/fleet/words/': 30 };

/** The keys and texts of a language, from its source. */
async function keys(file) {
    const source = (await read(file)).split('const served')[0];
    return [...source.matchAll(/^ {4}'([^']+)':\s*('(?:[^'\\]|\\.)*'|"[^"]*")/gm)].map(([, key, text]) => [key, text]);
}

test('every language has the same keys and the same values in its sentences', async () => {
    for (const [folder, least] of Object.entries(WORDS)) {
        const english = await keys(`${folder}en.ts`);
        assert.ok(english.length > least, `${english.length} keys`);
        for (const file of await readdir(new URL(`../${folder}`, import.meta.url))) {
            const other = new Map(await keys(folder + file));
            assert.deepEqual([...other.keys()].sort(), english.map(([key]) => key).sort(), file);
            for (const [key, text] of english) {
                const values = (sentence) => (sentence.match(/\{\w+\}/g) ?? []).sort();
                assert.deepEqual(values(other.get(key)), values(text), `${file}: ${key}`);
            }
        }
    }
});

test('every key is used', async () => {
    const isText = (file) => Object.keys(WORDS).some((folder) => `src/${file}`.startsWith(folder));
    const files = (await readdir(new URL('../src/', import.meta.url), { recursive: true })).filter((file) => /tsx?$/.test(file) && !isText(file));
    const source = (await Promise.all(files.map((file) => read(`src/${file}`)))).join('\n');
    // `t(`state.${…}`)` uses all keys that begin with `state.`.
    const families = [...source.matchAll(/`([\w.]+\.)\$\{/g)].map(([, family]) => family);
    const english = (await Promise.all(Object.keys(WORDS).map((folder) => keys(`${folder}en.ts`)))).flat();
    const unused = english.map(([key]) => key).filter((key) => !source.includes(`'${key}'`) && !families.some((family) => key.startsWith(family)));
    assert.deepEqual(unused, []);
});

/** The texts in a Rust source that stand behind this, with each value as `{}`. */
function literals(source, before) {
    const texts = source.split(before).slice(1).map((rest) => /^[^;]*?"((?:[^"\\]|\\[^])*)"/.exec(rest)?.[1]);
    return texts.filter(Boolean).map((text) => text.replace(/\\\n\s*/g, '').replace(/\{[^}]*\}/g, '{}'));
}

test('every step of tune and every reason of autorate is translated', async () => {
    const pairs = [...(await read('src/sentences/de.ts')).matchAll(/^ {4}\['([^']+)', '([^']+)'\],$/gm)];
    const known = new Set(pairs.map(([, english]) => english));
    for (const [, english, german] of pairs) assert.equal(german.split('{}').length, english.split('{}').length, english);
    const steps = [];
    for (const file of await readdir(new URL('../../crates/tune/src/', import.meta.url))) {
        steps.push(...literals(await read(`../crates/tune/src/${file}`), 'log.step('));
    }
    assert.ok(steps.length > 12, `${steps.length} steps`);
    const [, reasons] = (await read('../crates/autorate/src/signal.rs')).split('impl fmt::Display for Reason {');
    const arms = literals(reasons.split('\n}\n')[0], /Self::\w+/);
    assert.ok(arms.length > 12, `${arms.length} reasons`);
    const all = [...steps.map((text) => text.replace(/ms\{\}$/, 'ms')), ...arms.map((text) => text.replace(/(delay|by)$/, '$1 {} ms'))];
    assert.deepEqual(all.filter((text) => !known.has(text)), []);
});

test('packages come from the public registry', async () => {
    const { packages } = JSON.parse(await read('package-lock.json'));
    const elsewhere = Object.values(packages).map(({ resolved }) => resolved).filter((from) => from && !from.startsWith('https://registry.npmjs.org/'));
    assert.deepEqual(elsewhere, []);
});
