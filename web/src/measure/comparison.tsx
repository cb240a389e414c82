/** The comparison of several tests: their figures, the differences and the pictures. */

import { address, api } from '../api';
import { number, t } from '../i18n';
import { useAnswer } from '../store';
import { Failed } from '../ui/attempt';
import { Picture } from '../ui/picture';
import { Table } from '../ui/table';
import { significant } from '../units';

const PLOTS = ['box_combine', 'ping_cdf', 'totals'] as const;

export function Comparison({ ids }: { ids: string[] }) {
    const { answer, error } = useAnswer(() => api.compare(ids));
    if (error) return <Failed error={error} />;
    if (!answer) return <p>{t('app.loading')}</p>;
    const figure = (value: number | null | undefined) => (value == null ? '–' : significant(value));
    return (
        <section class="card">
            <h2>{t('test.comparison')}</h2>
            <Table
                label={t('test.comparison')}
                heads={[
                    t('test.name'),
                    t('test.grade'),
                    `${t('test.idle')}, ms`,
                    `${t('test.loaded')}, ms`,
                    t('phases.p95'),
                    t('test.down'),
                    t('test.up'),
                ]}
                rows={answer.runs.map(({ id, name, summary, verdict }) => ({
                    key: id,
                    cells: [
                        <a href={`#/test/${id}`}>{name}</a>,
                        verdict?.grade?.letter ?? '–',
                        figure(summary?.idle_ms),
                        figure(summary?.latency_median_ms),
                        figure(summary?.latency_p95_ms),
                        figure(summary?.download_mbit),
                        figure(summary?.upload_mbit),
                    ],
                }))}
            />
            {answer.differences.length > 0 && (
                <ul class="steps">
                    {answer.differences.map(({ from, to, figure: name, unit, mean, interval, clear }) => (
                        <li key={from + to + name}>
                            {from} → {to}, {name}: {mean > 0 ? '+' : ''}
                            {significant(mean)} {unit}
                            {interval
                                ? ` (95 %: ${interval.map((end) => number(end, 1)).join(' … ')})`
                                : clear
                                  ? ''
                                  : ` (${t('test.too_few')})`}
                        </li>
                    ))}
                </ul>
            )}
            {PLOTS.map((plot) => (
                <Picture key={plot} src={(sheet) => address.comparison(ids, plot, sheet)} title={t(`plot.${plot}`)} />
            ))}
        </section>
    );
}
