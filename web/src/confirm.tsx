/** The unconfirmed change, shown on every part of the page and in every browser. */

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { api } from './api';
import { t } from './i18n';
import { useIsAdmin, useStore } from './store';
import { Failed, useAttempt } from './ui/attempt';
import { Notice } from './ui/parts';

export function Confirm() {
    const { secondsLeft, silentSince, refresh, status } = useStore();
    const isAdmin = useIsAdmin();
    const { error, attempt } = useAttempt();
    const [outcome, setOutcome] = useState<'kept' | 'reverted' | null>(null);
    const waiting = status?.unconfirmed ?? null;
    const before = useRef(waiting);
    const answered = useRef(false);

    useEffect(() => {
        const gone = before.current;
        // The change was confirmed or rolled back elsewhere, or its time ran out. The revision of the file shows which.
        if (gone && !waiting && !answered.current) {
            void api.config().then(({ revision }) => setOutcome(revision === gone.revision ? 'kept' : 'reverted'));
        }
        if (waiting) {
            setOutcome(null);
            answered.current = false;
        }
        before.current = waiting;
    }, [waiting]);

    const say = async (keep: boolean) => {
        answered.current = true;
        const worked = await attempt(keep ? api.confirm : api.revert);
        answered.current = worked;
        if (worked) setOutcome(keep ? 'kept' : 'reverted');
        await refresh();
    };

    if (secondsLeft === null) {
        return (
            outcome && (
                <Above>
                    <Outcome outcome={outcome} close={() => setOutcome(null)} />
                </Above>
            )
        );
    }
    if (silentSince !== null) {
        return (
            <Above>
                <Notice tone="warn" alert>
                    <p>{t('confirm.lost', { n: secondsLeft })}</p>
                </Notice>
            </Above>
        );
    }
    return (
        <Above>
            <Notice tone="warn">
                <h2>{t('confirm.title')}</h2>
                <p class="numbers">{t('confirm.text', { n: secondsLeft })}</p>
                <Failed error={error} />
                {isAdmin && (
                    <div class="row">
                        <button type="button" class="main" onClick={() => void say(true)}>
                            {t('confirm.keep')}
                        </button>
                        <button type="button" onClick={() => void say(false)}>
                            {t('confirm.revert')}
                        </button>
                    </div>
                )}
            </Notice>
        </Above>
    );
}

/** Stays visible when the page is scrolled, because the time for an answer is limited. */
function Above({ children }: { children: ComponentChildren }) {
    return <div class="above">{children}</div>;
}

/** The message about the end of the change. A success message is closed when the user goes to another part of the page. */
function Outcome({ outcome, close }: { outcome: 'kept' | 'reverted'; close: () => void }) {
    const { status } = useStore();
    const isAdmin = useIsAdmin();
    const isShaping = (status?.interfaces.length ?? 0) > 0;
    useEffect(() => {
        if (outcome !== 'kept') return;
        addEventListener('hashchange', close);
        return () => removeEventListener('hashchange', close);
    }, [outcome]);
    return (
        <Notice tone={outcome === 'kept' ? 'good' : 'plain'} alert>
            <p>
                {t(`confirm.${outcome}`)}
                {outcome === 'kept' && !isShaping && ` ${t('next.nothing_shaped')}`}
            </p>
            <div class="row">
                {outcome === 'kept' && isShaping && isAdmin && (
                    <>
                        <a class="button main" href="#/test">
                            {t('next.test')}
                        </a>
                        <a class="button" href="#/tune">
                            {t('next.tune')}
                        </a>
                    </>
                )}
                <button type="button" class="link" onClick={close}>
                    {t('do.close')}
                </button>
            </div>
        </Notice>
    );
}
