// Web page of the server. All data come from the server's own API; no other origin is contacted.
import { $, Refused, ask, curlOf, element, number, pythonOf } from './base.js';
import { bars, components, entities, heat, plane, pointsTable, project, rankCorrelation, similarities, tokens, tokensLine } from './charts.js';

const MAX_TEXTS = 64;
const MAX_LABELS = 20;
let model; // reply of GET /v1/models/{model} for the selected model
let other; // the same for the model to compare with, if one is selected

// ------------------------------------------------------------------------------------- model

function factsOf(facts) {
  return [facts.dtype, `on ${facts.device}`, facts.dim && `${number(facts.dim)} dimensions`,
    facts.labels && `${number(facts.labels)} ${facts.labels === 1 ? 'label' : 'labels'}`,
    facts.token_labels && `${number(facts.token_labels)} token labels`, `${number(facts.max_tokens)} tokens per text at most`].filter(Boolean).join(' · ');
}

function allow(name, reason) {
  const note = $(`panel-${name}`).querySelector('.cannot');
  note.textContent = reason;
  note.hidden = !reason;
  $(`${name}-form`).hidden = Boolean(reason);
}

const factsOfModel = async (id) => (await ask(`v1/models/${id}`)).body;

async function showModel() {
  if ($('other').value === $('model').value) $('other').value = '';
  for (const option of $('other').options) option.disabled = option.value === $('model').value;
  model = await factsOfModel($('model').value);
  other = $('other').value ? await factsOfModel($('other').value) : undefined;
  $('model-facts').textContent = other ? [model, other].map((one) => `${one.id}: ${factsOf(one)}`).join('\n') : factsOf(model);
  for (const [name, work] of Object.entries(works)) {
    allow(name, work.cannot(model));
    clear(name);
  }
  $('classify-pair-field').hidden = Boolean(model.dim || model.token_labels);
}

function fill(select, options) {
  const before = select.value;
  select.replaceChildren(...options);
  if (options.some((option) => option.value === before)) select.value = before;
}

async function loadModels() {
  const { body } = await ask('v1/models');
  const options = () => body.data.map((one) => element('option', { value: one.id }, one.id));
  fill($('model'), options());
  fill($('other'), [element('option', { value: '' }, 'no other model'), ...options()]);
  $('other-field').hidden = body.data.length < 2;
  await showModel();
}

// A 401 error is shown at the API key field, any other error at the model.
async function trying(work) {
  $('model-error').textContent = '';
  $('key-error').textContent = '';
  try {
    await work();
    $('key-form').hidden = true;
  } catch (error) {
    model = undefined;
    $('model-facts').textContent = 'No model is available.';
    if (error.status === 401) askForKey(error);
    else $('model-error').textContent = error.message;
  }
}

function askForKey(error) {
  const again = $('key').value !== '';
  $('key-form').hidden = false;
  $('key').setAttribute('aria-invalid', again);
  $('key-error').textContent = again ? error.message : 'This server requires an API key.';
}

// -------------------------------------------------------------------------------------- tabs

const tabs = [...document.querySelectorAll('[role=tab]')];

function select(tab, focus = false) {
  for (const one of tabs) {
    one.setAttribute('aria-selected', one === tab);
    one.tabIndex = one === tab ? 0 : -1;
    $(one.getAttribute('aria-controls')).hidden = one !== tab;
  }
  if (focus) tab.focus();
}

for (const tab of tabs) {
  tab.addEventListener('click', () => select(tab));
  tab.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    let next;
    if (step) next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
    if (event.key === 'Home') next = tabs[0];
    if (event.key === 'End') next = tabs.at(-1);
    if (!next) return;
    event.preventDefault();
    select(next, true);
  });
}

// ------------------------------------------------------------------------------------- forms

function clearErrors(name) {
  for (const node of $(`${name}-form`).querySelectorAll('.error')) node.textContent = '';
  for (const node of $(`${name}-form`).querySelectorAll('[aria-invalid]')) node.removeAttribute('aria-invalid');
  for (const node of $(`${name}-form`).querySelectorAll('.hint')) node.hidden = false;
}

