// Web page of the server. All data come from the server's own API; no other origin is contacted.
import { $, Refused, ask, element, number } from './base.js';
import { bars, components, entities, heat, plane, pointsTable, project, tokens, tokensLine } from './charts.js';

const MAX_TEXTS = 64;
const MAX_LABELS = 20;
let model; // reply of GET /v1/models/{model} for the selected model

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

async function showModel() {
  const { body } = await ask(`v1/models/${$('model').value}`);
  model = body;
  $('model-facts').textContent = factsOf(model);
  allow('embed', model.dim ? '' : 'This model has no embeddings. Select another model, or start the server with an embedding model.');
  allow('classify', model.labels || model.token_labels ? ''
    : 'This model has no labels. Start the server with --head FILE to add a classifier head, or with a classification model.');
  allow('rerank', model.dim || model.labels === 1 ? '' : 'This model does not support reranking. Use an embedding model, or a cross-encoder with one label.');
  $('classify-pair-field').hidden = Boolean(model.dim || model.token_labels);
  for (const name of Object.keys(works)) clear(name);
}

async function loadModels() {
  const { body } = await ask('v1/models');
  const before = $('model').value;
  $('model').replaceChildren(...body.data.map((one) => element('option', { value: one.id }, one.id)));
  if (body.data.some((one) => one.id === before)) $('model').value = before;
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
}

// The error in the place of the hint of its field, so that nothing moves.
function showError(name, error) {
  const field = error.field ?? works[name].field;
  if (error.status === 401) askForKey(error);
  $(`${name}-result`).hidden = true;
  $(`${name}-status`).textContent = '';
  $(`${field}-error`).textContent = error.message;
  if (error.field || [400, 413, 422].includes(error.status)) $(field).setAttribute('aria-invalid', 'true');
  if ($(`${field}-hint`)) $(`${field}-hint`).hidden = true;
}

function statusOf(reply, began) {
  const tokenCount = reply.headers.get('x-compute-tokens');
  const compute = reply.headers.get('x-compute-time');
  const cut = Number(reply.headers.get('x-gpuserve-truncated') ?? 0);
  return `Done: ${[`${(performance.now() - began).toFixed(1)} ms in the browser`, compute && `${compute} ms on the server (${reply.headers.get('x-compute-type')})`,
    tokenCount && `${number(Number(tokenCount))} tokens`, cut && `${cut} ${cut === 1 ? 'text' : 'texts'} truncated`].filter(Boolean).join(', ')}.`;
}

// The button gets aria-disabled instead of `disabled` while the request runs, so that it keeps the focus.
async function run(name) {
  const form = $(`${name}-form`);
  const button = form.querySelector('button');
  if (button.getAttribute('aria-disabled') === 'true') return;
  const asked = model;
  clearErrors(name);
  button.setAttribute('aria-disabled', 'true');
  $(`${name}-status`).textContent = 'Computing…';
  try {
    if (!asked) throw new Refused('No model is available.');
    const began = performance.now();
    const { reply, show } = await works[name].work();
    if (asked !== model) return; // the user selected another model meanwhile
    const status = statusOf(reply, began);
    $(`${name}-result`).hidden = false;
    show();
    $(`${name}-status`).textContent = status;
  } catch (error) {
    if (asked === model) showError(name, error);
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

async function embed() {
  const texts = linesOf('embed-texts');
  const reply = await askOf(texts, 'embed', { model: model.id, inputs: texts, truncate: $('embed-cut').checked });
  return { reply, show() {
    $('heat').replaceChildren(heat(texts, reply.body));
    $('vectors').replaceChildren(components(texts, reply.body));
    $('vectors-about').textContent = `The first ${Math.min(8, model.dim)} of ${number(model.dim)} components of each vector.`;
    showPlane(texts, reply.body);
  } };
}

async function classify() {
  const text = textOf('classify-text');
  const pair = $('classify-pair-field').hidden ? '' : $('classify-pair').value.trim();
  const truncate = $('classify-cut').checked;
  const ofTokens = model.token_labels > 0;
  const reply = ofTokens ? await askOf([text], `models/${model.id}`, { inputs: text, parameters: { truncate } })
    : await askOf([text], 'predict', { model: model.id, inputs: pair ? [text, pair] : text, truncate });
  return { reply, show() {
    const found = reply.body;
    $('bars-about').textContent = ofTokens ? `${number(found.length)} entities.`
      : `${found.length > MAX_LABELS ? `The ${MAX_LABELS} highest of ${number(found.length)}` : 'All'} labels, by score.`;
    $('bars').replaceChildren(ofTokens ? entities(found)
      : bars('Score of each label', ['Label', 'Score'], found.slice(0, MAX_LABELS).map(({ label, score }) => [label, score]), 'labels'));
  } };
}

async function tokenize() {
  const text = textOf('tokens-text');
  const reply = await ask('tokenize', { model: model.id, inputs: text });
  return { reply, show() {
    $('token-count').textContent = tokensLine(reply.body[0], model.max_tokens);
    $('tokens').replaceChildren(...tokens(reply.body[0]));
  } };
}

async function rerank() {
  const query = textOf('rerank-query');
  const documents = linesOf('rerank-documents');
  const reply = await askOf(documents, 'v1/rerank', { model: model.id, query, documents });
  return { reply, show() {
    $('ranking-about').textContent = `Sorted by ${reply.body.meta.method === 'cosine' ? 'similarity of embeddings' : reply.body.meta.method}, best first.`;
    $('ranking').replaceChildren(bars('Score of each document', ['Document', 'Score'],
      reply.body.results.map((entry) => [documents[entry.index], entry.relevance_score])));
  } };
}

// Each task, with the field that an error of the server without a field is shown at.
const works = {
  embed: { work: embed, field: 'embed-texts' },
  classify: { work: classify, field: 'classify-text' },
  tokens: { work: tokenize, field: 'tokens-text' },
  rerank: { work: rerank, field: 'rerank-documents' },
};

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
$('model').addEventListener('change', () => trying(showModel));
$('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  trying(loadModels);
});
select(tabs[0]);
trying(loadModels);
