/** The questions of the setup. */

import { t } from '../i18n';
import { DeviceChoice } from '../settings/device-choice';
import type { Facts } from '../settings/facts';
import { LinkOptions } from '../settings/field';
import { TextField, TickField } from '../ui/labelled';
import { mbit } from '../units';
import { type Answers, seenOn } from './answers';
import { KINDS, layersOf } from './kinds';
import type { RatesRead } from './rates-read';

interface Props {
    answers: Answers;
    change: (some: Partial<Answers>) => void;
    facts: Facts;
}

export function InterfaceStep({ answers, change, facts }: Props) {
    const { interfaces } = facts;
    const isAbsent =
        interfaces !== null && answers.device !== '' && !interfaces.devices.some(({ name }) => name === answers.device);
    return (
        <>
            <p>{t('setup.interface_help')}</p>
            <div class="field">
                <label for="setup-device">{t('setup.interface')}</label>
                <DeviceChoice
                    interfaces={interfaces}
                    value={answers.device}
                    set={(device) => change({ device, ...seenOn(device, facts) })}
                    control={{ id: 'setup-device' }}
                />
                {isAbsent && <span class="doubt">{t('doubt.absent', { name: answers.device })}</span>}
            </div>
        </>
    );
}

export function KindStep({ answers, change, facts: { links } }: Props) {
    const { kind, preset } = answers;
    const kinds = KINDS.filter((one) => links.some(({ name }) => name === one));
    return (
        <>
            <p>{t('setup.kind_help')}</p>
            <fieldset class="choices">
                <legend class="hidden">{t('setup.kind')}</legend>
                {kinds.map((one) => (
                    <label key={one}>
                        <input
                            type="radio"
                            name="kind"
                            value={one}
                            checked={preset === null && kind === one}
                            onChange={() => change({ kind: one, preset: null })}
                        />
                        <span>
                            <strong>{t(`setup.kind.${one}`)}</strong> <span class="soft">{t(`setup.kind.${one}.about`)}</span>
                        </span>
                    </label>
                ))}
            </fieldset>
            {kind !== null &&
                preset === null &&
                layersOf(kind, links).map((layer) => (
                    <TickField
                        key={layer}
                        id={`setup-${layer}`}
                        label={t(`setup.${layer}`)}
                        help={t(`setup.${layer}_help`)}
                        isOn={answers[layer]}
                        turn={(isOn) => change({ [layer]: isOn })}
                    />
                ))}
            <details>
                <summary>{t('setup.presets')}</summary>
                <div class="field">
                    <label for="setup-preset">{t('setup.preset')}</label>
                    <select
                        id="setup-preset"
                        value={preset ?? ''}
                        onChange={(event) => change({ preset: event.currentTarget.value || null })}
                    >
                        <option value="">{t('setup.preset_none')}</option>
                        <LinkOptions links={links} />
                    </select>
                </div>
            </details>
        </>
    );
}

const SOURCES = ['advertised', 'measured'] as const;
const WAYS = ['download', 'upload'] as const;

export function SpeedStep({ answers, change, rates }: Props & { rates: RatesRead | null }) {
    return (
        <>
            <p>{t('setup.speeds_help')}</p>
            <fieldset class="choices">
                <legend class="hidden">{t('rates.source')}</legend>
                {SOURCES.map((source) => (
                    <label key={source}>
                        <input
                            type="radio"
                            name="source"
                            value={source}
                            checked={answers.source === source}
                            onChange={() => change({ source })}
                        />
                        <span>{t(`setup.source.${source}`)}</span>
                    </label>
                ))}
            </fieldset>
            <div class="fields">
                {WAYS.map((way) => (
                    <div key={way} class="stack">
                        <TextField
                            id={`setup-${way}`}
                            label={t(`direction.${way}`)}
                            placeholder={way === 'download' ? '100 Mbit/s' : '40 Mbit/s'}
                            maxLength={100}
                            value={answers[way]}
                            set={(text) => change({ [way]: text })}
                        />
                        <span role="status">{answers[way] !== '' && rates && <Read rate={rates[way]} />}</span>
                    </div>
                ))}
            </div>
        </>
    );
}

function Read({ rate: { line_kbit, shaper_kbit, error } }: { rate: RatesRead['download'] }) {
    if (error !== null || line_kbit === null || shaper_kbit === null) return <span class="wrong">{error}</span>;
    return (
        <span class="small soft">{t('setup.read', { line: mbit(line_kbit * 1000), shaper: mbit(shaper_kbit * 1000) })}</span>
    );
}
