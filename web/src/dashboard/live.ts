/** The last minute of every interface: first from the server's history, then from its live samples. */

import { useEffect, useState } from 'preact/hooks';
import { address, api, type Columns, type Direction, follow, type History, type Sample } from '../api';

/** The curves of one direction, Mbit/s and milliseconds. */
export interface Curve {
    rate: (number | null)[];
    shaped: (number | null)[];
    delay: (number | null)[];
}

export interface Curves {
    /** Unix time, seconds. */
    time: number[];
    download: Curve;
    upload: Curve;
}

export const MINUTE = 60;
const HOUR = 3600;

/** The shortest interval between updates of the page. Our choice: figures that change faster cannot be read. Curves have every sample. */
const REDRAW_MS = 400;

export interface Live {
    sample: Sample | null;
    /** The curves by interface. */
    curves: Map<string, Curves>;
    /** Seconds since the last sample, if that is worth a message; otherwise null. */
    silent: number | null;
}

export function useLive(): Live {
    const [live, setLive] = useState<Live>({ sample: null, curves: new Map(), silent: null });
    useEffect(() => {
        const curves = new Map<string, Curves>();
        let heard = Date.now();
        let drawn = 0;
        let isOver = false;
        api.history(MINUTE, MINUTE)
            .then((history) => {
                // Samples that have arrived meanwhile are newer than the history.
                if (isOver) return;
                for (const [name, past] of of(history)) curves.set(name, joined(past, curves.get(name)));
                setLive((before) => ({ ...before, curves }));
            })
            .catch(() => {});
        const end = follow(address.live(5), {
            sample: (sample) => {
                heard = Date.now();
                for (const one of sample.interfaces) {
                    const known = curves.get(one.interface) ?? empty();
                    push(known, sample.unix_ms / 1000, one.download, one.upload);
                    curves.set(one.interface, { ...known });
                }
                if (heard - drawn < REDRAW_MS) return;
                drawn = heard;
                setLive({ sample, curves, silent: null });
            },
        });
        const timer = setInterval(() => {
            const silent = Math.floor((Date.now() - heard) / 1000);
            if (silent >= 3) setLive((before) => ({ ...before, silent }));
        }, 1000);
        return () => {
            isOver = true;
            end();
            clearInterval(timer);
        };
    }, []);
    return live;
}

/** The last hour, requested again every ten seconds while it is shown. */
export function useHour(isShown: boolean): Map<string, Curves> | null {
    const [hour, setHour] = useState<Map<string, Curves> | null>(null);
    useEffect(() => {
        if (!isShown) return;
        const load = () =>
            void api
                .history(HOUR, 720)
                .then((history) => setHour(of(history)))
                .catch(() => {});
        load();
        const timer = setInterval(load, 10_000);
        return () => clearInterval(timer);
    }, [isShown]);
    return hour;
}

function of(history: History): Map<string, Curves> {
    return new Map(
        history.interfaces.map((one) => [
            one.interface,
            {
                time: history.unix_s,
                download: scaled(one.download, history.unix_s.length),
                upload: scaled(one.upload, history.unix_s.length),
            },
        ]),
    );
}

/** A direction that was never shaped has no columns: its curve has no points. */
function scaled(columns: Columns | null, length: number): Curve {
    const by = (column: (number | null)[] | undefined, size: number) =>
        column?.map((value) => value && value / size) ?? new Array<null>(length).fill(null);
    return {
        rate: by(columns?.rate_bits_per_sec, 1e6),
        shaped: by(columns?.shaped_bits_per_sec, 1e6),
        delay: by(columns?.delay_peak_us, 1e3),
    };
}

const emptyCurve = (): Curve => ({ rate: [], shaped: [], delay: [] });
const empty = (): Curves => ({ time: [], download: emptyCurve(), upload: emptyCurve() });

function joined(past: Curves, since: Curves | undefined): Curves {
    if (!since?.time.length) return past;
    const first = since.time[0] ?? 0;
    const count = past.time.filter((time) => time < first).length;
    const curve = (one: Curve, two: Curve): Curve => ({
        rate: [...one.rate.slice(0, count), ...two.rate],
        shaped: [...one.shaped.slice(0, count), ...two.shaped],
        delay: [...one.delay.slice(0, count), ...two.delay],
    });
    return {
        time: [...past.time.slice(0, count), ...since.time],
        download: curve(past.download, since.download),
        upload: curve(past.upload, since.upload),
    };
}

function push(curves: Curves, now: number, download: Direction | null, upload: Direction | null): void {
    const old = curves.time.findIndex((time) => time >= now - MINUTE - 2);
    const drop = old < 0 ? curves.time.length : old;
    curves.time = [...curves.time.slice(drop), now];
    for (const [curve, direction] of [
        [curves.download, download],
        [curves.upload, upload],
    ] as const) {
        const per = (value: number | null | undefined, size: number) => (value == null ? null : value / size);
        curve.rate = [...curve.rate.slice(drop), per(direction?.rate_bits_per_sec, 1e6)];
        curve.shaped = [...curve.shaped.slice(drop), per(direction?.shaped_bits_per_sec, 1e6)];
        curve.delay = [...curve.delay.slice(drop), per(direction?.delay_peak_us, 1e3)];
    }
}
