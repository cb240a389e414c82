/** The bufferbloat test: starts tests, and lists, shows and compares their results. */

import { useEffect, useState } from 'preact/hooks';
import { api, type ResponsivenessOf, type Test, type Tests } from '../api';
import { date, t } from '../i18n';
import { go } from '../route';
import { useAnswer, useIsAdmin, useStore } from '../store';
import { Failed, useAttempt } from '../ui/attempt';
import { Badge, Notice, type Tone } from '../ui/parts';
import { significant } from '../units';
import { Comparison } from './comparison';
import { gradeOf } from './grade';
import { kindName, testName } from './name';
import { Start } from './start';
import { TestResultView } from './test-result';

export function TestPage({ path }: { path: string[] }) {
    const { answer: tests, error, again } = useAnswer(api.tests);
    const isAdmin = useIsAdmin();
    const { refresh, status } = useStore();
    const running = status?.running_test ?? null;
    // Another browser may have started a test, or this one has ended without an event.
    useEffect(() => void again(), [running]);
    const [place, ids = ''] = path;
    const changed = async () => {
        await Promise.all([again(), refresh()]);
    };
    return (
        <>
            <h1>{t('test.title')}</h1>
            <Failed error={error} />
            {place === 'compare' && <Comparison key={ids} ids={ids.split(',')} />}
            {place && place !== 'compare' && <TestResultView key={place} id={place} ended={changed} />}
            {tests?.running && place !== tests.running && (
                <Notice>
                    <p>
                        {t('test.is_running')} <a href={`#/test/${tests.running}`}>{t('test.watch')}</a>
                    </p>
                </Notice>
            )}
            {/* Hidden and not removed while a test runs, so that what was typed is still there after it. */}
            {isAdmin && tests && (
                <Start
                    isHidden={tests.running !== null}
                    kinds={tests.kinds}
                    last={tests.tests[0] ?? null}
                    started={async (test) => {
                        await changed();
                        go('test', test.id);
                    }}
                />
            )}
            {tests && <EarlierRuns tests={tests} changed={changed} isAdmin={isAdmin} />}
        </>
    );
}

/** The largest number of tests in a comparison, as the server limits it. */
const MOST_COMPARED = 8;

function EarlierRuns({ tests: { tests }, changed, isAdmin }: { tests: Tests; changed: () => Promise<void>; isAdmin: boolean }) {
    const [chosen, setChosen] = useState<string[]>([]);
    const choose = (id: string, on: boolean) =>
        setChosen((before) => [...before.filter((other) => other !== id), ...(on ? [id] : [])]);
    const { error, attempt } = useAttempt();
    const forget = async (id: string) => {
        if (await attempt(() => api.deleteTest(id))) choose(id, false);
        await changed();
    };
    return (
        <section class="card">
            <div class="head">
                <h2>{t('test.earlier')}</h2>
                {tests.length > 1 && (
                    <button
                        type="button"
                        disabled={chosen.length < 2 || chosen.length > MOST_COMPARED}
                        title={t('test.compare_help')}
                        onClick={() => go('test', 'compare', chosen.join(','))}
                    >
                        {t('test.compare')}
                    </button>
                )}
            </div>
            <Failed error={error} />
            {tests.length === 0 ? (
                <p class="soft">{t('test.none')}</p>
            ) : (
                <ul class="runs">
                    {tests.map((test) => (
                        <li key={test.id}>
                            <input
                                type="checkbox"
                                aria-label={t('test.choose', { name: testName(test) })}
                                checked={chosen.includes(test.id)}
                                disabled={test.bytes === null}
                                onChange={(event) => choose(test.id, event.currentTarget.checked)}
                            />
                            <span class="run">
                                <a href={`#/test/${test.id}`}>{testName(test)}</a>
                                <span class="small soft">
                                    {date(test.started_unix_ms / 1000)} · {kindName(test.kind)} · {test.host}
                                </span>
                            </span>
                            <Outcome test={test} />
                            {isAdmin && test.state !== 'running' && (
                                <button
                                    type="button"
                                    class="link"
                                    aria-label={t('test.remove', { name: testName(test) })}
                                    onClick={() => void forget(test.id)}
                                >
                                    {t('do.remove')}
                                </button>
                            )}
                        </li>
                    ))}
                </ul>
            )}
        </section>
    );
}

const TONES: Record<Test['state'], Tone> = { running: 'plain', done: 'plain', failed: 'bad', stopped: 'warn' };

function Outcome({ test }: { test: Test }) {
    const grade = gradeOf(test);
    const worst = worstOf(test);
    if (test.state === 'done' && worst && !grade) {
        return <Badge tone={RPM_TONES[worst.word] ?? 'plain'}>{significant(worst.rpm)} RPM</Badge>;
    }
    if (test.state !== 'done' || !grade) {
        return <Badge tone={TONES[test.state]}>{test.state === 'done' ? t('test.no_grade') : t(`test.state.${test.state}`)}</Badge>;
    }
    return (
        <Badge tone={grade.letter.startsWith('A') ? 'good' : grade.letter === 'B' ? 'warn' : 'bad'}>
            {grade.letter} · {worst ? `${significant(worst.rpm)} RPM` : `+${significant(grade.added_ms)} ms`}
        </Badge>
    );
}

const RPM_TONES: Record<string, Tone> = { poor: 'bad', fair: 'warn', good: 'good', excellent: 'good' };

/** The direction with the lower RPM. */
function worstOf({ responsiveness }: Test): ResponsivenessOf | undefined {
    const found = [responsiveness?.download, responsiveness?.upload].filter((one) => one != null);
    return found.sort((a, b) => a.rpm - b.rpm)[0];
}
