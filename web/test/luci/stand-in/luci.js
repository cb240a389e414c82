/**
 * A stand-in for LuCI's modules, as far as the views use them, written from LuCI's documentation: https://openwrt.github.io/luci/jsapi/
 * It has the same calls, elements, classes of elements and requests.
 */

window.E = (name, attributes = {}, children = []) => {
    if (Array.isArray(name)) {
        const fragment = document.createDocumentFragment();
        window.LuCI.dom.append(fragment, name);
        return fragment;
    }
    const isChild = Array.isArray(attributes) || attributes instanceof Node || typeof attributes === 'string';
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(isChild ? {} : attributes)) {
        if (typeof value === 'function') element.addEventListener(key, value);
        else if (value !== null && value !== undefined) element.setAttribute(key, value);
    }
    window.LuCI.dom.append(element, isChild ? attributes : children);
    return element;
};

window.LuCI = class LuCI {
    constructor(env) {
        this.env = env;
    }

    /** Loads a module and those that it names by strings such as `'require form'`. */
    require(name) {
        this.modules ??= new Map(Object.entries(LuCI.builtIn(this)).map(([key, module]) => [key, Promise.resolve(module)]));
        if (!this.modules.has(name)) this.modules.set(name, this.load(name));
        return this.modules.get(name);
    }

    async load(name) {
        const response = await fetch(`${this.env.resource}/${name.replaceAll('.', '/')}.js`);
        if (!response.ok) throw new Error(`there is no module ${name}`);
        const source = await response.text();
        const wanted = [...source.matchAll(/^'require (\S+?)(?: as (\w+))?';$/gm)];
        const modules = await Promise.all(wanted.map(([, module]) => this.require(module)));
        const names = wanted.map(([, module, as]) => as ?? module.replace(/\W/g, '_'));
        const factory = new Function('window', 'document', 'L', ...names, source);
        return new (factory(window, document, this, ...modules))();
    }

    resolveDefault(value, otherwise) {
        return Promise.resolve(value).catch(() => otherwise);
    }

    /** False for users who may only read. */
    hasViewPermission() {
        return !this.env.nodespec.readonly;
    }

    isObject(value) {
        return value !== null && typeof value === 'object';
    }
};

/** Classes: `extend` makes a subclass with these members, and `this.super('name', [arguments])` calls the method of the class above. */
LuCI.base = class {
    static extend(members) {
        const Class = class extends this {};
        for (const key of Object.keys(members)) Object.defineProperty(Class.prototype, key, { value: members[key], writable: true, enumerable: true });
        return Class;
    }

    constructor(...values) {
        this.__init__?.(...values);
    }

    super(name, values) {
        const at = (this.callers ??= {});
        let prototype = at[name] ?? Object.getPrototypeOf(this);
        while (!Object.hasOwn(prototype, name)) prototype = Object.getPrototypeOf(prototype);
        do prototype = Object.getPrototypeOf(prototype);
        while (!Object.hasOwn(prototype, name));
        const before = at[name];
        at[name] = prototype;
        try {
            return prototype[name].apply(this, values);
        } finally {
            at[name] = before;
        }
    }
};

LuCI.instances = new WeakMap();
LuCI.dom = {
    /** Text of an array is text, a bare text is HTML. */
    append(element, children) {
        if (Array.isArray(children)) {
            for (const child of children) element.append(child instanceof Node ? child : document.createTextNode(String(child ?? '')));
        } else if (children instanceof Node) element.append(children);
        else if (children !== null && children !== undefined) element.innerHTML = String(children);
    },
    content(element, children) {
        element.replaceChildren();
        LuCI.dom.append(element, children);
    },
    bindClassInstance: (element, instance) => LuCI.instances.set(element, instance),
    findClassInstance(element) {
        for (let node = element; node; node = node.parentNode) if (LuCI.instances.has(node)) return LuCI.instances.get(node);
        return null;
    },
};

