'use strict';
'require view';
'require form';
'require uci';
'require ui';
'require rpc';
'require sqm.options as registry';
'require sqm.fields as fields';
'require sqm.text as text';

const callCheck = rpc.declare({ object: 'sqm', method: 'check', params: [ 'text' ] });
const callFeatures = rpc.declare({ object: 'sqm', method: 'features' });
const callDevices = rpc.declare({ object: 'luci-rpc', method: 'getNetworkDevices', expect: { '': {} } });

/* Time after an edit until the program checks the form, milliseconds: about one pause in typing. */
const CHECK_AFTER_MS = 400;

const TABS = [
	[ 'basic', _('Basic Settings') ],
	[ 'queue', _('Queue Discipline') ],
	[ 'link', _('Link Layer Adaptation') ]
];

const DIRECTIONS = { egress: _('egress'), ingress: _('ingress') };

/* The unit of a value without one, and examples. */
const EXAMPLES = {
	rate: _('such as 85mbit; a bare number is kbit/s'),
	time: _('such as 5ms'),
	size: _('such as 4mb'),
	mask: _('such as 0xff')
};

/* One message of the program. */
function finding(what, kind) {
	const suggestion = what.suggestion == null ? '' : '. ' + _('Did you mean "%s"?').format(what.suggestion);
	const option = what.option == null ? '' : '%s: '.format(what.option);

	return E('li', { 'class': 'sqm-' + kind }, [ option + what.message + suggestion ]);
}

const Section = form.TypedSection.extend({
	__name__: 'Sqm.Section',

	/* The chosen level of a tab. */
	levelOf(tab, section_id) {
		return this.levels[tab].formvalue(section_id) ?? 'basic';
	},

	/* A new section shapes nothing until its line is known, so that it is no error. */
	handleAdd(ev) {
		const section_id = uci.add('sqm', 'queue');

		uci.set('sqm', section_id, 'enabled', '0');
		uci.set('sqm', section_id, 'script', 'best_of_cake.qos');

		return this.map.save(null, true);
	},

	/* The section as it would be saved now. */
	current(section) {
		const edited = Object.assign({}, section);

		for (const field of this.children)
			if (field.known != null)
				edited[field.option] = field.currentvalue(section['.name']);

		return edited;
	},

	isEdited(section_id) {
		return this.children.some((field) => field.known != null && field.isEdited(section_id));
	},

	/* Each section has its name and a place for what the program says about it, above its tabs. */
	renderContents(cfgsections, nodes) {
		const node = this.super('renderContents', [ cfgsections, nodes ]);

		for (const section_id of cfgsections) {
			const section = node.querySelector('[id="cbi-sqm-%s"]'.format(section_id));
			const name = uci.get('sqm', section_id, 'interface');

			section.parentNode.insertBefore(E('h3', { 'class': 'sqm-name' }, [ fields.shown(name) || _('New section') ]), section);
			section.parentNode.insertBefore(E('div', { 'class': 'sqm-findings', 'data-section': section_id, 'role': 'status' }), section);
		}

		return node;
	}
});

const SqmMap = form.Map.extend({
	__name__: 'Sqm.Map',

	renderContents() {
		return this.super('renderContents', []).then((node) => {
			if (!this.is_watched) {
				this.is_watched = true;
				for (const event of [ 'widget-change', 'widget-update' ])
					node.addEventListener(event, () => this.checkSoon());
			}

			this.check();

			return node;
		});
	},

	checkSoon() {
		window.clearTimeout(this.timer);
		this.timer = window.setTimeout(() => this.check(), CHECK_AFTER_MS);
	},

	/* All sections of the file as they would be saved now. */
	sections() {
		return uci.sections('sqm').map((section) =>
			(section['.type'] == 'queue') ? this.queues.current(section) : section);
	},

	/* Asks the program about the form and shows its answer. Resolves to the errors of edited sections; without an answer there are
	   none. */
	check() {
		const sections = this.sections();

		return L.resolveDefault(callCheck(text.of(sections)), null).then((answer) => {
			if (!Array.isArray(answer?.check?.errors))
				return [];

			const nameOf = (what) => sections[what.section]?.['.name'];

			this.show(answer.check, nameOf);

			return answer.check.errors.filter((error) => nameOf(error) == null || this.queues.isEdited(nameOf(error)));
		});
	},

	show(answer, nameOf) {
		this.root.querySelectorAll('.sqm-findings').forEach((place) => {
			const ofSection = (what) => nameOf(what) == place.getAttribute('data-section');
			const items = [
				...answer.errors.filter(ofSection).map((what) => finding(what, 'error')),
				...answer.warnings.filter(ofSection).map((what) => finding(what, 'warning'))
			];

			place.replaceChildren(...(items.length ? [ E('div', { 'class': 'alert-message warning' }, [ E('ul', { 'style': 'padding-left:2em' }, items) ]) ] : []));
		});
		this.root.querySelectorAll('[data-field]').forEach((field) => {
			const [ , , section_id, option ] = field.getAttribute('data-field').split('.');
			const is_wrong = answer.errors.some((what) => what.option == option && nameOf(what) == section_id);

			field.querySelectorAll('input, select').forEach((control) => {
				control.classList.toggle('cbi-input-invalid', is_wrong);
				if (is_wrong)
					control.setAttribute('aria-invalid', 'true');
				else
					control.removeAttribute('aria-invalid');
			});
		});
	}
});

