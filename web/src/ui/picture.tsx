/** A picture that the server draws for the width of the window, with a link to download it. */

import { useState } from 'preact/hooks';
import type { Sheet } from '../api';
import { t } from '../i18n';

/** Below this width of the window the page shows the narrow picture. style.css has the same number. */
const NARROW = '(max-width: 40rem)';

export function Picture({ src, title }: { src: (sheet: Sheet) => string; title: string }) {
    const [isMissing, setIsMissing] = useState(false);
    // The server has no such picture of a test without flows of its own.
    if (isMissing) return null;
    return (
        <figure class="stack">
            <figcaption class="head">
                <h3>{title}</h3>
                <a class="small" href={src('wide')} download>
                    {t('test.download_svg')}
                </a>
            </figcaption>
            {/* In a window between the two widths the wide picture is scrolled, because its text would be too small to read. */}
            <div class="scroll" tabIndex={0} role="region" aria-label={title}>
                <picture>
                    <source media={NARROW} srcset={src('narrow')} />
                    <img class="plot" src={src('wide')} alt={title} loading="lazy" onError={() => setIsMissing(true)} />
                </picture>
            </div>
        </figure>
    );
}
