/** The choice of a network device: those of this machine, the suggested one first, and a text for one that appears later. */

import { useState } from 'preact/hooks';
import type { Interfaces } from '../api';
import { t } from '../i18n';
import { WholeChoice } from '../ui/labelled';

interface Props {
    interfaces: Interfaces | null;
    value: string;
    set: (name: string) => void;
    /** Attributes of the control; its label belongs to this ID. */
    control: { id: string; disabled?: boolean; name?: string; 'aria-invalid'?: boolean; 'aria-describedby'?: string };
}

/** The value of the choice that opens the text field. No device has this name: the kernel refuses a slash. */
const OTHER = '/';

export function DeviceChoice({ interfaces, value, set, control }: Props) {
    const suggested = interfaces?.suggested ?? null;
    const devices = [...(interfaces?.devices ?? [])].sort(
        (a, b) => Number(b.name === suggested) - Number(a.name === suggested),
    );
    const [isOther, setIsOther] = useState(false);
    const chosen = devices.find(({ name }) => name === value);
    const isListed = chosen !== undefined;
    const textOf = ({ name, kind, default_route, carrier }: (typeof devices)[number]) =>
        [
            name,
            name === suggested || default_route ? t('settings.default_route') : '',
            kind ?? '',
            carrier ? '' : t('settings.no_carrier'),
        ]
            .filter(Boolean)
            .join(', ');
    const choose = (name: string) => {
        setIsOther(name === OTHER);
        set(name === OTHER ? '' : name);
    };
    return (
        <>
            <select {...control} value={isOther ? OTHER : value} onChange={(event) => choose(event.currentTarget.value)}>
                <option value="">{t('settings.link_unset')}</option>
                {devices.map((device) => (
                    <option key={device.name} value={device.name}>
                        {textOf(device)}
                    </option>
                ))}
                {!isOther && value && !isListed && <option value={value}>{`${value}, ${t('settings.absent')}`}</option>}
                <option value={OTHER}>{t('settings.other_device')}</option>
            </select>
            {!isOther && chosen && <WholeChoice text={textOf(chosen)} />}
            {isOther && (
                <input
                    type="text"
                    id={`${control.id}-other`}
                    aria-label={t('settings.other_device_name')}
                    placeholder="wwan0"
                    maxLength={15}
                    autocomplete="off"
                    autocapitalize="off"
                    spellcheck={false}
                    value={value}
                    onInput={(event) => set(event.currentTarget.value.trim())}
                />
            )}
            {suggested && interfaces?.how && (
                <span class="help">
                    {t('settings.detected', { value: suggested })} ({interfaces.how})
                </span>
            )}
        </>
    );
}
