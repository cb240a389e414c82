/** A picture that the server draws, with a link to download it. */

import { useState } from 'preact/hooks';
import { t } from '../i18n';

export function Picture({ src, title }: { src: string; title: string }) {
    const [isMissing, setIsMissing] = useState(false);
    // The server has no such picture of a test without flows of its own.
    if (isMissing) return null;
    return (
        <figure class="stack">
            <figcaption class="head">
                <h3>{title}</h3>
                <a class="small" href={src} download>
                    {t('test.download_svg')}
                </a>
            </figcaption>
            {/* In a narrow window the picture is scrolled, because its text would be too small to read. */}
            <div class="scroll" tabIndex={0} role="region" aria-label={title}>
                <img class="plot" src={src} alt={title} loading="lazy" onError={() => setIsMissing(true)} />
            </div>
        </figure>
    );
}