/* What an option means, and what holds without it. */
function description(known) {
	const standard = (known.standard == null || known.kind == 'switch') ? '' : ' ' + _('Default: %s.').format(known.standard);
	const example = EXAMPLES[known.kind] == null ? '' : ' (' + EXAMPLES[known.kind] + ')';

	return '%h'.format(known.about + example + standard);
}

/* True if an option takes the name of a setup script. */
function takesScript(known) {
	return (known.choices ?? []).some(([ word ]) => word == 'best_of_cake.qos');
}

function addField(section, known, { devices, scripts }) {
	const direction = known.direction == null ? '' : ' (%s)'.format(DIRECTIONS[known.direction]);
	const field = section.taboption(known.tab, fields.classOf(known), known.name, '%h'.format(known.title + direction), description(known));

	field.known = known;
	field.rmempty = true;
	field.retain = true;
	field.unset = (known.standard != null) ? _('not set (%s)').format(known.standard) : _('not set');
	field.placeholder = known.standard ?? known.unit;
	field.choices = (known.choices ?? []).map(([ word, about ]) => [ word, '%s: %s'.format(word, about) ]);
	if (takesScript(known))
		field.choices.push(...scripts.map((name) => [ name, _('%s: your own').format(name) ]));
	field.suggestions = (known.kind == 'device') ? devices.map((name) => [ name ]) : known.choices;
}

return view.extend({
	load() {
		return Promise.all([
			L.resolveDefault(callDevices(), {}),
			L.resolveDefault(callFeatures(), {}),
			uci.load('sqm')
		]);
	},

	render([ devices, features ]) {
		const found = {
			devices: Object.keys(devices ?? {}).filter((name) => name != 'lo' && !name.startsWith('ifb')).sort(),
			scripts: Array.isArray(features?.scripts) ? features.scripts : []
		};
		const map = new SqmMap('sqm', _('Smart Queue Management'), _('Queues against bufferbloat, for each line to the internet.'));
		const section = map.section(Section, 'queue');

		this.map = map;
		map.queues = section;
		section.anonymous = true;
		section.addremove = true;
		section.levels = {};

		for (const [ tab, title ] of TABS) {
			section.tab(tab, title);

			for (const known of registry.options)
				if (known.tab == tab && known.level == 'basic')
					addField(section, known, found);

			section.levels[tab] = section.taboption(tab, fields.LevelField, '_options_' + tab, _('Show options'));

			for (const known of registry.options)
				if (known.tab == tab && known.level != 'basic')
					addField(section, known, found);
		}

		return map.render();
	},

	handleSave(ev) {
		return this.save();
	},

	handleSaveApply(ev, mode) {
		return this.save().then((is_saved) => {
			if (is_saved)
				ui.changes.apply(mode == '0');
		});
	},

	/* Resolves to false if the program refuses an edit: then nothing is saved. */
	save() {
		return this.map.check().then((errors) => {
			if (errors.length == 0)
				return this.map.save().then(() => true);

			ui.showModal(_('Nothing was saved'), [
				E('p', {}, [ _('sqm refuses these settings:') ]),
				E('ul', {}, errors.map((error) => finding(error, 'error'))),
				E('div', { 'class': 'right' }, [
					E('button', { 'class': 'cbi-button', 'click': ui.hideModal }, [ _('Dismiss') ])
				])
			]);

			return false;
		});
	}
});
