/** Rates, delays and sizes for people. */

import { number, t } from './i18n';

/** A number and its unit stand on one line. */
const JOIN = '\u00a0';

/** Three significant digits, as many as anybody can use. */
export function significant(value: number): string {
    const size = Math.abs(value);
    return number(value, size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : 2);
}

export function mbit(bitsPerSecond: number): string {
    return `${significant(bitsPerSecond / 1e6)}${JOIN}Mbit/s`;
}

export function milliseconds(micros: number): string {
    return `${significant(micros / 1000)}${JOIN}ms`;
}

export function bytes(count: number): string {
    if (count < 1000) return `${number(count)}${JOIN}B`;
    const [size, unit] = count < 1e6 ? [1e3, 'kB'] : count < 1e9 ? [1e6, 'MB'] : [1e9, 'GB'];
    return `${significant(count / size)}${JOIN}${unit}`;
}

/** For so long: "12 s", "5 min", "3 h", "2 d". */
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

/** A rate of the configuration as somebody reads it in a field: in Mbit/s, or as it stands if it is none. */
export function rateShown(option: string): string {
    const parts = /^(\d+(?:\.\d+)?)\s*([kmg]?bit)?$/i.exec(option.trim());
    const unit = RATE_UNITS[parts?.[2]?.toLowerCase() ?? ''];
    if (!parts?.[1] || unit === undefined) return option;
    return String(Number(((Number(parts[1]) * unit) / 1e6).toPrecision(12)));
}

/**
 * What was typed into a field of Mbit/s as the configuration has it: kbit/s as a whole number, which sqm-scripts reads
 * as well. What is no plain number goes as it is, because the validator says best what is wrong with it.
 */
export function rateTyped(text: string): string {
    const typed = text.trim();
    if (!/^\d+([.,]\d+)?$/.test(typed)) return typed;
    const decimal = typed.replace(',', '.');
    const kilobits = Math.round(Number(decimal) * 1e6) / 1e3;
    return Number.isSafeInteger(kilobits) ? String(kilobits) : `${decimal}mbit`;
}
