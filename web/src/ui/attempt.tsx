/** Asking the server to do something, and saying so when it does not. */

import { useState } from 'preact/hooks';
import { Refusal } from '../api';
import { t } from '../i18n';
import { Errors } from './parts';

/** An error in words for people. */
export function words(error: unknown): string {
    if (error instanceof Refusal) return error.status === 0 ? t('app.no_answer') : error.message;
    return String(error);
}

/** What went wrong, if something did. */
export function Failed({ of }: { of: unknown }) {
    return of === null ? null : <Errors of={[words(of)]} />;
}

export interface Attempt {
    isBusy: boolean;
    /** Why the last one did not work; null if it did. */
    error: unknown;
    /** Answers whether it worked. */
    attempt: (what: () => Promise<unknown>) => Promise<boolean>;
}

export function useAttempt(): Attempt {
    const [isBusy, setIsBusy] = useState(false);
    const [error, setError] = useState<unknown>(null);
    const attempt = async (what: () => Promise<unknown>) => {
        setIsBusy(true);
        setError(null);
        try {
            await what();
            return true;
        } catch (problem) {
            setError(problem);
            return false;
        } finally {
            setIsBusy(false);
        }
    };
    return { isBusy, error, attempt };
}
