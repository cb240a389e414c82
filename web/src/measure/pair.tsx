/** A pair of tests, without and with SQM, side by side. */

import { api, type Test } from '../api';
import { t } from '../i18n';
import { useAnswer } from '../store';
import { mbit as rate, significant } from '../units';
import { gradeOf, sentence } from './grade';

/** A difference below this many milliseconds, or below a factor of two, is none: grades of one line vary as much. Our choice. */
const LEAST_MS = 5;

/** Both tests of a pair, or nothing if the other one is gone. */
export function PairView({ test, other }: { test: Test; other: string }) {
    const { answer } = useAnswer(() => api.test(other));
    if (!answer || answer.state === 'running') return null;
    const [without, withSqm] = test.pair?.is_shaped ? [answer, test] : [test, answer];
    const said = difference(without, withSqm);
    return (
        <section class="stack" aria-label={t('pair.title')}>
            <h3>{t('pair.title')}</h3>
            {said && <p class="sentence">{said}</p>}
            <div class="two">
                <Side name={t('pair.without')} test={without} />
                <Side name={t('pair.with')} test={withSqm} />
            </div>
        </section>
    );
}

function Side({ name, test }: { name: string; test: Test }) {
    const grade = gradeOf(test);
    const { summary } = test;
    const rates = [
        ['download', summary?.download_mbit],
        ['upload', summary?.upload_mbit],
    ] as const;
    return (
        <div class="stack side">
            <h4>
                <a href={`#/test/${test.id}`}>{name}</a>
            </h4>
            <div class="row">
                <span class="grade">{grade?.letter ?? '–'}</span>
                <span>{grade ? t('pair.added', { ms: added(grade.added_ms) }) : t('test.no_grade')}</span>
            </div>
            {grade && <p>{sentence(grade)}</p>}
            {test.error && <p>{test.error}</p>}
            <p class="small soft numbers">
                {rates
                    .flatMap(([way, mbit]) => (mbit == null ? [] : [`${t(`direction.${way}`)} ${rate(mbit * 1e6)}`]))
                    .join(' · ')}
            </p>
        </div>
    );
}

const added = (ms: number) => `+${significant(ms)} ms`;

/** The difference in one sentence; none if one of the tests has no grade. */
function difference(without: Test, withSqm: Test): string | null {
    const [before, after] = [gradeOf(without)?.added_ms, gradeOf(withSqm)?.added_ms];
    if (before === undefined || after === undefined) return null;
    const says = { without: added(before), with: added(after) };
    const isClear = Math.abs(before - after) >= LEAST_MS && Math.max(before, after) >= 2 * Math.min(before, after);
    if (!isClear) return t('pair.same', says);
    return t(after < before ? 'pair.better' : 'pair.worse', says);
}