LuCI.builtIn = (L) => {
    const { base, dom } = LuCI;
    const baseclass = { extend: (members) => base.extend(members) };

    let id = 0;
    const rpc = {
        declare: ({ object, method, params = [], expect }) => async (...values) => {
            const named = Object.fromEntries(params.map((name, n) => [name, values[n]]));
            const body = JSON.stringify({ jsonrpc: '2.0', id: ++id, method: 'call', params: [L.env.sessionid, object, method, named] });
            const response = await fetch(`${L.env.ubuspath}${object}.${method}`, { method: 'POST', body });
            const { result } = await response.json();
            let answer = result.length > 1 ? result[1] : result[0];
            for (const [key, otherwise] of Object.entries(expect ?? {})) {
                if (key !== '') answer = answer?.[key];
                if (Object.prototype.toString.call(answer) !== Object.prototype.toString.call(otherwise)) answer = otherwise;
            }
            return answer;
        },
    };

    const uci = makeUci(rpc);
    const ui = makeUi(dom, base, L);
    const form = makeForm(dom, base, uci, ui);
    const poll = {
        add(call, seconds) {
            const run = async () => {
                await call();
                setTimeout(run, seconds * 1000);
            };
            setTimeout(run, seconds * 1000);
        },
    };

    const View = base.extend({
        async __init__() {
            const place = document.getElementById('view');
            dom.content(place, [E('div', { class: 'spinning' }, [_('Loading view…')])]);
            const nodes = await this.render(await this.load());
            dom.content(place, nodes);
            const buttons = [['handleSaveApply', 'apply', _('Save & Apply')], ['handleSave', 'save', _('Save')], ['handleReset', 'reset', _('Reset')]].filter(([handler]) => this[handler]);
            if (buttons.length > 0) {
                place.append(E('div', { class: 'cbi-page-actions' }, buttons.map(([handler, kind, title]) =>
                    E('button', { class: `btn cbi-button cbi-button-${kind}`, click: (event) => this[handler](event, '0') }, [title])
                )));
            }
        },
        load() {},
        handleReset() {
            for (const map of document.querySelectorAll('.cbi-map')) dom.findClassInstance(map).reset();
        },
    });

    ui.instantiateView = (path) => L.require(`view.${path.replaceAll('/', '.')}`);
    return { baseclass, dom, rpc, uci, ui, form, poll, view: View };
};

/** The configuration, with changes that `save` sends. An option that is set to nothing is deleted. */
function makeUci(rpc) {
    const call = (method, params) => rpc.declare({ object: 'uci', method, params });
    const [get, set, add, remove] = [call('get', ['config']), call('set', ['config', 'section', 'values']), call('add', ['config', 'type', 'name', 'values']), call('delete', ['config', 'section', 'options'])];
    const uci = {
        stored: {}, added: {}, changed: {}, deleted: {},
        async load(config) {
            if (!uci.stored[config]) uci.stored[config] = (await get(config)).values;
        },
        sections(config, type) {
            const stored = Object.values(uci.stored[config] ?? {}).filter((section) => uci.deleted[section['.name']] !== true);
            const all = [...stored.map((section) => uci.section(section)), ...Object.values(uci.added)];
            return all.filter((section) => !type || section['.type'] === type).map((section, n) => ({ ...section, '.index': n }));
        },
        section(section) {
            const now = { ...section, ...uci.changed[section['.name']] };
            for (const option of uci.deleted[section['.name']] ?? []) delete now[option];
            return now;
        },
        get(config, name, option) {
            const section = uci.added[name] ?? uci.stored[config]?.[name];
            return section && uci.section(section)[option];
        },
        set(config, name, option, value) {
            if (uci.added[name]) uci.added[name][option] = value;
            else {
                uci.deleted[name]?.delete(option);
                (uci.changed[name] ??= {})[option] = value;
            }
        },
        unset(config, name, option) {
            delete uci.added[name]?.[option];
            delete uci.changed[name]?.[option];
            if (uci.stored[config]?.[name]?.[option] !== undefined) (uci.deleted[name] ??= new Set()).add(option);
        },
        add(config, type) {
            const name = `new${Object.keys(uci.added).length}`;
            uci.added[name] = { '.type': type, '.name': name, '.anonymous': true };
            return name;
        },
        remove(config, name) {
            if (uci.added[name]) delete uci.added[name];
            else uci.deleted[name] = true;
        },
        async save() {
            for (const [name, options] of Object.entries(uci.deleted)) {
                if (options === true) await remove('sqm', name);
                else if (options.size > 0) await remove('sqm', name, [...options]);
            }
            for (const section of Object.values(uci.added)) {
                const options = Object.entries(section).filter(([key]) => !key.startsWith('.'));
                await add('sqm', section['.type'], undefined, Object.fromEntries(options));
            }
            for (const [name, values] of Object.entries(uci.changed)) if (Object.keys(values).length > 0) await set('sqm', name, values);
            Object.assign(uci, { stored: {}, added: {}, changed: {}, deleted: {} });
            await uci.load('sqm');
        },
    };
    return uci;
}

