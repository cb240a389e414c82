'use strict';
'require view';
'require poll';
'require dom';
'require ui';
'require rpc';
'require sqm.chart as chart';

const callStatus = rpc.declare({ object: 'sqm', method: 'status' });
const callDaemon = rpc.declare({ object: 'sqm', method: 'daemon' });
const callPlan = rpc.declare({ object: 'sqm', method: 'plan' });
const callDoctor = rpc.declare({ object: 'sqm', method: 'doctor' });
const callInit = rpc.declare({ object: 'luci', method: 'setInitAction', params: [ 'name', 'action' ], expect: { result: false } });

/* Time between two readings of the kernel's counters, seconds. */
const EVERY_S = 3;

/* Readings that follow each other faster show bursts and no rate, milliseconds. */
const LEAST_MS = 1000;

/* Width of a chart before the page has one, pixels: it fits a telephone. */
const NARROW_PX = 360;

const STATES = {
	'new': _('not checked yet'),
	'shaped': _('shaped'),
	'waiting': _('waits for its device'),
	'stopped': _('stopped'),
	'paused': _('paused'),
	'failed': _('failed'),
	'drifted': _('changed by another program'),
	'unconfirmed': _('waits for a confirmation or another command'),
	'contested': _('another program changes its queues')
};

const DIRECTIONS = [
	[ 'ingress', _('ingress'), '#1f77b4' ],
	[ 'egress', _('egress'), '#b8560f' ]
];

function table(titles, rows) {
	return E('div', { 'style': 'overflow-x:auto' }, [ E('table', { 'class': 'table' }, [
		E('tr', { 'class': 'tr table-titles' }, titles.map((title) => E('th', { 'class': 'th' }, [ title ]))),
		...rows.map((cells) => E('tr', { 'class': 'tr' }, cells.map((cell, n) => E('td', { 'class': 'td', 'data-title': titles[n] }, [ cell ]))))
	]) ]);
}

function list(items) {
	return E('ul', { 'style': 'padding-left:2em' }, items.map((item) => E('li', {}, [ item ])));
}

/* The answer of a method, or one with the reason why there is none. */
function ask(call) {
	return call().then(
		(answer) => L.isObject(answer) ? answer : { error: _('The program sqm does not answer: is the package installed, and rpcd restarted?') },
		(error) => ({ error: error.message })
	);
}

function milliseconds(us) {
	return (us == null) ? '-' : '%s ms'.format((us / 1000).toFixed(1));
}

