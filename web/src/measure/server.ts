/** A server as a person types it: a host or an address, with a port or without. */

export interface Server {
    host: string;
    port?: number;
}

/** Splits `host:port` and `[address]:port`. An IPv6 address without brackets has no port. */
export function serverOf(text: string): Server {
    const typed = text.trim();
    const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(typed) ?? [];
    const host = bracketed ?? plain;
    if (host === undefined) return { host: typed };
    return { host, ...(port === undefined ? {} : { port: Number(port) }) };
}
