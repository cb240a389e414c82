'use strict';
'require view';
'require poll';
'require dom';
'require ui';
'require rpc';

const callFeatures = rpc.declare({ object: 'sqm', method: 'features' });
const callJob = rpc.declare({ object: 'sqm', method: 'job' });
const callTest = rpc.declare({ object: 'sqm', method: 'test', params: [ 'host' ] });
const callTune = rpc.declare({ object: 'sqm', method: 'tune', params: [ 'host' ] });
const callStop = rpc.declare({ object: 'sqm', method: 'stop' });

/* Time between two readings of the progress, seconds. */
const EVERY_S = 1;

const STAGES = {
	idle: _('idle line'),
	load: _('line under load'),
	after: _('idle line after the load'),
	collect: _('collecting the samples')
};

function number(value, unit) {
	return (value == null) ? '-' : '%s %s'.format(value.toFixed(1), unit);
}

return view.extend({
	handleSave: null,
	handleSaveApply: null,
	handleReset: null,

	load() {
		return Promise.all([ L.resolveDefault(callFeatures(), {}), L.resolveDefault(callJob(), {}) ]);
	},

	render([ features, job ]) {
		const has_tune = features?.tune === true;

		this.host = new ui.Textfield(job?.host ?? '', { id: 'sqm-host', placeholder: 'server.example' });
		this.state = E('div', { 'class': 'cbi-section', 'role': 'status' });
		this.output = E('pre', { 'tabindex': 0, 'style': 'overflow-x:auto;display:none' });
		this.buttons = [
			this.button('test', _('Start a test'), callTest),
			...(has_tune ? [ this.button('tune', _('Find the best rates'), callTune) ] : [])
		];
		this.stop = E('button', { 'class': 'btn cbi-button cbi-button-negative', 'click': ui.createHandlerFn(this, () => callStop().then(() => this.update())) }, [ _('Stop') ]);

		const page = E('div', {}, [
			E('h2', {}, [ _('Test') ]),
			E('p', {}, [ _('Measures latency while the line is full, against a machine beyond the line that runs "sqm serve". The test fills the line for about 40 seconds.') ]),
			has_tune ? E('p', {}, [ _('Finding the best rates takes about a minute and a half; the shaping from before is back afterwards.') ]) : '',
			E('div', { 'class': 'cbi-value' }, [
				E('label', { 'class': 'cbi-value-title', 'for': 'widget.sqm-host' }, [ _('Server') ]),
				E('div', { 'class': 'cbi-value-field' }, [ this.host.render() ])
			]),
			E('div', { 'class': 'right' }, [ ...this.buttons.flatMap((button) => [ button, ' ' ]), this.stop ]),
			this.state,
			this.output
		]);

		this.show(job);
		poll.add(() => this.update(), EVERY_S);

		return page;
	},

	button(name, title, call) {
		return E('button', { 'class': 'btn cbi-button cbi-button-apply', 'data-name': name, 'click': ui.createHandlerFn(this, () =>
			call(this.host.getValue().trim()).then((answer) => {
				if (!L.isObject(answer) || answer.error)
					ui.addNotification(null, E('p', {}, [ answer?.error || _('The program sqm does not answer: is the package installed, and rpcd restarted?') ]), 'warning');

				return this.update();
			})
		) }, [ title ]);
	},

	update() {
		return L.resolveDefault(callJob(), null).then((job) => this.show(job));
	},

	show(job) {
		const is_running = job?.is_running === true;

		this.stop.disabled = !is_running || !L.hasViewPermission();
		for (const button of this.buttons)
			button.disabled = is_running || !L.hasViewPermission();

		if (job?.kind == null) {
			dom.content(this.state, []);
			this.output.style.display = 'none';
			return;
		}

		const title = ((job.kind == 'tune') ? _('Search for the best rates with %s') : _('Test with %s')).format(job.host);
		const { progress } = job;

		dom.content(this.state, [
			E('h3', {}, [ title ]),
			E('p', { 'class': is_running ? 'spinning' : null }, [ is_running ? (STAGES[progress?.stage] ?? _('running')) : (job.code === 0 ? _('done') : _('failed, or ended early')) ]),
			is_running && progress != null ? E('p', {}, [
				_('%d s left; download %s, upload %s, round trip %s').format(Math.ceil(progress.left_s), number(progress.download_mbit, 'Mbit/s'), number(progress.upload_mbit, 'Mbit/s'), number(progress.rtt_ms, 'ms'))
			]) : '',
			job.messages ? E('pre', { 'style': 'white-space:pre-wrap' }, [ job.messages ]) : ''
		]);
		this.output.style.display = job.output ? '' : 'none';
		this.output.textContent = job.output ?? '';
	}
});