return view.extend({
	handleSave: null,
	handleSaveApply: null,
	handleReset: null,

	load() {
		return Promise.all([ ask(callStatus), ask(callDaemon), ask(callPlan) ]);
	},

	render([ status, daemon, plan ]) {
		this.counters = {};
		this.places = {};

		const section = (name, title) => E('div', { 'class': 'cbi-section' }, [
			E('h3', {}, [ title ]),
			this.places[name] = E('div', { 'class': 'sqm-' + name })
		]);
		const page = E('div', {}, [
			E('h2', {}, [ _('Smart Queue Management') ]),
			section('daemon', _('Daemon')),
			section('queues', _('Queues')),
			section('rates', _('Rates')),
			section('findings', _('Findings')),
			section('plan', _('Plan'))
		]);

		this.showDaemon(daemon);
		this.showQueues(status);
		this.showPlan(plan);
		this.diagnose();
		poll.add(() => this.update(), EVERY_S);

		return page;
	},

	update() {
		return Promise.all([ ask(callStatus), ask(callDaemon) ]).then(([ status, daemon ]) => {
			this.showDaemon(daemon);
			this.showQueues(status);
		});
	},

	showDaemon({ daemon, error }) {
		const place = this.places.daemon;

		if (daemon == null) {
			dom.content(place, [
				E('p', { 'class': 'alert-message warning' }, [ error || _('The daemon does not answer.') ]),
				E('button', { 'class': 'btn cbi-button cbi-button-apply', 'disabled': L.hasViewPermission() ? null : true, 'click': ui.createHandlerFn(this, 'start') }, [ _('Enable and start the service') ])
			]);
			return;
		}

		const rows = daemon.interfaces.map((one) => [
			one.interface,
			STATES[one.state] ?? one.state,
			one.why ?? (one.rate_controller == null ? '' : _('another program sets the rates')),
			'%t'.format(one.for_seconds),
			String(one.repaired)
		]);
		const { errors, warnings } = daemon.configuration;

		dom.content(place, [
			E('p', {}, [ daemon.health == 'ok' ? _('Everything that is configured is in force.') : _('Something that is configured is not in force.') ]),
			rows.length ? table([ _('Interface'), _('State'), _('Reason'), _('Since'), _('Repaired') ], rows) : E('p', {}, [ _('No interface is enabled.') ]),
			errors.length ? E('div', { 'class': 'alert-message error' }, [ _('The file has errors, and the settings from before are in force:'), list(errors) ]) : '',
			warnings.length ? E('div', { 'class': 'alert-message notice' }, [ _('Warnings:'), list(warnings) ]) : ''
		]);
	},

	start() {
		return callInit('sqm', 'enable').then(() => callInit('sqm', 'start')).then(() => this.update());
	},

	showQueues({ interfaces, error }) {
		// The daemon's part of the page has the warnings.
		const missing = (error ?? '').split('\n').filter((line) => line && !line.startsWith('warning: ')).join('\n');

		if (!Array.isArray(interfaces) || interfaces.length == 0) {
			dom.content(this.places.queues, E('p', {}, [ missing || _('There are no queues.') ]));
			dom.content(this.places.rates, []);
			return;
		}

		const now = Date.now();
		const rows = [];
		const charts = [];

		for (const one of interfaces) {
			const series = [];

			for (const [ direction, title, colour ] of DIRECTIONS) {
				const queue = one[direction];

				if (queue == null)
					continue;

				rows.push([
					'%s (%s)'.format(queue.device, title),
					queue.kind ?? '-',
					queue.rate_bits_per_sec == null ? _('not shaped') : chart.mbit(queue.rate_bits_per_sec),
					String(queue.drops),
					String(queue.marks),
					'%s B'.format(queue.backlog_bytes),
					milliseconds(queue.delay_avg_us)
				]);
				series.push({ title, colour, rates: this.rates(one.interface + ' ' + direction, queue, now) });
			}

			charts.push(E('h4', {}, [ one.interface ]), chart.render(_('Rates of %s in Mbit/s').format(one.interface), series, now, this.places.rates.clientWidth || NARROW_PX));
		}

		dom.content(this.places.queues, [ missing ? E('p', {}, [ missing ]) : '', table([ _('Device'), _('Queue'), _('Shaper rate'), _('Dropped'), _('Marked'), _('Waiting'), _('Queue delay') ], rows) ]);
		dom.content(this.places.rates, charts);
	},

	/* The rates of a queue so far, with the present counter. */
	rates(key, queue, now) {
		const root = queue.qdiscs.find((qdisc) => qdisc.parent == null);
		const samples = (this.counters[key] ??= []);

		if (root?.statistics != null && now - (samples[samples.length - 1]?.[0] ?? 0) >= LEAST_MS)
			samples.push([ now, root.statistics.sent_bytes ]);
		while (samples.length && now - samples[0][0] > chart.SHOWN_MS)
			samples.shift();

		return chart.rates(samples);
	},

	showPlan({ text, error }) {
		dom.content(this.places.plan, [
			error ? E('pre', { 'class': 'alert-message warning', 'style': 'white-space:pre-wrap' }, [ error ]) : '',
			E('p', {}, [ _('The commands that would set up the same queues by hand:') ]),
			E('pre', { 'tabindex': 0, 'style': 'overflow-x:auto' }, [ text ?? _('The configuration asks for no queues.') ])
		]);
	},

	diagnose() {
		dom.content(this.places.findings, E('p', { 'class': 'spinning' }, [ _('Looking for faults …') ]));

		return ask(callDoctor).then(({ doctor, error }) => {
			const again = E('button', { 'class': 'btn cbi-button', 'click': ui.createHandlerFn(this, 'diagnose') }, [ _('Check again') ]);

			if (doctor == null) {
				dom.content(this.places.findings, [ E('p', { 'class': 'alert-message warning' }, [ error ]), again ]);
				return;
			}

			const findings = doctor.findings.map((finding) => E('div', { 'class': 'alert-message warning' }, [
				E('strong', {}, [ finding.interface == null ? finding.what : '%s: %s'.format(finding.interface, finding.what) ]),
				list(finding.evidence),
				E('p', {}, [ finding.remedy ])
			]));

			dom.content(this.places.findings, [
				E('p', {}, [ findings.length ? _('%d things were checked.').format(doctor.checks) : _('%d things were checked, and no fault was found.').format(doctor.checks) ]),
				...findings,
				doctor.unknown.length ? E('div', {}, [ _('Not known:'), list(doctor.unknown) ]) : '',
				again
			]);
		});
	}
});
