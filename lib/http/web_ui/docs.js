// Renders openapi.json: one collapsible entry for each path and method.
import { $, curlOf, element } from './base.js';

// Titles of the tags. A tag is a dialect of error replies; a tag without a title is shown by its name.
const TITLES = { openai: 'OpenAI', tei: 'Text Embeddings Inference and Hugging Face', jina: 'Jina and Cohere v1 rerank', cohere: 'Cohere',
  kserve: 'KServe, TensorFlow Serving and Ollama' };

// ------------------------------------------------------------------------------------- schemas

// A schema in a few words: "text", "list of integer", "text or list of text (at most 2048)".
function wordsOf(schema) {
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(', ');
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.map(wordsOf).join(' or ');
  if (Array.isArray(schema.type)) return schema.type.map((type) => wordsOf({ ...schema, type })).join(' or ');
  if (schema.type === 'array') return `list of ${schema.items ? wordsOf(schema.items) : 'anything'}${schema.maxItems ? ` (at most ${schema.maxItems})` : ''}`;
  if (schema.type === 'string') return 'text';
  return schema.type ?? 'anything';
}

function exampleOf(schema) {
  if (schema.examples) return schema.examples[0];
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return exampleOf(choices[0]);
  if (schema.type === 'array') return schema.items ? [exampleOf(schema.items)] : [];
  if (schema.type === 'object') return Object.fromEntries((schema.required ?? []).map((name) => [name, exampleOf(schema.properties[name])]));
  return { string: 'text', integer: 1, number: 1, boolean: true }[schema.type] ?? 'A man is eating food.';
}

function tableOf(caption, heads, rows) {
  return element('table', { class: 'fields' }, element('caption', { class: 'hidden' }, caption),
    element('thead', {}, element('tr', {}, ...heads.map((head) => element('th', { scope: 'col' }, head)))),
    element('tbody', {}, ...rows.map(([head, ...cells]) => element('tr', {}, element('th', { scope: 'row' }, element('code', {}, head)),
      ...cells.map((cell) => element('td', {}, cell))))));
}

function fieldsOf(schema, caption) {
  const required = new Set(schema.required);
  return tableOf(caption, ['Field', 'Value', 'Required'], Object.entries(schema.properties)
    .map(([name, value]) => [name, [wordsOf(value), value.description].filter(Boolean).join(': '), required.has(name) ? 'yes' : 'no']));
}

function shapeOf(schema, caption) {
  const forms = (schema.anyOf ?? [schema]).filter((form) => form.properties && Object.keys(form.properties).length);
  const parts = forms.map((form, i) => fieldsOf(form, forms.length > 1 ? `${caption}, form ${i + 1}` : caption));
  if (forms.length === 0) parts.push(element('p', {}, wordsOf(schema)));
  parts.push(element('details', {}, element('summary', {}, 'JSON schema'),
    element('pre', { tabindex: '0', role: 'region', 'aria-label': `${caption}, as JSON schema` }, JSON.stringify(schema, null, 2))));
  return parts;
}

// ---------------------------------------------------------------------------------- operations

function contentOf(path, method, operation) {
  const parts = [];
  const name = `${method.toUpperCase()} ${path}`;
  if (operation.description) parts.push(element('p', {}, operation.description));
  const body = operation.requestBody?.content['application/json']?.schema;
  parts.push(element('h3', {}, 'Example'), element('pre', { class: 'example', tabindex: '0', role: 'region', 'aria-label': `${name}: example` }, curlOf({ path, body: method === 'get' ? undefined : exampleOf(body ?? {}) })));
  if (operation.parameters) {
    parts.push(element('h3', {}, 'Path parameters'), tableOf(`${name}: path parameters`, ['Parameter', 'Value'], operation.parameters.map((one) => [one.name, wordsOf(one.schema)])));
  }
  if (body) parts.push(element('h3', {}, 'Request'), ...shapeOf(body, `${name}: request`));
  const [media, reply] = Object.entries(operation.responses['200'].content)[0];
  parts.push(element('h3', {}, `Response: ${media}`));
  if (media.includes('json')) parts.push(...shapeOf(reply.schema, `${name}: response`));
  const others = Object.entries(operation.responses).filter(([status]) => status !== '200');
  parts.push(element('details', {}, element('summary', {}, 'Other responses'),
    tableOf(`${name}: other responses`, ['Status', 'Meaning'], others.map(([status, response]) => [status, response.description]))));
  return parts;
}

// The content of an entry is built when it is opened.
function entryOf(path, method, operation) {
  const content = element('div');
  const entry = element('details', { class: 'operation', 'data-words': `${method} ${path} ${operation.summary}`.toLowerCase() },
    element('summary', {}, element('b', {}, method.toUpperCase()), element('code', {}, path), element('span', {}, operation.summary)), content);
  entry.addEventListener('toggle', () => {
    if (entry.open && !content.firstChild) content.append(...contentOf(path, method, operation));
  });
  return entry;
}

function groupOf(title, entries) {
  return element('section', { 'aria-label': title }, element('h2', { class: 'group' }, title), ...entries);
}

function find() {
  const wanted = $('find').value.trim().toLowerCase();
  let n = 0;
  for (const entry of document.querySelectorAll('.operation')) {
    entry.hidden = !entry.dataset.words.includes(wanted);
    n += !entry.hidden;
  }
  for (const group of $('groups').children) group.hidden = !group.querySelector('.operation:not([hidden])');
  $('found').textContent = n ? `${n} paths` : 'No path matches.';
}

try {
  const found = await (await fetch('openapi.json')).json();
  $('about').textContent = `${found.info.description} Version ${found.info.version}.`;
  const operations = Object.entries(found.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => [path, method, operation]));
  const tags = new Set([...Object.keys(TITLES), ...operations.map(([, , operation]) => operation.tags[0])]);
  $('groups').append(...[...tags].map((tag) => groupOf(TITLES[tag] ?? tag,
    operations.filter(([, , operation]) => operation.tags[0] === tag).map((one) => entryOf(...one)))));
  $('find').addEventListener('input', find);
  find();
} catch (error) {
  $('about').textContent = '';
  $('docs-error').textContent = `Cannot load openapi.json: ${error.message}`;
}
