/** Requests to the server, and the display of their errors. */

import { useState } from 'preact/hooks';
import { Refusal } from '../api';
import { t } from '../i18n';
import { Errors } from './parts';

/** The text of an error. */
export function words(error: unknown): string {
    if (error instanceof Refusal) return error.status === 0 ? t('app.no_answer') : error.message;
    return String(error);
}

/** The text of an error; nothing if it is null. */
export function Failed({ error }: { error: unknown }) {
    return error === null ? null : <Errors messages={[words(error)]} />;
}

export interface Attempt {
    isBusy: boolean;
    /** The error of the last request; null if it succeeded. */
    error: unknown;
    /** Sends a request. Resolves to true if it succeeded. */
    attempt: (request: () => Promise<unknown>) => Promise<boolean>;
}

export function useAttempt(): Attempt {
    const [isBusy, setIsBusy] = useState(false);
    const [error, setError] = useState<unknown>(null);
    const attempt = async (request: () => Promise<unknown>) => {
        setIsBusy(true);
        setError(null);
        try {
            await request();
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
