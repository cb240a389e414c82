/** The requests of the page of a fleet. */

import { get, type Schemas } from '../api';

export type Fleet = Schemas['Fleet'];
export type FleetRouter = Schemas['FleetRouter'];
export type FleetState = Schemas['FleetState'];
export type FleetPlace = Schemas['FleetPlace'];
export type FleetRollOut = Schemas['FleetRollOut'];
export type FleetEntry = Schemas['FleetEntry'];

export const fleetApi = {
    fleet: () => get('/fleet', {}),
    router: (id: string) => get('/fleet/routers/{id}', { id }),
    rollOut: (id: string) => get('/fleet/roll-outs/{id}', { id }),
};
