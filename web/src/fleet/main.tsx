import { render } from 'preact';
import '../style.css';
import { LANGUAGES, preferred, speak } from '../i18n';
import { FleetApp } from './fleet-app';
import { en } from './words/en';

/** The texts of this page, which those of the router's do not include. */
const MORE = { en: async () => en, de: async () => (await import('./words/de')).de };

for (const [tag, more] of Object.entries(MORE)) {
    const language = LANGUAGES[tag];
    const load = language?.load;
    if (!load) continue;
    language.load = async () => {
        const loaded = await load();
        return { ...loaded, words: { ...loaded.words, ...(await more()) } };
    };
}

const place = document.getElementById('page');
if (place) void speak(preferred()).finally(() => render(<FleetApp />, place));
