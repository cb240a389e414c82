/** The review of changes before they are applied, and the errors of applying them. */

import { useEffect, useState } from 'preact/hooks';
import { api, type Change, type Check, Refusal } from '../api';
import { t } from '../i18n';
import { words } from '../ui/attempt';
import { Dialog, Diff, Errors, Notice } from '../ui/parts';
import { Conflict } from './conflict';

/** It stays the same while the dialog is open, even if the page reads the configuration again. */
export interface Reviewed {
    check: Check;
    changes: Change[];
    /** The revision that the changes are based on. The server refuses them if the file has another one. */
    revision: string;
    /** Doubts about valid settings. */
    doubts: string[];
}

interface Props extends Reviewed {
    close: () => void;
    reload: (keepsChanges: boolean) => Promise<void>;
    applied: () => Promise<void>;
}

export function Review(props: Props) {
    return (
        <Dialog title={t('review.title')} close={props.close}>
            <ReviewParts {...props} />
        </Dialog>
    );
}

/** The parts of the review, without the dialog around them. `closing` is the text of the button that closes it. */
export function ReviewParts({ check, changes, revision, doubts, close, reload, applied, closing }: Props & { closing?: string }) {
    const [isBusy, setIsBusy] = useState(false);
    const [refusal, setRefusal] = useState<Refusal | null>(null);
    const isLost = refusal?.status === 0;

    const apply = async () => {
        setIsBusy(true);
        setRefusal(null);
        try {
            await api.apply(revision, changes);
            await applied();
        } catch (problem) {
            setRefusal(problem instanceof Refusal ? problem : new Refusal(-1, '', words(problem)));
        } finally {
            setIsBusy(false);
        }
    };
    useEffect(() => {
        if (!isLost) return;
        // When the router responds again, the page shows whether the change was applied.
        const timer = setInterval(() => void applied().catch(() => {}), 1000);
        return () => clearInterval(timer);
    }, [isLost]);

    return (
        <>
            {doubts.length > 0 && (
                <Notice tone="warn">
                    {doubts.map((doubt) => (
                        <p key={doubt}>{doubt}</p>
                    ))}
                </Notice>
            )}
            <section class="stack">
                <h3>{t('review.file')}</h3>
                <Diff text={check.text_diff.join('\n')} />
            </section>
            <section class="stack">
                <h3>{t('review.kernel')}</h3>
                {check.plans.every(({ steps }) => steps?.length === 0) && (
                    <p>{t(check.plans.length === 0 ? 'review.kernel_off' : 'review.kernel_none')}</p>
                )}
                {check.plans.map((plan) => (
                    <div key={plan.interface} class="stack">
                        {plan.steps && plan.steps.length > 0 && <pre>{plan.steps.join('\n')}</pre>}
                        {plan.steps_error && <p class="soft">{`${plan.interface}: ${plan.steps_error}`}</p>}
                    </div>
                ))}
            </section>
            {check.warnings.length > 0 && (
                <section class="stack">
                    <h3>{t('review.warnings')}</h3>
                    <ul class="steps">
                        {check.warnings.map(({ line, message, option }) => (
                            <li key={`${line} ${message}`}>{option ? `${option}: ${message}` : message}</li>
                        ))}
                    </ul>
                </section>
            )}
            <p>{t('review.safe', { n: 60 })}</p>
            {refusal?.code === 'conflict' && <Conflict reload={reload} />}
            {isLost && (
                <Notice tone="warn" alert>
                    <p>{t('review.lost')}</p>
                </Notice>
            )}
            {refusal && !isLost && refusal.code !== 'conflict' && (
                <Errors messages={[refusal.message, ...refusal.findings.map(({ message }) => message)]} />
            )}
            <div class="row">
                <button type="button" class="main" disabled={isBusy || isLost || refusal?.code === 'conflict'} onClick={() => void apply()}>
                    {isBusy ? t('review.applying') : t('review.apply')}
                </button>
                <button type="button" onClick={close}>
                    {closing ?? t('do.cancel')}
                </button>
            </div>
        </>
    );
}
