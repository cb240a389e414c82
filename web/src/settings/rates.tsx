/** From what the provider says or a speed test showed to what the shaper gets. */

import { useState } from 'preact/hooks';
import { t } from '../i18n';
import type { Form } from './field';

/** The share of what was measured without SQM, and of what is advertised, that leaves the queue here. */
const SHARES = { measured: 95, advertised: 85 } as const;

type Source = keyof typeof SHARES;

export function Rates({ form }: { form: Form }) {
    const [source, setSource] = useState<Source>('measured');
    const [download, setDownload] = useState('');
    const [upload, setUpload] = useState('');
    const percent = SHARES[source];
    const share = (text: string) => {
        const mbit = Number(text.replace(',', '.'));
        return text.trim() !== '' && mbit > 0 && Number.isFinite(mbit) ? String(Math.round(mbit * percent * 10)) : null;
    };
    const take = () => {
        for (const [option, text] of [
            ['download', download],
            ['upload', upload],
        ] as const) {
            const kilobits = share(text);
            if (kilobits !== null) form.set(option, kilobits);
        }
    };
    return (
        <details>
            <summary>{t('rates.title')}</summary>
            <fieldset disabled={form.isLocked} aria-label={t('rates.title')}>
                <p class="soft small">{t('rates.help')}</p>
                <div class="fields">
                    <div class="field">
                        <label for="rates-source">{t('rates.source')}</label>
                        <select
                            id="rates-source"
                            value={source}
                            onChange={(event) => setSource(event.currentTarget.value as Source)}
                        >
                            <option value="measured">{t('rates.measured')}</option>
                            <option value="advertised">{t('rates.advertised')}</option>
                        </select>
                    </div>
                </div>
                <div class="fields">
                    <Speed id="rates-download" label={t('direction.download')} value={download} set={setDownload} />
                    <Speed id="rates-upload" label={t('direction.upload')} value={upload} set={setUpload} />
                </div>
                <div>
                    <button type="button" disabled={share(download) === null && share(upload) === null} onClick={take}>
                        {t('rates.take', { percent })}
                    </button>
                </div>
            </fieldset>
        </details>
    );
}

function Speed({ id, label, value, set }: { id: string; label: string; value: string; set: (text: string) => void }) {
    return (
        <div class="field">
            <label for={id}>{label}</label>
            <div class="with-unit">
                <input
                    id={id}
                    type="text"
                    inputMode="decimal"
                    autocomplete="off"
                    value={value}
                    onInput={(event) => set(event.currentTarget.value)}
                />
                <span>Mbit/s</span>
            </div>
        </div>
    );
}
