/** The name of a test. */

import type { Test } from '../api';
import { date, maybe, t } from '../i18n';

/** The title that the user gave, or else the time at which the test began; a test of a pair also says which one it is. */
export function testName({ title, started_unix_ms, pair }: Test): string {
    const name = title || date(started_unix_ms / 1000);
    if (!pair) return name;
    return `${name}, ${t(pair.is_shaped ? 'pair.with_sqm' : 'pair.without_sqm')}`;
}

/** The name of a kind of test; the tests of Flent keep its names. */
export const kindName = (kind: string) => maybe(`test.kind_name.${kind}`) ?? kind;
