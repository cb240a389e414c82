/** The name of a test. */

import type { Test } from '../api';
import { date } from '../i18n';

/** The title that the user gave, or else the time at which the test began. */
export const testName = (test: Test) => test.title || date(test.started_unix_ms / 1000);
