import { readFileSync } from 'node:fs';
import { defineConfig } from 'vite';

/** What the page is delivered with; their licences ask for their notices to come along. */
const DELIVERED = ['preact', 'uplot'];

const licences = {
    name: 'licences',
    generateBundle() {
        const notices = DELIVERED.map(
            (name) => `${name}\n\n${readFileSync(new URL(`node_modules/${name}/LICENSE`, import.meta.url), 'utf8')}`,
        );
        this.emitFile({ type: 'asset', fileName: 'licences.txt', source: notices.join(`\n${'-'.repeat(72)}\n\n`) });
    },
};

export default defineConfig({
    // Relative, so that the page also works behind a proxy that puts it under a path.
    base: './',
    plugins: [licences],
    build: {
        target: 'es2020',
        // The policy of the server allows no script or style in the page itself, and no data: address.
        assetsInlineLimit: 0,
        modulePreload: { polyfill: false },
        // The pages share one sheet, which is smaller than two.
        cssCodeSplit: false,
        // The page of a router, and that of a fleet.
        rollupOptions: { input: ['index.html', 'fleet.html'] },
    },
    // `npm run dev` beside a running `sqm web`.
    server: { proxy: { '/api': 'http://127.0.0.1:8080' } },
});
