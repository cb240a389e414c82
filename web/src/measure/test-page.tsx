/** The bufferbloat test: start it, watch it, read it, compare it. */

import { useState } from 'preact/hooks';
import { api, type ResponsivenessOf, type Test, type Tests } from '../api';
import { date, t } from '../i18n';
import { go } from '../route';
import { useAnswer, useIsAdmin, useStore } from '../store';
import { Failed, useAttempt } from '../ui/attempt';
import { Badge, type Tone } from '../ui/parts';
import { significant } from '../units';
import { Compared } from './compared';
import { One } from './one';
import { Start } from './start';

export function TestPage({ path }: { path: string[] }) {
    const { answer: tests, error, again } = useAnswer(api.tests);
    const isAdmin = useIsAdmin();
    const { refresh } = useStore();
    const [what, ids = ''] = path;
    const changed = async () => {
        await Promise.all([again(), refresh()]);
    };
    return (
        <>
            <h1>{t('test.title')}</h1>
            <Failed of={error} />
            {what === 'compare' && <Compared key={ids} ids={ids.split(',')} />}
            {what && what !== 'compare' && <One key={what} id={what} ended={changed} />}
            {isAdmin && tests && !tests.running && (
                <Start
                    kinds={tests.kinds}
                    last={tests.tests[0] ?? null}
                    started={async (test) => {
                        await changed();
                        go('test', test.id);
                    }}
                />
            )}
            {tests && <Earlier tests={tests} changed={changed} isAdmin={isAdmin} />}
        </>
    );
}

/** As many as the server compares at once. */
const MOST = 8;

function Earlier({ tests: { tests }, changed, isAdmin }: { tests: Tests; changed: () => Promise<void>; isAdmin: boolean }) {
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
                        disabled={chosen.length < 2 || chosen.length > MOST}
                        title={t('test.compare_help')}
                        onClick={() => go('test', 'compare', [...chosen].sort().join(','))}
                    >
                        {t('test.compare')}
                    </button>
                )}
            </div>
            <Failed of={error} />
            {tests.length === 0 ? (
                <p class="soft">{t('test.none')}</p>
            ) : (
                <ul class="runs">
                    {tests.map((test) => (
                        <li key={test.id}>
                            <input
                                type="checkbox"
                                aria-label={t('test.choose', { name: called(test) })}
                                checked={chosen.includes(test.id)}
                                disabled={test.bytes === null}
                                onChange={(event) => choose(test.id, event.currentTarget.checked)}
                            />
                            <span class="run">
                                <a href={`#/test/${test.id}`}>{called(test)}</a>
                                <span class="small soft">
                                    {date(test.started_unix_ms / 1000)} · {test.kind} · {test.host}
                                </span>
                            </span>
                            <Outcome test={test} />
                            {isAdmin && test.state !== 'running' && (
                                <button
                                    type="button"
                                    class="link"
                                    aria-label={t('test.remove', { name: called(test) })}
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

export const called = (test: Test) => test.title || date(test.started_unix_ms / 1000);

const TONES: Record<Test['state'], Tone> = { running: 'plain', done: 'plain', failed: 'bad', stopped: 'warn' };

function Outcome({ test }: { test: Test }) {
    const grade = test.verdict?.grade;
    const worst = worstOf(test);
    if (test.state === 'done' && worst) {
        return <Badge tone={RPM_TONES[worst.word] ?? 'plain'}>{significant(worst.rpm)} RPM</Badge>;
    }
    if (test.state !== 'done' || !grade) {
        return <Badge tone={TONES[test.state]}>{test.state === 'done' ? t('test.no_grade') : t(`test.state.${test.state}`)}</Badge>;
    }
    return (
        <Badge tone={grade.letter.startsWith('A') ? 'good' : grade.letter === 'B' ? 'warn' : 'bad'}>
            {grade.letter} · +{significant(grade.added_ms)} ms
        </Badge>
    );
}

const RPM_TONES: Record<string, Tone> = { poor: 'bad', fair: 'warn', good: 'good', excellent: 'good' };

/** Of both directions the one that makes people wait. */
function worstOf({ responsiveness }: Test): ResponsivenessOf | undefined {
    const found = [responsiveness?.download, responsiveness?.upload].filter((one) => one != null);
    return found.sort((a, b) => a.rpm - b.rpm)[0];
}

export function Picture({ src, title }: { src: string; title: string }) {
    const [isMissing, setIsMissing] = useState(false);
    // A test that measured no flows of its own has nothing to draw in some of them.
    if (isMissing) return null;
    return (
        <figure class="stack">
            <figcaption class="head">
                <h3>{title}</h3>
                <a class="small" href={src} download>
                    {t('test.download_svg')}
                </a>
            </figcaption>
            <img class="plot" src={src} alt={title} loading="lazy" onError={() => setIsMissing(true)} />
        </figure>
    );
}

