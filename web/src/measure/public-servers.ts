/** Public servers that anybody may test with. They belong to others, which may change or end them. */

/** Cloudflare's speed test: a file of 100 MB, and a URL that takes uploads. */
export const CLOUDFLARE = {
    download: 'https://speed.cloudflare.com/__down?bytes=100000000',
    upload: 'https://speed.cloudflare.com/__up',
};

/** The server of macOS's command networkQuality. */
export const NETWORK_QUALITY = 'mensura.cdn-apple.com';