function clear(name) {
  clearErrors(name);
  $(`${name}-status`).textContent = '';
  $(`${name}-result`).hidden = true;
  $(`${name}-call`).hidden = true;
}

// What the person at the page can do. The server's own words name fields of the request.
function wayOut(name, error) {
  const tooLong = /^(.* the limit is \d+); this model's maximum context length /s.exec(error.message);
  if (tooLong) return `${tooLong[1]}. Shorten it${$(`${name}-cut`) ? ', or select “Truncate long texts”' : ''}.`;
  if (error.retryAfter) return `${error.message}. Send again in ${number(error.retryAfter)} s.`;
  return error.message;
}

// The error in the place of the hint of its field, so that nothing moves.
function showError(name, error) {
  const field = error.field ?? works[name].field;
  if (error.status === 401) askForKey(error);
  $(`${name}-result`).hidden = true;
  $(`${name}-call`).hidden = true;
  $(`${name}-status`).textContent = '';
  $(`${field}-error`).textContent = wayOut(name, error);
  if (error.field || [400, 413, 422].includes(error.status)) $(field).setAttribute('aria-invalid', 'true');
  if ($(`${field}-hint`)) $(`${field}-hint`).hidden = true;
}

const serverTime = (reply) => `${reply.headers.get('x-compute-time')} ms on the server (${reply.headers.get('x-compute-type')})`;

function statusOf(reply, began) {
  const tokenCount = reply.headers.get('x-compute-tokens');
  const compute = reply.headers.get('x-compute-time');
  const cut = Number(reply.headers.get('x-gpuserve-truncated') ?? 0);
  return `Done: ${[`${(performance.now() - began).toFixed(1)} ms in the browser`, compute && serverTime(reply),
    tokenCount && `${number(Number(tokenCount))} tokens`, cut && `${cut} ${cut === 1 ? 'text' : 'texts'} truncated`].filter(Boolean).join(', ')}.`;
}

// ------------------------------------------------------------------------------ request as text

// The clipboard needs https or this machine; otherwise the text is selected, and the browser's own command copies it.
async function copy(text, said) {
  let done = false;
  getSelection().selectAllChildren(text);
  if (navigator.clipboard) done = await navigator.clipboard.writeText(text.textContent).then(() => true, () => false);
  said.textContent = done || document.execCommand('copy') ? 'Copied.' : 'Selected: copy it with Ctrl + C.';
}

function callOf(title, text) {
  const shown = element('pre', { class: 'example', tabindex: '0', role: 'region', 'aria-label': title }, text);
  const button = element('button', { type: 'button', 'aria-label': `Copy ${title}` }, 'Copy');
  const said = element('span', { class: 'about', role: 'status' });
  button.addEventListener('click', () => copy(shown, said));
  return element('div', {}, element('h3', {}, title), shown, element('div', { class: 'row' }, button, said));
}

function showCall(name, request) {
  const hasKey = $('key').value !== '';
  $(`${name}-call`).replaceChildren(element('summary', {}, 'This request in curl and Python'),
    callOf('curl', curlOf(request, hasKey)), callOf('Python', pythonOf(request, hasKey)));
  $(`${name}-call`).hidden = false;
}

// --------------------------------------------------------------------------------------- running

// The result of the other model: a line and a chart.
async function compared(name, one, input, reply) {
  const reason = works[name].cannot(one);
  if (reason) return { about: reason };
  try {
    const second = await works[name].ask(one, input);
    const { about = '', chart } = works[name].compare(one, input, second, reply);
    return { about: [about, second.headers.has('x-compute-time') && `${serverTime(second)}.`].filter(Boolean).join(' '), chart };
  } catch (error) {
    return { about: wayOut(name, error) };
  }
}

