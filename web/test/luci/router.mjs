/** A router's web server for tests of the LuCI application: its files, and ubus as rpcd answers it, with a configuration in memory. */

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const APP = fileURLToPath(new URL('../../../packaging/openwrt/luci-app-sqm/', import.meta.url));
const STAND_IN = fileURLToPath(new URL('stand-in/', import.meta.url));
const TYPES = { js: 'text/javascript', css: 'text/css' };

/** Codes of ubus. */
const OK = 0;
const NOT_FOUND = 4;

/** The sections of a file in UCI's format, as `uci get` returns them. The texts of the tests have no escapes but those in quotes. */
export function parsed(text) {
    const words = (line) => [...line.matchAll(/((?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\])+)/g)].map(([word]) => word.replace(/'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)/g, (_, single, double, escaped) => single ?? double?.replace(/\\(.)/g, '$1') ?? escaped));
    const sections = [];
    for (const line of text.split('\n')) {
        if (/^\s*(#|$)/.test(line)) continue;
        const [statement, ...rest] = words(line);
        const section = sections.at(-1);
        if (statement === 'config') {
            const name = rest[1] ?? `cfg${(sections.length + 1).toString(16).padStart(2, '0')}abcd`;
            sections.push({ '.anonymous': rest[1] === undefined, '.type': rest[0], '.name': name, '.index': sections.length });
        } else if (statement === 'option') section[rest[0]] = rest[1] ?? '';
        else if (statement === 'list') section[rest[0]] = [...(section[rest[0]] ?? []), rest[1]];
        else throw new Error(`not understood: ${line}`);
    }
    return Object.fromEntries(sections.map((section) => [section['.name'], section]));
}

export class Router {
    /** Requests that change something: `[method, parameters]`. */
    changes = [];
    /** Requests of the object `sqm`, likewise. */
    calls = [];

    /**
     * @param text the configuration
     * @param sqm answers a method of the object `sqm`; undefined means that there is no such object
     */
    constructor(text, sqm, { view = 'network/sqm', resources = STAND_IN, media = STAND_IN, translations = {}, isReadOnly = false } = {}) {
        Object.assign(this, { sections: parsed(text), sqm, view, resources, media, translations, isReadOnly });
    }

    async listen() {
        this.server = createServer((request, response) => void this.answer(request, response));
        await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
        this.url = `http://127.0.0.1:${this.server.address().port}/`;
        return this;
    }

    close() {
        this.server.closeAllConnections();
        this.server.close();
    }

    async answer(request, response) {
        const { pathname } = new URL(request.url, this.url);
        const send = (status, type, text) => response.writeHead(status, { 'content-type': type }).end(text);
        if (request.method === 'POST') {
            const chunks = [];
            for await (const chunk of request) chunks.push(chunk);
            const body = JSON.parse(Buffer.concat(chunks).toString() || '{}');
            const replies = Array.isArray(body) ? await Promise.all(body.map((one) => this.reply(one))) : await this.reply(body);
            return send(200, 'application/json', JSON.stringify(replies));
        }
        if (pathname === '/') return send(200, 'text/html', this.page());
        if (pathname === '/translations.js') return send(200, 'text/javascript', `window.TR = ${JSON.stringify(this.translations)};`);
        const file = pathname.replace(/^\/luci-static\/(resources|media)\//, '');
        for (const folder of [join(APP, 'htdocs/luci-static/resources'), this.resources, this.media]) {
            const content = await readFile(join(folder, file)).catch(() => null);
            if (content !== null) return send(200, TYPES[file.split('.').pop()] ?? 'application/octet-stream', content);
        }
        return send(pathname === '/favicon.ico' ? 204 : 404, 'text/plain', '');
    }

    /** The frame around each view, of LuCI's documented elements. */
    page() {
        const environment = {
            token: 't', resource: '/luci-static/resources', media: '/luci-static/media', scriptname: '/cgi-bin/luci', pathinfo: '/admin/network/sqm', documentroot: '/www',
            requestpath: ['admin', 'network', 'sqm'], dispatchpath: ['admin', 'network', 'sqm'], pollinterval: 5, ubuspath: '/ubus/', sessionid: '1'.repeat(32),
            nodespec: { satisfied: true, readonly: this.isReadOnly }, apply_rollback: 90, apply_holdoff: 4, apply_timeout: 5, apply_display: 1.5, rollback_token: null,
        };
        return `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>SQM</title><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/luci-static/media/cascade.css"><script src="/translations.js"></script><script src="/luci-static/resources/cbi.js"></script></head>
<body class="lang_en" data-page="admin-network-sqm"><header><a class="brand" href="/">router</a><ul class="nav" id="topmenu" style="display:none"></ul><div id="indicators" class="pull-right"></div></header>
<main id="maincontent" class="container"><div id="tabmenu" style="display:none"></div><div id="view"></div></main>
<script src="/luci-static/resources/luci.js"></script><script>L = new LuCI(${JSON.stringify(environment)}); L.require('ui').then((ui) => ui.instantiateView(${JSON.stringify(this.view)}));</script></body></html>`;
    }

    async reply({ id, method, params }) {
        const [, object, name, values] = params ?? [];
        const result = method === 'list' ? {} : await this.call(object, name, values ?? {});
        return { jsonrpc: '2.0', id, result };
    }

    async call(object, method, values) {
        if (object === 'session') return [OK, { access: !this.isReadOnly }];
        if (object === 'luci-rpc') return [OK, { lo: {}, eth0: {}, eth1: {}, ifb4eth1: {}, 'pppoe-wan': {} }];
        if (object === 'luci') {
            this.changes.push([method, values]);
            return [OK, { result: true }];
        }
        if (object === 'uci') return this.uci(method, values);
        if (object !== 'sqm' || !this.sqm) return [NOT_FOUND];
        this.calls.push([method, values]);
        return [OK, await this.sqm(method, values)];
    }

    uci(method, { config, section, type, name, values, options }) {
        if (method === 'get') return config === 'sqm' ? [OK, { values: this.sections }] : [OK, { values: {} }];
        if (method === 'changes') return [OK, { changes: {} }];
        if (config !== undefined) this.changes.push([method, { section, type, name, values, options }]);
        const sections = this.sections;
        if (method === 'set') Object.assign(sections[section], values);
        else if (method === 'delete' && options) for (const option of options) delete sections[section][option];
        else if (method === 'delete') delete sections[section];
        else if (method === 'add') {
            const added = name ?? `cfg${(Object.keys(sections).length + 1).toString(16).padStart(2, '0')}abcd`;
            sections[added] = { '.anonymous': name === undefined, '.type': type, '.name': added, '.index': Object.keys(sections).length, ...values };
            return [OK, { section: added }];
        }
        return [OK, {}];
    }
}
