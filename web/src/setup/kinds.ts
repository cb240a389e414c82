/** Kinds of line in plain words. Each is the beginning of the names of its presets. */

import type { Link } from '../api';

export const KINDS = ['vdsl2', 'adsl', 'docsis', 'gpon', 'ethernet', 'lte', 'satellite', 'unknown'] as const;
export type Kind = (typeof KINDS)[number];

/** The layers that some presets count in addition. */
export interface Layers {
    vlan: boolean;
    pppoe: boolean;
}

/** The layers that this kind of line has presets for. */
export function layersOf(kind: Kind, links: Link[]): (keyof Layers)[] {
    const has = (layer: string) => links.some(({ name }) => name === `${kind}-${layer}`);
    return (['pppoe', 'vlan'] as const).filter(has);
}

/** The name of the preset. Layers that the kind has no preset for are left out. */
export function presetOf(kind: Kind, layers: Layers, links: Link[]): string {
    const known = (name: string) => links.some((link) => link.name === name);
    let name: string = kind;
    for (const layer of ['vlan', 'pppoe'] as const) {
        if (layers[layer] && known(`${name}-${layer}`)) name = `${name}-${layer}`;
    }
    return name;
}
