/** The facts that the settings and the setup use. */

import { api, type Config, type Interfaces, type Link, type Option, type Test } from '../api';

export interface Facts {
    config: Config;
    options: Option[];
    links: Link[];
    interfaces: Interfaces | null;
    /** The results of tests; none if they cannot be read. */
    tests: Test[];
}

export async function load(): Promise<Facts> {
    const [config, options, links, interfaces, tests] = await Promise.all([
        api.config(),
        api.options(),
        api.links(),
        // Without the list, the user types the name of the device.
        api.interfaces().catch(() => null),
        api.tests().then(
            ({ tests }) => tests,
            () => [],
        ),
    ]);
    return { config, options, links, interfaces, tests };
}
