/** Checks the mock's answers against docs/openapi.yaml, so that the page is tested with answers as the real server gives them. */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import Ajv from 'ajv/dist/2020.js';
import { parse } from 'yaml';

const description = parse(await readFile(new URL('../../docs/openapi.yaml', import.meta.url), 'utf8'));
// OpenAPI's own keywords around the schemas are unknown to JSON Schema.
const ajv = new Ajv({ strict: false, allErrors: true, formats: { binary: true } });
ajv.addSchema({ $id: 'openapi', ...description });

const validators = new Map();

function validator(pointer) {
    if (!validators.has(pointer)) validators.set(pointer, ajv.compile({ $ref: `openapi#${pointer}` }));
    return validators.get(pointer);
}

const escaped = (part) => part.replaceAll('~', '~0').replaceAll('/', '~1').replaceAll('{', '%7B').replaceAll('}', '%7D');

function judge(pointer, value, what) {
    const validate = validator(pointer);
    const found = validate(value) ? [] : validate.errors.map(({ instancePath, message }) => `${instancePath} ${message}`);
    assert.deepEqual(found, [], `${what} is not as docs/openapi.yaml has it`);
}

/** Fails unless this answer to this request is documented. */
export function judgeAnswer(method, path, status, answer) {
    const template = Object.keys(description.paths).find((known) => matches(known, path));
    assert.ok(template, `${path} is not in docs/openapi.yaml`);
    const operation = description.paths[template][method.toLowerCase()];
    const response = operation?.responses[status];
    assert.ok(response, `${method} ${path} never answers ${status} in docs/openapi.yaml`);
    const place = response.$ref?.slice(1) ?? `/paths/${escaped(template)}/${method.toLowerCase()}/responses/${status}`;
    judge(`${place}/content/application~1json/schema`, answer, `${method} ${path}: ${status}`);
}

/** Fails unless the data of this event matches the schema with the event's name. */
export function judgeEvent(name, path, data) {
    const schemas = { sample: 'Sample', progress: 'Progress', step: 'TuneStep', end: path === 'tune/live' ? 'Tune' : 'Test' };
    judge(`/components/schemas/${schemas[name] ?? 'LogEntry'}`, data, `the event ${name} of ${path}`);
}

function matches(template, path) {
    const ours = template.slice(1).split('/');
    const theirs = path.split('/');
    return (
        ours.length === theirs.length &&
        ours.every((part, n) => part === theirs[n] || part === '{id}' || (part === '{plot}.svg' && theirs[n].endsWith('.svg')))
    );
}
