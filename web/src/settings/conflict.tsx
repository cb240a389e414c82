/** The message that another browser or program has changed the configuration since it was read. */

import { t } from '../i18n';
import { Notice } from '../ui/parts';

/** `reload` reads the configuration again, and keeps the user's changes or drops them. */
export function Conflict({ reload }: { reload: (keepsChanges: boolean) => Promise<void> }) {
    return (
        <Notice tone="warn" alert>
            <h2>{t('review.conflict')}</h2>
            <p>{t('review.conflict_help')}</p>
            <div class="row">
                <button type="button" onClick={() => void reload(true)}>
                    {t('review.rebase')}
                </button>
                <button type="button" onClick={() => void reload(false)}>
                    {t('review.drop')}
                </button>
            </div>
        </Notice>
    );
}
