/** The card that stands in for the lines while none is enabled. */

import { t } from '../i18n';
import { useIsAdmin } from '../store';

export function NoLine() {
    const isAdmin = useIsAdmin();
    return (
        <section class="card">
            <h2>{t('dashboard.nothing')}</h2>
            <p>{t('dashboard.nothing_help')}</p>
            {isAdmin && (
                <div>
                    <a class="button" href="#/setup">
                        {t('dashboard.begin')}
                    </a>
                </div>
            )}
        </section>
    );
}
