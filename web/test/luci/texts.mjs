/** The texts of the LuCI application: those of its views, and their translations. */

import { readFile, readdir } from 'node:fs/promises';

const APP = new URL('../../../packaging/openwrt/luci-app-sqm/', import.meta.url);

/** A string of JavaScript in quotes. */
const unquoted = (text) => text.slice(1, -1).replace(/\\(.)/g, '$1');

/** Each text that a view translates, and where it is. */
export async function textsOfViews() {
    const folder = new URL('htdocs/luci-static/resources/', APP);
    const texts = new Map();
    for (const name of (await readdir(folder, { recursive: true })).filter((file) => file.endsWith('.js')).sort()) {
        const source = await readFile(new URL(name, folder), 'utf8');
        for (const { 1: text, index } of source.matchAll(/\b_\(('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)/g)) {
            const line = source.slice(0, index).split('\n').length;
            texts.set(unquoted(text), [...(texts.get(unquoted(text)) ?? []), `${name}:${line}`]);
        }
    }
    const menu = JSON.parse(await readFile(new URL('root/usr/share/luci/menu.d/luci-app-sqm.json', APP)));
    for (const { title } of Object.values(menu)) texts.set(title, [...(texts.get(title) ?? []), 'menu']);
    const access = JSON.parse(await readFile(new URL('root/usr/share/rpcd/acl.d/luci-app-sqm.json', APP)));
    for (const { description } of Object.values(access)) texts.set(description, ['access']);
    return texts;
}

/** The entries of a file of GNU gettext: text and translation, each of which may continue on further lines. */
export async function entries(name) {
    const source = await readFile(new URL(`po/${name}`, APP), 'utf8');
    const joined = (lines) => [...lines.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, part]) => part).join('').replace(/\\(.)/g, (_, character) => (character === 'n' ? '\n' : character));
    return [...source.matchAll(/^msgid ((?:"(?:[^"\\]|\\.)*"\s*)+)msgstr ((?:"(?:[^"\\]|\\.)*"\s*)+)/gm)].map(([, text, translation]) => [joined(text), joined(translation)]);
}

export const germanTexts = async () => Object.fromEntries((await entries('de/sqm.po')).filter(([text]) => text !== ''));
