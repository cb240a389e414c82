/** Computes shaper rates from the results of a speed test or from the advertised speeds. */

import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { ChoiceField, TextField } from '../ui/labelled';
import type { Form } from './field';

/** The percentage of a measured or advertised speed that keeps the queue in this router. Our choice, as the guide recommends it. */
const SHARES = { measured: 95, advertised: 85 } as const;

const SPEEDS = ['download', 'upload'] as const;

type Source = keyof typeof SHARES;

export function Rates({ form }: { form: Form }) {
    const [source, setSource] = useState<Source>('measured');
    const [speeds, setSpeeds] = useState({ download: '', upload: '' });
    const percent = SHARES[source];
    const share = (text: string) => {
        const mbit = Number(text.replace(',', '.'));
        return text.trim() !== '' && mbit > 0 && Number.isFinite(mbit) ? String(Math.round(mbit * percent * 10)) : null;
    };
    const take = () => {
        for (const way of SPEEDS) {
            const kilobits = share(speeds[way]);
            if (kilobits !== null) form.set(way, kilobits);
        }
    };
    return (
        <details>
            <summary>{t('rates.title')}</summary>
            <fieldset disabled={form.isLocked} aria-label={t('rates.title')}>
                <p class="soft small">{t('rates.help')}</p>
                <div class="fields">
                    <ChoiceField
                        id="rates-source"
                        label={t('rates.source')}
                        value={source}
                        choices={[
                            { value: 'measured', text: t('rates.measured') },
                            { value: 'advertised', text: t('rates.advertised') },
                        ]}
                        choose={(chosen) => setSource(chosen as Source)}
                    />
                </div>
                <div class="fields">
                    {SPEEDS.map((way) => (
                        <TextField
                            key={way}
                            id={`rates-${way}`}
                            label={t(`direction.${way}`)}
                            unit="Mbit/s"
                            inputMode="decimal"
                            value={speeds[way]}
                            set={(speed) => setSpeeds((before) => ({ ...before, [way]: speed }))}
                        />
                    ))}
                </div>
                <div>
                    <button type="button" disabled={SPEEDS.every((way) => share(speeds[way]) === null)} onClick={take}>
                        {t('rates.take', { percent })}
                    </button>
                </div>
            </fieldset>
        </details>
    );
}
