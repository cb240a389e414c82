/** Rates, delays and sizes as text. */

import { number, t } from './i18n';

/** A space at which a line does not break, between a number and its unit. */
const JOIN = '\u00a0';

/** A number with three significant digits. */
export function significant(value: number): string {
    const size = Math.abs(value);
    return number(value, size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : 2);
}

export function mbit(bitsPerSecond: number): string {
    const [size, unit] = bitsPerSecond < 1e9 ? [1e6, 'Mbit/s'] : [1e9, 'Gbit/s'];
    return `${significant(bitsPerSecond / size)}${JOIN}${unit}`;
}

export function milliseconds(micros: number): string {
    return `${significant(micros / 1000)}${JOIN}ms`;
}

export function bytes(count: number): string {
    if (count < 1000) return `${number(count)}${JOIN}B`;
    const [size, unit] = count < 1e6 ? [1e3, 'kB'] : count < 1e9 ? [1e6, 'MB'] : [1e9, 'GB'];
    return `${significant(count / size)}${JOIN}${unit}`;
}

/** A duration in its largest unit, such as "12 s" or "5 min". */
export function duration(seconds: number): string {
    for (const [size, key] of [
        [86400, 'unit.days'],
        [3600, 'unit.hours'],
        [60, 'unit.minutes'],
    ] as const) {
        if (seconds >= 2 * size) return t(key, { n: Math.floor(seconds / size) });
    }
    return t('unit.seconds', { n: Math.floor(seconds) });
}

const RATE_UNITS: Record<string, number> = { '': 1e3, bit: 1, kbit: 1e3, mbit: 1e6, gbit: 1e9 };

/** A rate of the configuration as a field shows it: in Mbit/s, or unchanged if it is not a rate. */
export function rateShown(option: string): string {
    const parts = /^(\d+(?:\.\d+)?)\s*([kmg]?bit)?$/i.exec(option.trim());
    const unit = RATE_UNITS[parts?.[2]?.toLowerCase() ?? ''];
    if (!parts?.[1] || unit === undefined) return option;
    return String(Number(((Number(parts[1]) * unit) / 1e6).toPrecision(12)));
}

/**
 * The text of a field in Mbit/s as a value of the configuration: whole kbit/s, which sqm-scripts reads as well. A text that is not a
 * plain number stays unchanged, so that the validator can report it.
 */
export function rateTyped(text: string): string {
    const typed = text.trim();
    if (!/^\d+([.,]\d+)?$/.test(typed)) return typed;
    const decimal = typed.replace(',', '.');
    const kilobits = Math.round(Number(decimal) * 1e6) / 1e3;
    return Number.isSafeInteger(kilobits) ? String(kilobits) : `${decimal}mbit`;
}
