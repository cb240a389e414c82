/** A line chart with its key. The key below the canvas has the same values as text, for screen readers. */

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { number } from '../i18n';

export type Colour = 'download' | 'upload' | 'delay';

export interface Series {
    label: string;
    colour: Colour;
    /** A limit rather than a measurement. */
    dashed?: boolean;
    values: (number | null)[];
}

interface Props {
    /** The quantity with its unit. */
    title: string;
    /** Ascending. */
    x: number[];
    series: Series[];
    /** The first and last x of the axis. */
    range: [number, number];
    /** The text of a position on the x axis. */
    place: (x: number) => string;
    /** The text of a value. */
    show: (value: number) => string;
    /** The least height of the y axis, so that small values look small. */
    least?: number;
    height?: number;
}

export function Chart({ title, x, series, range, place, show, least = 1, height = 170 }: Props) {
    const frame = useRef<HTMLDivElement>(null);
    const plot = useRef<uPlot | null>(null);
    const latest = useRef({ range, place });
    latest.current = { range, place };
    const [under, setUnder] = useState<number | null>(null);
    const dark = useDark();
    const shape = series.map((one) => `${one.colour}${one.dashed ? '-' : ''}`).join();

    useLayoutEffect(() => {
        const element = frame.current;
        if (!element) return;
        const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
        const axis = {
            stroke: colour('soft'),
            grid: { stroke: colour('grid'), width: 1 },
            ticks: { show: false },
            font: '12px system-ui, sans-serif',
        };
        const made = new uPlot(
            {
                width: element.clientWidth,
                height,
                legend: { show: false },
                padding: [8, 12, 0, 0],
                cursor: { drag: { x: false, y: false }, points: { size: 7 } },
                scales: {
                    x: { time: false, range: () => latest.current.range },
                    y: { range: (_, __, most) => [0, Math.max(most * 1.08, least)] },
                },
                axes: [
                    { ...axis, size: 26, space: 70, values: (_, marks) => marks.map((mark) => latest.current.place(mark)) },
                    { ...axis, size: 44, space: 28, values: (_, marks) => marks.map((mark) => number(mark)) },
                ],
                series: [
                    {},
                    ...series.map((one) => ({
                        stroke: colour(one.colour),
                        width: one.dashed ? 1.5 : 2,
                        points: { show: false },
                        ...(one.dashed ? { dash: [6, 5] } : { fill: `${colour(one.colour)}1a` }),
                    })),
                ],
                hooks: { setCursor: [(chart) => setUnder(chart.cursor.idx ?? null)] },
            },
            [[], ...series.map(() => [])],
            element,
        );
        plot.current = made;
        const resized = new ResizeObserver(() => {
            if (element.clientWidth !== made.width) made.setSize({ width: element.clientWidth, height });
        });
        resized.observe(element);
        return () => {
            resized.disconnect();
            made.destroy();
            plot.current = null;
        };
    }, [shape, dark, height, least]);

    useEffect(() => {
        plot.current?.setData([x, ...series.map((one) => one.values)]);
    }, [x, series, dark, shape]);

    const at = under !== null && under < x.length ? under : x.length - 1;
    return (
        <figure class="stack">
            <figcaption class="head">
                <h3>{title}</h3>
                {under !== null && x[at] !== undefined && <span class="small soft numbers">{place(x[at])}</span>}
            </figcaption>
            <div class="chart" ref={frame} aria-hidden="true" />
            <ul class="key">
                {series.map((one) => {
                    const value = one.values[at];
                    return (
                        <li key={one.label}>
                            <span class={`swatch of-${one.colour}${one.dashed ? ' dashed' : ''}`} />
                            {one.label} {value === null || value === undefined ? '–' : show(value)}
                        </li>
                    );
                })}
            </ul>
        </figure>
    );
}

function useDark(): boolean {
    const [query] = useState(() => matchMedia('(prefers-color-scheme: dark)'));
    const [dark, setDark] = useState(query.matches);
    useEffect(() => {
        const changed = () => setDark(query.matches);
        query.addEventListener('change', changed);
        return () => query.removeEventListener('change', changed);
    }, [query]);
    return dark;
}