function showOther(name, one, result) {
  const place = $(`${name}-other`);
  const title = $(`${name}-result`).querySelector('h2');
  title.dataset.title ??= title.textContent;
  title.textContent = one ? `${title.dataset.title}, ${model.id}` : title.dataset.title;
  place.hidden = !one;
  if (!one) return;
  const heading = `${title.dataset.title}, ${one.id}`;
  place.replaceChildren(element('h2', {}, heading), element('p', { class: 'about' }, result.about),
    ...(result.chart ? [element('div', { class: 'scroll', role: 'region', 'aria-label': heading, tabindex: '0' }, result.chart)] : []));
}

// The button gets aria-disabled instead of `disabled` while the request runs, so that it keeps the focus.
async function run(name) {
  const form = $(`${name}-form`);
  const button = form.querySelector('button');
  if (button.getAttribute('aria-disabled') === 'true') return;
  const asked = model, besides = other;
  const isCurrent = () => asked === model && besides === other; // false: the user has selected another model
  clearErrors(name);
  button.setAttribute('aria-disabled', 'true');
  $(`${name}-status`).textContent = 'Computing…';
  try {
    if (!asked) throw new Refused('No model is available.');
    const input = works[name].input();
    const began = performance.now();
    const reply = await works[name].ask(asked, input);
    const status = statusOf(reply, began);
    const second = besides && await compared(name, besides, input, reply);
    if (!isCurrent()) return;
    $(`${name}-result`).hidden = false;
    works[name].show(input, reply);
    showOther(name, besides, second);
    showCall(name, reply.request);
    $(`${name}-status`).textContent = status;
  } catch (error) {
    if (isCurrent()) showError(name, error);
  } finally {
    button.removeAttribute('aria-disabled');
  }
}

function textOf(id) {
  if (!$(id).value.trim()) throw new Refused('Enter a text.', { field: id });
  return $(id).value;
}

function linesOf(id) {
  const lines = textOf(id).split('\n').map((line) => line.trim()).filter(Boolean);
  if (lines.length > MAX_TEXTS) throw new Refused(`${number(lines.length)} texts exceed the limit of ${MAX_TEXTS}.`, { field: id });
  return lines;
}

// The server counts items from 0, the page shows them from 1.
async function askOf(lines, path, body) {
  try {
    return await ask(path, body);
  } catch (error) {
    const item = /^item (\d+): /.exec(error.message);
    if (item) error.message = `${lines.length > 1 ? `Text ${Number(item[1]) + 1}: ` : ''}${error.message.slice(item[0].length)}`;
    throw error;
  }
}

// -------------------------------------------------------------------------------------- works

let drawPlane = () => {};

function showPlane(texts, vectors) {
  const enough = texts.length > 2;
  $('plane').toggleAttribute('hidden', !enough);
  $('plane-details').hidden = !enough;
  drawPlane = () => {};
  if (!enough) {
    $('plane-about').textContent = 'The projection needs at least 3 texts.';
    return;
  }
  const { points, share } = project(vectors);
  $('plane-about').textContent = `The first two principal components (${Math.round(100 * share)} % of the variance). The numbers are the line numbers of the texts.`;
  $('points').replaceChildren(pointsTable(texts, points));
  drawPlane = () => plane($('plane'), texts, points);
  drawPlane();
}

const correlationOf = (a, b) => {
  const found = rankCorrelation(a, b);
  return found === undefined ? '' : `Rank correlation with ${model.id}: ${found.toFixed(2)}.`;
};

const embed = {
  field: 'embed-texts', // shows an error of the server that names no field
  cannot: (one) => (one.dim ? '' : 'This model has no embeddings. Select another model, or start the server with an embedding model.'),
  input: () => ({ texts: linesOf('embed-texts'), truncate: $('embed-cut').checked }),
  ask: (one, { texts, truncate }) => askOf(texts, 'embed', { model: one.id, inputs: texts, truncate }),
  show({ texts }, { body }) {
    $('heat').replaceChildren(heat(texts, body));
    $('vectors').replaceChildren(components(texts, body));
    $('vectors-about').textContent = `The first ${Math.min(8, model.dim)} of ${number(model.dim)} components of each vector.`;
    showPlane(texts, body);
  },
  compare: (one, { texts }, { body }, first) => ({ about: correlationOf(similarities(body), similarities(first.body)), chart: heat(texts, body) }),
};

