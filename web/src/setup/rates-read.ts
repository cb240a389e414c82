/** The speeds that the user types, as the server reads them. */

import { useEffect, useState } from 'preact/hooks';
import { api, type LineRate } from '../api';
import type { Answers } from './answers';

export interface RatesRead {
    download: LineRate;
    upload: LineRate;
}

/** Wait after the last keystroke, as in the settings. */
const PAUSE_MS = 250;

/** Null until the server has read exactly these texts. */
export function useRates({ download, upload, source }: Answers): RatesRead | null {
    const wanted = JSON.stringify([download, upload, source]);
    const [read, setRead] = useState<{ of: string; rates: RatesRead } | null>(null);
    useEffect(() => {
        let isOver = false;
        const timer = setTimeout(() => {
            api.rates({ download, upload, source }).then(
                (rates) => !isOver && setRead({ of: wanted, rates }),
                () => {},
            );
        }, PAUSE_MS);
        return () => {
            isOver = true;
            clearTimeout(timer);
        };
    }, [wanted]);
    return read?.of === wanted ? read.rates : null;
}
