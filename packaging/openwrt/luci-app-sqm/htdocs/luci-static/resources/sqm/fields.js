'use strict';
'require baseclass';
'require form';
'require ui';

/* Fields of the form. A field shows each value as the file has it, also one that it does not know, and is written only if the
   user has edited it: everything else in the file stays as it is. */

const ON = [ '1', 'on', 'true', 'yes', 'enabled' ];
const OFF = [ '0', 'off', 'false', 'no', 'disabled' ];

/* The levels of options, each with the ones before it. */
const LEVELS = [ 'basic', 'advanced', 'expert' ];

/* A list is shown as its values with blanks between, as a shell reads it. */
function shown(value) {
	return (value == null) ? '' : Array.isArray(value) ? value.join(' ') : String(value);
}

const Field = form.Value.extend({
	__name__: 'Sqm.Field',

	renderWidget(section_id, option_index, cfgvalue) {
		const element = this.element(section_id, shown(cfgvalue));
		const node = element.render();

		this.decorate(section_id, node);
		/* LuCI's label names no check box. */
		node.querySelector('input[type="checkbox"]')?.setAttribute('aria-label', this.known.title);
		this.initial ??= {};
		this.initial[section_id] = element.getValue();

		return node;
	},

	/* The part of each element's options that does not depend on the kind of value. */
	common(section_id) {
		return {
			id: this.cbid(section_id),
			optional: true,
			disabled: (this.readonly != null) ? this.readonly : this.map.readonly
		};
	},

	decorate() {},

	isEdited(section_id) {
		const element = this.getUIElement(section_id);

		return element != null && element.getValue() !== this.initial?.[section_id];
	},

	/* The value of the section if the form was saved now. */
	currentvalue(section_id) {
		const before = this.cfgvalue(section_id);

		if (!this.isEdited(section_id))
			return before;

		const text = (this.formvalue(section_id) ?? '').trim();

		if (text == '')
			return null;

		return Array.isArray(before) ? text.split(/\s+/) : text;
	},

	parse(section_id) {
		if (!this.isEdited(section_id))
			return Promise.resolve();

		const value = this.currentvalue(section_id);

		return Promise.resolve((value == null) ? this.remove(section_id) : this.write(section_id, value));
	},

	/* An option that the section has is shown at every level. */
	checkDepends(section_id) {
		return this.known.level == 'basic' || this.cfgvalue(section_id) != null || this.isEdited(section_id) ||
			LEVELS.indexOf(this.known.level) <= LEVELS.indexOf(this.section.levelOf(this.tab, section_id));
	}
});

/* Text with suggestions. */
const TextField = Field.extend({
	__name__: 'Sqm.TextField',

	element(section_id, text) {
		return new ui.Textfield(text, Object.assign(this.common(section_id), { placeholder: this.placeholder }));
	},

	decorate(section_id, node) {
		if (!this.suggestions?.length)
			return;

		const id = 'suggestions.%s'.format(this.cbid(section_id));

		node.querySelector('input').setAttribute('list', id);
		node.appendChild(E('datalist', { 'id': id }, this.suggestions.map(([ word, about ]) =>
			E('option', { 'value': word }, (about == null) ? [] : [ about ]))));
	}
});

/* One of a few words, or the one in the file. */
const ChoiceField = Field.extend({
	__name__: 'Sqm.ChoiceField',

	element(section_id, text) {
		const words = [ [ '', this.unset ], ...this.choices ];

		if (!words.some(([ word ]) => word == text))
			words.push([ text, text ]);

		return new ui.Select(text, Object.fromEntries(words), Object.assign(this.common(section_id), {
			sort: words.map(([ word ]) => word),
			widget: 'select'
		}));
	}
});

/* On or off. A check box shows only these two, so that other values and a third state need a list. */
const SwitchField = Field.extend({
	__name__: 'Sqm.SwitchField',

	element(section_id, text) {
		const word = text.trim();
		const is_known = word == '' ? this.known.standard != null : ON.includes(word) || OFF.includes(word);

		if (is_known && this.known.standard != null) {
			const is_on = ON.includes(word) || (word == '' && ON.includes(this.known.standard));

			return new ui.Checkbox(is_on ? '1' : '0', Object.assign(this.common(section_id), {
				value_enabled: '1',
				value_disabled: '0'
			}));
		}

		const words = [ [ '', this.unset ], [ '1', _('on') ], [ '0', _('off') ] ];

		if (!words.some(([ known ]) => known == text))
			words.push([ text, text ]);

		return new ui.Select(text, Object.fromEntries(words), Object.assign(this.common(section_id), {
			sort: words.map(([ known ]) => known),
			widget: 'select'
		}));
	},

	formvalue(section_id) {
		return this.getUIElement(section_id)?.getValue() ?? null;
	}
});

/* How many of a tab's options are shown. It is no option of the file. */
const LevelField = form.Value.extend({
	__name__: 'Sqm.LevelField',

	cfgvalue() {
		return 'basic';
	},

	renderWidget(section_id) {
		const words = { basic: _('the usual ones'), advanced: _('more'), expert: _('all') };

		return new ui.Select(this.chosen?.[section_id] ?? 'basic', words, {
			id: this.cbid(section_id),
			sort: LEVELS,
			widget: 'select',
			optional: false
		}).render();
	},

	parse(section_id) {
		this.chosen ??= {};
		this.chosen[section_id] = this.formvalue(section_id);

		return Promise.resolve();
	}
});

return baseclass.extend({
	shown,

	/* The class of an option's field. */
	classOf(known) {
		switch (known.kind) {
		case 'switch': return SwitchField;
		case 'choice': return ChoiceField;
		default: return TextField;
		}
	},

	LevelField
});
