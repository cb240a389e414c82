/** The answers of the setup. They are kept while the page is open, so that a setup that was rolled back can be mended. */

import type { Facts } from '../settings/facts';
import type { Speeds } from '../api';
import type { Kind, Layers } from './kinds';

export interface Answers extends Layers {
    device: string;
    kind: Kind | null;
    /** The preset that was chosen under "details", in place of the kind's. */
    preset: string | null;
    source: Speeds['source'];
    download: string;
    upload: string;
}

let kept: Answers | null = null;

export function remember(answers: Answers): void {
    kept = answers;
}

export function remembered({ interfaces }: Facts): Answers {
    if (kept) return kept;
    const device = interfaces?.suggested ?? '';
    return { device, ...seenOn(device, { interfaces }), kind: null, preset: null, source: 'advertised', download: '', upload: '' };
}

/** The layers that the kernel knows of between a device and the line. */
export function seenOn(device: string, { interfaces }: Pick<Facts, 'interfaces'>): Layers {
    const seen = interfaces?.devices.find(({ name }) => name === device)?.encapsulations ?? [];
    const has = (layer: RegExp) => seen.some((name) => layer.test(name));
    return { pppoe: has(/pppoe/i), vlan: has(/vlan/i) };
}
