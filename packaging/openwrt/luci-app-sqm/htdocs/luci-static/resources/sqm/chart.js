'use strict';
'require baseclass';

/* A chart of rates over the last minutes, as SVG. */

const SVG = 'http://www.w3.org/2000/svg';

/* Size of the drawing, pixels. Its width is that of the page. */
const MOST_WIDTH = 800;
const HEIGHT = 150;
const LEFT = 60;
const BOTTOM = 20;

/* Time that the chart shows, milliseconds: long enough to see the effect of a change. */
const SHOWN_MS = 300000;

function node(name, attributes, text) {
	const element = document.createElementNS(SVG, name);

	for (const key of Object.keys(attributes))
		element.setAttribute(key, attributes[key]);

	if (text != null)
		element.textContent = text;

	return element;
}

/* A rate in Mbit/s, in as many digits as it needs. */
function mbit(bits) {
	const value = bits / 1e6;

	return '%s Mbit/s'.format(value >= 100 ? value.toFixed(0) : value.toFixed(1));
}

return baseclass.extend({
	SHOWN_MS,
	mbit,

	/* The rates between counters: `samples` are [ milliseconds, bytes ] in their order. A counter that falls began anew. */
	rates(samples) {
		const rates = [];

		for (let i = 1; i < samples.length; i++) {
			const [ [ before, from ], [ now, to ] ] = [ samples[i - 1], samples[i] ];

			if (to >= from && now > before)
				rates.push([ now, (to - from) * 8000 / (now - before) ]);
		}

		return rates;
	},

	/* `series` are { title, colour, rates }; `room` is the width of the page, pixels. */
	render(label, series, now, room) {
		const width = Math.min(MOST_WIDTH, room);
		const most = Math.max(1e6, ...series.flatMap(({ rates }) => rates.map(([ , rate ]) => rate)));
		const x = (time) => width - (now - time) * (width - LEFT) / SHOWN_MS;
		const y = (rate) => (HEIGHT - BOTTOM) * (1 - rate / most) + 10;
		const chart = node('svg', { 'width': width, 'height': HEIGHT, 'role': 'img', 'aria-label': label, 'style': 'font-size:12px' });
		const text = { 'fill': 'currentColor', 'text-anchor': 'end' };

		for (const rate of [ 0, most ]) {
			chart.appendChild(node('line', { 'x1': LEFT, 'x2': width, 'y1': y(rate), 'y2': y(rate), 'stroke': 'currentColor', 'opacity': 0.3 }));
			chart.appendChild(node('text', Object.assign({ 'x': LEFT - 4, 'y': y(rate) + 4 }, text), (rate / 1e6).toFixed(1)));
		}
		chart.appendChild(node('text', Object.assign({ 'x': width, 'y': HEIGHT - 2 }, text), _('now')));
		chart.appendChild(node('text', { 'x': LEFT, 'y': HEIGHT - 2, 'fill': 'currentColor' }, _('5 minutes ago')));

		for (const { colour, rates } of series) {
			const points = rates.filter(([ time ]) => now - time <= SHOWN_MS).map(([ time, rate ]) => '%s,%s'.format(x(time).toFixed(1), y(rate).toFixed(1)));

			chart.appendChild(node('polyline', { 'points': points.join(' '), 'fill': 'none', 'stroke': colour, 'stroke-width': 2 }));
		}

		return E('figure', { 'style': 'margin:0' }, [
			chart,
			E('figcaption', {}, series.flatMap(({ title, colour, rates }) => [
				E('span', { 'style': 'display:inline-block;width:1em;height:.3em;margin-right:.4em;vertical-align:middle;background:' + colour }),
				E('span', { 'style': 'margin-right:1.5em' }, [ rates.length ? '%s: %s'.format(title, mbit(rates[rates.length - 1][1])) : title ])
			]))
		]);
	}
});
