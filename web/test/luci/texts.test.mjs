/** Tests of the LuCI application's translations and access list. `SQM_UPDATE=1` writes po/templates/sqm.pot anew. */

import assert from 'node:assert/strict';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { entries, textsOfViews } from './texts.mjs';

const APP = new URL('../../../packaging/openwrt/luci-app-sqm/', import.meta.url);

const quoted = (text) => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;

test('the template and every translation have every text of the views, and no other', async () => {
    const texts = [...(await textsOfViews()).keys()].sort();
    assert.ok(texts.length > 150, `${texts.length} texts`);
    if (process.env.SQM_UPDATE) {
        const header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8"\n';
        await writeFile(new URL('po/templates/sqm.pot', APP), [header, ...texts.map((text) => `msgid ${quoted(text)}\nmsgstr ""\n`)].join('\n'));
    }
    const languages = (await readdir(new URL('po/', APP))).filter((name) => name !== 'templates');
    for (const file of ['templates/sqm.pot', ...languages.map((language) => `${language}/sqm.po`)]) {
        const found = (await entries(file)).filter(([text]) => text !== '');
        assert.deepEqual(found.map(([text]) => text).sort(), texts, file);
        for (const [text, translation] of file.startsWith('templates') ? [] : found) {
            const places = (sentence) => (sentence.match(/%[sdht%]/g) ?? []).sort();
            assert.notEqual(translation, '', `${file}: ${text}`);
            assert.deepEqual(places(translation), places(text), `${file}: ${text}`);
        }
    }
});

test('the access list has each method that a view calls, and those that change something need the right to write', async () => {
    const { 'luci-app-sqm': access } = JSON.parse(await readFile(new URL('root/usr/share/rpcd/acl.d/luci-app-sqm.json', APP)));
    const called = new Set();
    const folder = new URL('htdocs/luci-static/resources/view/network/', APP);
    for (const name of await readdir(folder)) {
        const source = await readFile(new URL(name, folder), 'utf8');
        for (const [, object, method] of source.matchAll(/object: '([\w-]+)', method: '(\w+)'/g)) called.add(`${object}.${method}`);
    }
    const methods = (rights) => Object.entries(rights.ubus).flatMap(([object, names]) => names.map((name) => `${object}.${name}`));
    assert.deepEqual([...methods(access.read), ...methods(access.write)].sort(), [...called].sort());
    const changing = ['sqm.test', 'sqm.tune', 'sqm.stop', 'luci.setInitAction'];
    assert.deepEqual(methods(access.write).sort(), changing.sort());
    const plugin = await readFile(new URL('root/usr/libexec/rpcd/sqm', APP), 'utf8');
    const offered = Object.keys(JSON.parse(plugin.match(/^\s*echo '(\{.*\})'$/m)[1])).map((name) => `sqm.${name}`);
    assert.deepEqual(offered.sort(), [...called].filter((name) => name.startsWith('sqm.')).sort());
});
