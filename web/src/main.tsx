import { render } from 'preact';
import './style.css';
import { App } from './app';
import { preferred, speak } from './i18n';

const place = document.getElementById('page');
if (place) void speak(preferred()).finally(() => render(<App />, place));