function makeUi(dom, base, L) {
    const Element = base.extend({
        __init__(value, ...rest) {
            this.value = value;
            this.options = rest.pop();
            [this.choices] = rest;
        },
        render() {
            const control = this.control();
            this.node = E('div', { id: this.options.id }, [control, ...this.after(control)]);
            control.disabled = Boolean(this.options.disabled);
            control.addEventListener('change', () => this.node.dispatchEvent(new CustomEvent('widget-change', { bubbles: true })));
            control.addEventListener('keyup', () => this.node.dispatchEvent(new CustomEvent('widget-update', { bubbles: true })));
            dom.bindClassInstance(this.node, this);
            return this.node;
        },
        after: () => [],
        getValue() {
            return this.node.firstChild.value;
        },
    });
    const Textfield = Element.extend({
        control() {
            return E('input', { id: `widget.${this.options.id}`, type: 'text', class: 'cbi-input-text', placeholder: this.options.placeholder, value: this.value });
        },
    });
    const Checkbox = Element.extend({
        control() {
            const isOn = this.value === this.options.value_enabled;
            this.number = `cb${Math.random().toString(16).slice(2)}`;
            return E('input', { id: this.number, type: 'checkbox', 'data-widget-id': `widget.${this.options.id}`, checked: isOn ? '' : null });
        },
        after() {
            return [E('label', { for: this.number })];
        },
        getValue() {
            return this.node.firstChild.checked ? this.options.value_enabled : this.options.value_disabled;
        },
    });
    const Select = Element.extend({
        control() {
            const keys = this.options.sort.filter((key) => key !== '');
            if (this.options.optional || '' in this.choices) keys.unshift('');
            return E('select', { id: `widget.${this.options.id}`, class: 'cbi-input-select' }, keys.map((key) =>
                E('option', { value: key, selected: key === this.value ? '' : null }, [this.choices[key] ?? this.options.placeholder ?? _('-- Please choose --')])
            ));
        },
    });
    const ui = {
        Textfield, Checkbox, Select,
        changes: { apply: () => document.dispatchEvent(new CustomEvent('stand-in-apply')) },
        createHandlerFn: (context, handler, ...values) => async (event) => {
            const button = event.currentTarget;
            button.classList.add('spinning');
            try {
                await (typeof handler === 'string' ? context[handler] : handler).call(context, ...values, event);
            } finally {
                button.classList.remove('spinning');
            }
        },
        showModal(title, children) {
            ui.hideModal();
            document.body.append(E('div', { id: 'modal_overlay' }, [E('div', { class: 'modal', role: 'dialog', 'aria-modal': 'true', 'aria-label': title }, [E('h4', {}, [title]), ...children])]));
        },
        hideModal: () => document.getElementById('modal_overlay')?.remove(),
        addNotification(title, children, kind) {
            document.getElementById('maincontent').prepend(E('div', { class: `alert-message ${kind ?? ''}`, role: 'alert' }, [children]));
        },
        /** Makes a row of tabs before a group of elements, each with `data-tab`. */
        initTabGroup(panes) {
            const show = (name) => {
                for (const pane of panes) pane.style.display = pane.dataset.tab === name ? '' : 'none';
                for (const item of menu.children) item.className = item.dataset.tab === name ? 'cbi-tab' : 'cbi-tab-disabled';
            };
            const menu = E('ul', { class: 'cbi-tabmenu' }, panes.map((pane) => E('li', { 'data-tab': pane.dataset.tab }, [
                E('a', { href: '#', click: (event) => (event.preventDefault(), show(pane.dataset.tab)) }, [pane.dataset.tabTitle]),
            ])));
            panes[0].parentNode.parentNode.insertBefore(menu, panes[0].parentNode);
            show(panes[0].dataset.tab);
        },
    };
    return ui;
}

