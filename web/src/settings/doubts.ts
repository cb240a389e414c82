/** Valid settings that probably do not do what the user wants: shaping is off, the device is missing, a rate is far too high. */

import type { Interfaces, Option, Test } from '../api';
import { t } from '../i18n';
import { mbit, rateShown } from '../units';
import { isOn, type Line } from './draft';

/** A doubt about the value of an option. */
export interface Doubt {
    option: Option['name'];
    text: string;
}

/** The facts that a doubt is judged by. */
interface Known {
    interfaces: Interfaces | null;
    tests: Test[];
}

/** The fastest line that is sold to homes in 2026, Mbit/s, as `sqm setup` assumes it. */
const FASTEST_MBIT = 25_000;

/** A rate this many times the fastest test is doubted. Our choice: a test of a bloated line may find little more than half of its rate. */
const FAR_ABOVE = 2;

export function doubtsOf(line: Line, { interfaces, tests }: Known): Doubt[] {
    const name = line.value('interface') ?? '';
    const device = interfaces?.devices.find((one) => one.name === name);
    const doubts: Doubt[] = [];
    if (!isOn(line)) doubts.push({ option: 'enabled', text: t('doubt.disabled') });
    if (interfaces && name && !device) doubts.push({ option: 'interface', text: t('doubt.absent', { name }) });
    for (const way of ['download', 'upload'] as const) {
        const rate = Number(rateShown(line.value(way) ?? ''));
        if (!(rate > 0)) continue;
        const fastest = Math.max(0, ...tests.map(({ summary }) => summary?.[`${way}_mbit`] ?? 0));
        const speed = device?.speed_mbit ?? null;
        const text = (megabits: number) => mbit(megabits * 1e6);
        if (rate > FASTEST_MBIT) doubts.push({ option: way, text: t('doubt.fastest', { rate: text(rate) }) });
        else if (speed !== null && rate > speed) {
            doubts.push({ option: way, text: t('doubt.port', { rate: text(rate), name, speed: text(speed) }) });
        } else if (fastest > 0 && rate > FAR_ABOVE * fastest) {
            doubts.push({ option: way, text: t('doubt.measured', { rate: text(rate), measured: text(fastest) }) });
        }
    }
    return doubts;
}