function labelsChart(one, found) {
  if (one.token_labels > 0) return { about: `${number(found.length)} entities.`, chart: entities(found) };
  return { about: `${found.length > MAX_LABELS ? `The ${MAX_LABELS} highest of ${number(found.length)}` : 'All'} labels, by score.`,
    chart: bars('Score of each label', ['Label', 'Score'], found.slice(0, MAX_LABELS).map(({ label, score }) => [label, score]), 'labels') };
}

const classify = {
  field: 'classify-text',
  cannot: (one) => (one.labels || one.token_labels ? ''
    : 'This model has no labels. Start the server with --head FILE to add a classifier head, or with a classification model.'),
  input: () => ({ text: textOf('classify-text'), pair: $('classify-pair-field').hidden ? '' : $('classify-pair').value.trim(),
    truncate: $('classify-cut').checked }),
  ask: (one, { text, pair, truncate }) => (one.token_labels > 0 ? askOf([text], `models/${one.id}`, { inputs: text, parameters: { truncate } })
    : askOf([text], 'predict', { model: one.id, inputs: pair ? [text, pair] : text, truncate })),
  show(_, { body }) {
    const { about, chart } = labelsChart(model, body);
    $('bars-about').textContent = about;
    $('bars').replaceChildren(chart);
  },
  compare: (one, _, { body }) => labelsChart(one, body),
};

const tokenize = {
  field: 'tokens-text',
  cannot: () => '',
  input: () => ({ text: textOf('tokens-text') }),
  ask: (one, { text }) => ask('tokenize', { model: one.id, inputs: text }),
  show(_, { body }) {
    $('token-count').textContent = tokensLine(body[0], model.max_tokens);
    $('tokens').replaceChildren(...tokens(body[0]));
  },
  compare: (one, _, { body }) => ({ about: tokensLine(body[0], one.max_tokens), chart: element('ol', { class: 'tokens' }, ...tokens(body[0])) }),
};

function scoresOf(body) {
  return [...body.results].sort((a, b) => a.index - b.index).map((entry) => entry.relevance_score);
}

function rankingChart(documents, body) {
  return { about: `Sorted by ${body.meta.method === 'cosine' ? 'similarity of embeddings' : body.meta.method}, best first.`,
    chart: bars('Score of each document', ['Document', 'Score'], body.results.map((entry) => [documents[entry.index], entry.relevance_score])) };
}

const rerank = {
  field: 'rerank-documents',
  cannot: (one) => (one.dim || one.labels === 1 ? '' : 'This model does not support reranking. Use an embedding model, or a cross-encoder with one label.'),
  input: () => ({ query: textOf('rerank-query'), documents: linesOf('rerank-documents') }),
  ask: (one, { query, documents }) => askOf(documents, 'v1/rerank', { model: one.id, query, documents }),
  show({ documents }, { body }) {
    const { about, chart } = rankingChart(documents, body);
    $('ranking-about').textContent = about;
    $('ranking').replaceChildren(chart);
  },
  compare(one, { documents }, { body }, first) {
    const { about, chart } = rankingChart(documents, body);
    return { about: `${about} ${correlationOf(scoresOf(body), scoresOf(first.body))}`.trim(), chart };
  },
};

const works = { embed, classify, tokens: tokenize, rerank };

for (const name of Object.keys(works)) {
  $(`${name}-form`).addEventListener('submit', (event) => {
    event.preventDefault();
    run(name);
  });
  $(`${name}-form`).addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) run(name);
  });
}
new ResizeObserver(() => drawPlane()).observe($('panel-embed'));
for (const name of ['model', 'other']) $(name).addEventListener('change', () => trying(showModel));
$('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  trying(loadModels);
});
select(tabs[0]);
trying(loadModels);