function makeForm(dom, base, uci, ui) {
    const Value = base.extend({
        __init__(map, section, option, title, description) {
            Object.assign(this, { map, section, option, title, description, values: {}, fields: {}, rmempty: true, retain: false });
        },
        cbid(name) {
            return `cbid.${this.map.config}.${name}.${this.option}`;
        },
        cfgvalue(name) {
            return this.values[name] ?? null;
        },
        load(name) {
            this.values[name] = uci.get(this.map.config, name, this.option);
        },
        field(name) {
            return this.map.root ? this.fields[name] : undefined;
        },
        getUIElement(name) {
            const node = this.field(name)?.querySelector(`[id="${this.cbid(name)}"]`);
            return node ? dom.findClassInstance(node) : null;
        },
        formvalue(name) {
            return this.getUIElement(name)?.getValue() ?? null;
        },
        isActive(name) {
            return this.field(name)?.classList.contains('hidden') === false;
        },
        checkDepends: () => true,
        write(name, value) {
            return uci.set(this.map.config, name, this.option, value);
        },
        remove(name) {
            return uci.unset(this.map.config, name, this.option);
        },
        async parse(name) {
            if (!this.isActive(name)) return this.retain ? undefined : this.remove(name);
            const value = this.formvalue(name);
            if (value === null || value === '') return this.remove(name);
            return value === this.cfgvalue(name) ? undefined : this.write(name, value);
        },
        renderWidget(name, index, value) {
            return new ui.Textfield(value ?? '', { id: this.cbid(name) }).render();
        },
        async render(index, name) {
            const widget = await this.renderWidget(name, index, this.cfgvalue(name));
            const field = E('div', { class: 'cbi-value', id: `cbi-${this.map.config}-${name}-${this.option}`, 'data-field': this.cbid(name), 'data-name': this.option });
            // LuCI's label of a check box names an element that does not exist, and clicks the box by itself.
            const label = E('label', { class: 'cbi-value-title', for: `widget.${this.cbid(name)}`, click: () => field.querySelector('[data-widget-id]')?.click() }, this.title);
            field.append(label, E('div', { class: 'cbi-value-field' }, [widget]));
            if (this.description) field.lastChild.append(E('div', { class: 'cbi-value-description' }, this.description));
            field.addEventListener('widget-change', () => this.map.checkDepends());
            dom.bindClassInstance(field, this);
            this.fields[name] = field;
            return field;
        },
    });

    const TypedSection = base.extend({
        __init__(map, type, title) {
            Object.assign(this, { map, type, title, children: [], tabs: [] });
        },
        cfgsections() {
            return uci.sections(this.map.config, this.type).map((section) => section['.name']);
        },
        tab(name, title) {
            this.tabs.push({ name, title });
        },
        taboption(tab, Class, ...values) {
            const option = new Class(this.map, this, ...values);
            option.tab = tab;
            this.children.push(option);
            return option;
        },
        load() {
            for (const name of this.cfgsections()) for (const option of this.children) option.load(name);
        },
        async parse() {
            for (const name of this.cfgsections()) for (const option of this.children) await option.parse(name);
        },
        checkDepends() {
            for (const name of this.cfgsections()) for (const option of this.children) option.field(name)?.classList.toggle('hidden', !option.checkDepends(name));
        },
        handleAdd() {
            uci.add(this.map.config, this.type);
            return this.map.save(null, true);
        },
        handleRemove(name) {
            uci.remove(this.map.config, name);
            return this.map.save(null, true);
        },
        renderUCISection(name) {
            return Promise.all(this.tabs.map(async ({ name: tab, title }) => {
                const fields = await Promise.all(this.children.filter((option) => option.tab === tab).map((option, n) => option.render(n, name)));
                return E('div', { 'data-tab': tab, 'data-tab-title': title }, fields);
            }));
        },
        renderContents(names, nodes) {
            const section = E('div', { class: 'cbi-section', id: `cbi-${this.map.config}-${this.type}` });
            names.forEach((name, n) => section.append(
                E('div', { class: 'cbi-section-remove right' }, [E('button', { class: 'cbi-button', click: ui.createHandlerFn(this, 'handleRemove', name) }, [_('Delete')])]),
                E('div', { class: 'cbi-section-node cbi-section-node-tabbed', id: `cbi-${this.map.config}-${name}`, 'data-section-id': name }, nodes[n])
            ));
            section.append(E('div', { class: 'cbi-section-create' }, [E('button', { class: 'cbi-button cbi-button-add', click: ui.createHandlerFn(this, 'handleAdd') }, [_('Add')])]));
            return section;
        },
        async render() {
            const names = this.cfgsections();
            return this.renderContents(names, await Promise.all(names.map((name) => this.renderUCISection(name))));
        },
    });

    const Map = base.extend({
        __init__(config, title, description) {
            Object.assign(this, { config, title, description, children: [] });
        },
        section(Class, ...values) {
            const section = new Class(this, ...values);
            this.children.push(section);
            return section;
        },
        async load() {
            await uci.load(this.config);
            for (const section of this.children) section.load();
        },
        async parse() {
            for (const section of this.children) await section.parse();
        },
        checkDepends() {
            for (const section of this.children) section.checkDepends();
        },
        async save(call) {
            await this.parse();
            await call?.();
            await uci.save();
            await this.load();
            return this.renderContents();
        },
        reset() {
            return this.renderContents();
        },
        async render() {
            await this.load();
            return this.renderContents();
        },
        async renderContents() {
            this.root ??= E('div', { id: `cbi-${this.config}`, class: 'cbi-map' });
            dom.bindClassInstance(this.root, this);
            const nodes = await Promise.all(this.children.map((section) => section.render()));
            dom.content(this.root, [E('h2', {}, [this.title]), E('div', { class: 'cbi-map-descr' }, [this.description]), ...nodes]);
            this.checkDepends();
            for (const group of this.root.querySelectorAll('.cbi-section-node-tabbed')) ui.initTabGroup([...group.children]);
            return this.root;
        },
    });

    return { Map, TypedSection, Value };
}
