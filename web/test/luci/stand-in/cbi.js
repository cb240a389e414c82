/** What LuCI has in every page: translations and formatted texts. TR has each text by itself; LuCI has it by a hash. */

window._ = (text) => window.TR?.[text] ?? text;

{
    const escaped = (text) => String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

    /** Seconds as `1h 2m 3s`. */
    const duration = (seconds) => {
        const parts = [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];
        let left = Math.floor(seconds);
        const shown = [];
        for (const [unit, length] of parts) {
            const count = Math.floor(left / length);
            left %= length;
            if (count > 0 || unit === 's') shown.push(`${count}${unit}`);
        }
        return shown.join(' ');
    };

    const FORMS = { s: String, d: (value) => String(Math.trunc(value)), h: escaped, t: duration };

    String.prototype.format = function (...values) {
        let next = 0;
        return this.replace(/%(?:%|0?(\d*)x|([sdht]))/g, (all, width, form) => {
            if (all === '%%') return '%';
            const value = values[next++];
            return form ? FORMS[form](value) : Math.trunc(value).toString(16).padStart(Number(width), '0');
        });
    };
}
