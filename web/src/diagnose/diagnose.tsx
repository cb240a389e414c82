/** Diagnosis: findings of the doctor, the report, the log, and the history of changes. */

import { useEffect, useState } from 'preact/hooks';
import { address, api, type Diagnosis, type DoctorFinding, follow, type LogEntry } from '../api';
import { clock, date, t } from '../i18n';
import { useAnswer, useIsAdmin } from '../store';
import { Failed, useAttempt } from '../ui/attempt';
import { Badge, Notice } from '../ui/parts';

export function Diagnose() {
    const isAdmin = useIsAdmin();
    return (
        <>
            <h1>{t('diagnose.title')}</h1>
            <Findings isAdmin={isAdmin} />
            <Log />
            {isAdmin && <Report />}
            {isAdmin && <Audit />}
        </>
    );
}

function Findings({ isAdmin }: { isAdmin: boolean }) {
    const [diagnosis, setDiagnosis] = useState<Diagnosis | null>(null);
    const { error, isBusy, attempt } = useAttempt();
    const ask = (question: () => Promise<Diagnosis>) => attempt(async () => setDiagnosis(await question()));
    useEffect(() => void ask(api.doctor), []);
    const canFix = diagnosis?.findings.some(({ fixable }) => fixable) ?? false;
    return (
        <section class="card" aria-busy={isBusy}>
            <div class="head">
                <h2>{t('diagnose.findings')}</h2>
                <span class="row">
                    {isAdmin && canFix && (
                        <button type="button" class="main" disabled={isBusy} onClick={() => void ask(api.fix)}>
                            {t('diagnose.do_fix')}
                        </button>
                    )}
                    <button type="button" disabled={isBusy} onClick={() => void ask(api.doctor)}>
                        {isBusy ? t('diagnose.looking') : t('diagnose.again')}
                    </button>
                </span>
            </div>
            <Failed error={error} />
            {diagnosis?.fixed.map((finding) => (
                <Notice key={finding.id} tone="good">
                    <p>
                        {t('diagnose.fixed')} {finding.what}
                    </p>
                </Notice>
            ))}
            {diagnosis?.findings.length === 0 && diagnosis.checks > 0 && (
                <Notice tone="good">{t('diagnose.fine', { checks: diagnosis.checks })}</Notice>
            )}
            {diagnosis?.findings.length === 0 && diagnosis.checks === 0 && (
                <Notice tone="plain">{t('diagnose.nothing')}</Notice>
            )}
            {diagnosis?.unknown.map((fact) => (
                <p key={fact}>
                    {t('diagnose.unknown')} {fact}
                </p>
            ))}
            {diagnosis?.findings.map((finding) => (
                <Finding key={`${finding.id} ${finding.interface}`} finding={finding} />
            ))}
        </section>
    );
}

function Finding({ finding }: { finding: DoctorFinding }) {
    return (
        <Notice tone="warn">
            <div class="head">
                <h3>{finding.what}</h3>
                {finding.interface && <Badge tone="plain">{finding.interface}</Badge>}
            </div>
            {finding.evidence.length > 0 && (
                <div>
                    <div class="small soft">{t('diagnose.evidence')}</div>
                    {finding.evidence.map((line) => (
                        <div key={line} class="code">
                            {line}
                        </div>
                    ))}
                </div>
            )}
            <div>
                <div class="small soft">{t('diagnose.fix')}</div>
                <p>{finding.remedy}</p>
            </div>
        </Notice>
    );
}

/** The largest number of log entries; the daemon keeps as many. */
const MOST = 100;

function Log() {
    const [entries, setEntries] = useState<LogEntry[]>([]);
    useEffect(() => {
        const hear = (entry: LogEntry) =>
            setEntries((before) =>
                before.some(({ number }) => number === entry.number) ? before : [entry, ...before].slice(0, MOST),
            );
        return follow(address.events, { state: hear, changed: hear, released: hear, configuration: hear, autorate: hear, fleet: hear });
    }, []);
    return (
        <section class="card">
            <h2>{t('diagnose.log')}</h2>
            {entries.length === 0 ? (
                <p class="soft">{t('diagnose.log_none')}</p>
            ) : (
                <ol class="log" reversed tabIndex={0} aria-label={t('diagnose.log')}>
                    {entries.map(({ number, unix_ms, interface: name, text }) => (
                        <li key={number}>
                            <time>{clock(unix_ms / 1000)}</time>
                            <span>
                                {name && !text.startsWith(`${name}: `) ? `${name}: ` : ''}
                                {text}
                            </span>
                        </li>
                    ))}
                </ol>
            )}
        </section>
    );
}

function Report() {
    return (
        <section class="card">
            <h2>{t('diagnose.report')}</h2>
            <p>{t('diagnose.report_help')}</p>
            <div>
                <a class="button" href={address.report} download>
                    {t('diagnose.report_get')}
                </a>
            </div>
        </section>
    );
}

function Audit() {
    const { answer, error } = useAnswer(api.audit);
    return (
        <section class="card">
            <h2>{t('diagnose.audit')}</h2>
            <Failed error={error} />
            {answer?.length === 0 && <p class="soft">{t('diagnose.audit_none')}</p>}
            {answer && answer.length > 0 && (
                <ol class="log" reversed tabIndex={0} aria-label={t('diagnose.audit')}>
                    {answer.map(({ unix_ms, who, from, what, outcome }) => (
                        <li key={`${unix_ms} ${what}`}>
                            <time>{date(unix_ms / 1000)}</time>
                            <span>
                                {what}: {outcome} ({who}, {from})
                            </span>
                        </li>
                    ))}
                </ol>
            )}
        </section>
    );
}
