/** How long ago something was, by the clock of the page's server. */

import { t } from '../i18n';
import { duration } from '../units';

export function ago(thenUnixS: number, nowUnixS: number): string {
    return t('fleet.ago', { time: duration(Math.max(0, nowUnixS - thenUnixS)) });
}
