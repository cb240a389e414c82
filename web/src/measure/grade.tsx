/** The grade of a test: its letter, what people notice, the verdict for each use, and details on request. */

import type { Grade, LoadGrade, Test, Use } from '../api';
import { listed, t } from '../i18n';
import { Badge, type Tone } from '../ui/parts';
import { significant } from '../units';

const TONES: Record<Use['quality'], Tone> = { good: 'good', fair: 'warn', poor: 'bad', bad: 'bad' };

/** The grade of a test of any kind, if it has one. */
export const gradeOf = ({ verdict, responsiveness }: Test): Grade | LoadGrade | null => verdict?.grade ?? responsiveness?.grade ?? null;

export function GradeView({ grade }: { grade: Grade | LoadGrade | null }) {
    return (
        <div class="stack">
            <div class="row">
                <div>
                    <div class="soft small">{grade ? t('test.grade') : t('test.no_grade')}</div>
                    <div class="grade">{grade?.letter ?? '–'}</div>
                </div>
                {grade && <p class="sentence">{sentence(grade)}</p>}
            </div>
            {grade && (
                <>
                    <ul class="uses" aria-label={t('grade.uses')}>
                        {grade.uses.map(({ name, qoo, quality }) => (
                            <li key={name}>
                                {t(`use.${name}`)} <Badge tone={TONES[quality]}>{t(`quality.${quality}`)}</Badge> {qoo} %
                            </li>
                        ))}
                    </ul>
                    <details>
                        <summary>{t('grade.details')}</summary>
                        <Details grade={grade} />
                    </details>
                </>
            )}
        </div>
    );
}

function Details({ grade }: { grade: Grade | LoadGrade }) {
    const ms = (value: number | null) => (value === null ? '–' : `+${significant(value)} ms`);
    return (
        <div class="small">
            <p>
                {t('grade.added', {
                    median: ms(grade.added_ms),
                    p95: ms(grade.added_p95_ms),
                    p99: ms(grade.added_p99_ms),
                    lost: significant(grade.lost * 100),
                })}
            </p>
            <p>{t('grade.rule')}</p>
            <p>{t('grade.qoo')}</p>
            {'strict' in grade && <p>{t('grade.others', { conventional: grade.conventional, strict: grade.strict })}</p>}
        </div>
    );
}

/** The sentence of the command line, in the language of the page. */
export function sentence({ uses, loaded, mostly }: LoadGrade): string {
    const of = (outcome: Use['outcome']) => listed(uses.filter((use) => use.outcome === outcome).map(({ name }) => t(`use.${name}`)));
    const direction = loaded.length === 1 ? loaded[0] : undefined;
    const when = t(`grade.when.${direction ?? 'both'}`);
    const [bad, fair, always] = [of('stutters'), of('may_stutter'), of('stutters_idle')];
    const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
    const parts: string[] = [];
    if (bad && fair) parts.push(t('grade.will_may', { uses: bad, others: fair, when }));
    else if (bad) parts.push(t('grade.will', { uses: bad, when }));
    else if (fair) parts.push(t('grade.may', { uses: fair, when }));
    else if (!always) parts.push(t('grade.smooth', { uses: of('smooth'), when }));
    if (bad && !direction && mostly) parts.push(t(`grade.mostly.${mostly}`));
    if (always) parts.push(t('grade.always', { uses: always }));
    return parts.map(capital).join(' ');
}
