'use strict';
'require baseclass';

/* A configuration as the text of a file in UCI's format, for the program to check before it is saved. */

function quoted(text) {
	return "'" + String(text).replace(/'/g, "'\\''") + "'";
}

return baseclass.extend({
	/* `sections` are as uci.sections() returns them, in their order. The lines of the text are not those of the file. */
	of(sections) {
		const lines = [];

		for (const section of sections) {
			lines.push('config ' + quoted(section['.type']) +
				(section['.anonymous'] ? '' : ' ' + quoted(section['.name'])));

			for (const option of Object.keys(section)) {
				const value = section[option];

				if (option.startsWith('.') || value == null)
					continue;

				if (Array.isArray(value))
					lines.push(...value.map((one) => '\tlist ' + quoted(option) + ' ' + quoted(one)));
				else
					lines.push('\toption ' + quoted(option) + ' ' + quoted(value));
			}
		}

		return lines.join('\n') + '\n';
	}
});
