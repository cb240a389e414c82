/** Several tests side by side. */

import { address, api, words } from '../api';
import { number, t } from '../i18n';
import { useAnswer } from '../store';
import { Errors } from '../ui/parts';
import { significant } from '../units';
import { Picture } from './test-page';

const PLOTS = ['box_combine', 'ping_cdf', 'totals'] as const;

export function Compared({ ids }: { ids: string[] }) {
    const { answer, error } = useAnswer(() => api.compare(ids));
    if (error) return <Errors of={[words(error, t('app.no_answer'))]} />;
    if (!answer) return <p>{t('app.loading')}</p>;
    const figure = (value: number | null | undefined) => (value == null ? '–' : significant(value));
    return (
        <section class="card">
            <h2>{t('test.comparison')}</h2>
            <div class="scroll" tabIndex={0} role="region" aria-label={t('test.comparison')}>
                <table>
                    <thead>
                        <tr>
                            <th scope="col">{t('test.name')}</th>
                            <th scope="col">{t('test.grade')}</th>
                            <th scope="col">{t('test.idle')}, ms</th>
                            <th scope="col">{t('test.loaded')}, ms</th>
                            <th scope="col">p95, ms</th>
                            <th scope="col">{t('test.down')}</th>
                            <th scope="col">{t('test.up')}</th>
                        </tr>
                    </thead>
                    <tbody>
                        {answer.runs.map(({ id, name, summary, verdict }) => (
                            <tr key={id}>
                                <th scope="row">
                                    <a href={`#/test/${id}`}>{name}</a>
                                </th>
                                <td>{verdict?.grade?.letter ?? '–'}</td>
                                <td>{figure(summary?.idle_ms)}</td>
                                <td>{figure(summary?.latency_median_ms)}</td>
                                <td>{figure(summary?.latency_p95_ms)}</td>
                                <td>{figure(summary?.download_mbit)}</td>
                                <td>{figure(summary?.upload_mbit)}</td>
                            </tr>
                        ))}
                    </tbody>
                </table>
            </div>
            {answer.differences.length > 0 && (
                <ul class="steps">
                    {answer.differences.map(({ from, to, figure: of, unit, mean, interval }) => (
                        <li key={from + to + of}>
                            {from} → {to}, {of}: {mean > 0 ? '+' : ''}
                            {significant(mean)} {unit}
                            {interval
                                ? ` (95 %: ${interval.map((end) => number(end, 1)).join(' … ')})`
                                : ` (${t('test.too_few')})`}
                        </li>
                    ))}
                </ul>
            )}
            {PLOTS.map((plot) => (
                <Picture key={plot} src={address.comparison(ids, plot)} title={t(`plot.${plot}`)} />
            ))}
        </section>
    );
}
