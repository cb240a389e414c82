/** The error of a test or of a search for rates. */

import { t } from '../i18n';
import { Errors } from '../ui/parts';

/** The option of the command line that accepts any certificate. */
const INSECURE = '--insecure';

export function TestError({ error }: { error: string | null }) {
    if (!error) return null;
    return (
        <>
            <Errors messages={[error]} />
            {/* The message is the command line's, whose options a browser does not have. */}
            {error.includes(INSECURE) && <p>{t('test.insecure_here', { option: INSECURE, field: t('test.insecure'), group: t('settings.advanced') })}</p>}
        </>
    );
}
