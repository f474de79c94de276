// The page for people: every figure comes from the server's own API, nothing from elsewhere.
const $ = (id) => document.getElementById(id);
const MAX_TEXTS = 64;
let models = [];

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function drawn(name, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function say(text, bad = false) {
  $('status').textContent = text;
  $('status').classList.toggle('bad', bad);
}

function messageOf(body, status) {
  const found = body && (body.error?.message ?? body.error ?? body.message);
  return typeof found === 'string' ? found : `the server answered ${status}`;
}

async function ask(path, body) {
  const headers = {};
  const key = $('key').value;
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers['Content-Type'] = 'application/json';
  const reply = await fetch(path, { method: body ? 'POST' : 'GET', headers, body: body && JSON.stringify(body) });
  const text = await reply.text();
  if (reply.status === 401) $('key-field').hidden = false;
  let parsed = text;
  if ((reply.headers.get('Content-Type') ?? '').includes('json')) parsed = JSON.parse(text);
  if (!reply.ok) throw new Error(messageOf(parsed, reply.status));
  return { body: parsed, headers: reply.headers };
}

// ------------------------------------------------------------------------------------- model

async function loadModels() {
  const { body } = await ask('v1/models');
  const before = $('model').value;
  models = body.data;
  $('model').replaceChildren(...models.map((model) => element('option', { value: model.id }, model.id)));
  if (models.some((model) => model.id === before)) $('model').value = before;
  await showModel();
}

async function showModel() {
  const name = $('model').value;
  const { body } = await ask(`v1/models/${name}`);
  $('tab-embed').disabled = !body.dim;
  $('tab-classify').disabled = !body.labels;
  $('model-facts').textContent = [name, body.dtype, `on ${body.device}`, `${body.max_tokens} tokens a text at most`,
    body.dim && `vectors of ${body.dim}`, body.labels && `${body.labels} labels`].filter(Boolean).join(', ');
  const selected = document.querySelector('[role=tab][aria-selected=true]');
  if (!selected || selected.disabled) select(document.querySelector('[role=tab]:not([disabled])'));
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
  say('');
}

for (const tab of tabs) {
  tab.addEventListener('click', () => select(tab));
  tab.addEventListener('keydown', (event) => {
    const usable = tabs.filter((one) => !one.disabled);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    let next;
    if (step) next = usable[(usable.indexOf(tab) + step + usable.length) % usable.length];
    if (event.key === 'Home') next = usable[0];
    if (event.key === 'End') next = usable.at(-1);
    if (!next) return;
    event.preventDefault();
    select(next, true);
  });
}

function onSubmit(id, work) {
  $(id).addEventListener('submit', async (event) => {
    event.preventDefault();
    const button = event.target.querySelector('button');
    button.disabled = true;
    say('Computing…');
    const began = performance.now();
    try {
      const reply = await work();
      const tokens = reply.headers.get('x-compute-tokens');
      const compute = reply.headers.get('x-compute-time') ?? reply.headers.get('x-inference-time');
      const cut = reply.headers.get('x-gpuserve-truncated');
      say([`${(performance.now() - began).toFixed(1)} ms here`, compute && `${compute} ms on ${reply.headers.get('x-compute-type') ?? 'the server'}`,
        tokens && `${tokens} tokens`, cut && cut !== '0' && `${cut} texts were cut`].filter(Boolean).join(', '));
    } catch (error) {
      say(error.message, true);
    } finally {
      button.disabled = false;
    }
  });
}

function linesOf(id) {
  const lines = $(id).value.split('\n').map((line) => line.trim()).filter(Boolean);
  if (lines.length === 0) throw new Error('There is no text.');
  if (lines.length > MAX_TEXTS) throw new Error(`${lines.length} texts: ${MAX_TEXTS} at most here.`);
  return lines;
}

// ------------------------------------------------------------------------------------- embed

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const cosine = (a, b) => dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);

// The principal directions by power iteration on the small matrix of inner products (n x n).
function project(vectors) {
  const n = vectors.length;
  const mean = vectors[0].map((_, j) => vectors.reduce((sum, row) => sum + row[j], 0) / n);
  const rows = vectors.map((row) => row.map((value, j) => value - mean[j]));
  const gram = rows.map((a) => rows.map((b) => dot(a, b)));
  const axes = [];
  for (let k = 0; k < 2; k++) {
    let v = gram.map((_, i) => Math.sin(1 + i * (k + 1)));
    let length = 0;
    for (let turn = 0; turn < 200; turn++) {
      for (const axis of axes) {
        const share = dot(v, axis.v);
        v = v.map((value, i) => value - share * axis.v[i]);
      }
      v = gram.map((row) => dot(row, v));
      length = Math.sqrt(dot(v, v));
      if (length < 1e-12) break;
      v = v.map((value) => value / length);
    }
    axes.push({ v, scale: Math.sqrt(length) });
  }
  return rows.map((_, i) => axes.map((axis) => axis.v[i] * axis.scale));
}

function showHeat(texts, vectors) {
  const head = element('tr', {}, element('td'), ...texts.map((_, i) => element('th', { scope: 'col' }, `${i + 1}`)));
  const rows = texts.map((text, i) => element('tr', {},
    element('th', { scope: 'row', title: text }, `${i + 1} ${text}`),
    ...texts.map((_, j) => {
      const value = cosine(vectors[i], vectors[j]);
      const cell = element('td', {}, value.toFixed(2));
      cell.style.setProperty('--share', Math.max(0, value * 0.75).toFixed(3));
      return cell;
    })));
  $('heat').replaceChildren(element('table', { class: 'heat' }, element('thead', {}, head), element('tbody', {}, ...rows)));
}

function showPlane(texts, vectors) {
  if (texts.length < 3) {
    $('plane').replaceChildren(drawn('text', { x: 20, y: 30 }, 'Three texts make a plane.'));
    return;
  }
  const points = project(vectors);
  const bounds = [0, 1].map((k) => [Math.min(...points.map((p) => p[k])), Math.max(...points.map((p) => p[k]))]);
  const place = (p, k, from, to) => from + (to - from) * (p[k] - bounds[k][0]) / (bounds[k][1] - bounds[k][0] || 1);
  $('plane').replaceChildren(...points.flatMap((p, i) => {
    const x = place(p, 0, 15, 405), y = place(p, 1, 300, 20);
    // Texts that say the same lie close together: numbers alone stay readable there.
    const side = i % 2 ? -1 : 1;
    return [drawn('circle', { cx: x, cy: y, r: 4 }, drawn('title', {}, texts[i])),
      drawn('text', { x: x + 7 * side, y: y + 4, 'text-anchor': side < 0 ? 'end' : 'start' }, `${i + 1}`)];
  }));
}

function showVectors(texts, vectors) {
  $('vectors').replaceChildren(element('table', {}, element('tbody', {}, ...texts.map((text, i) => element('tr', {},
    element('th', { scope: 'row', title: text }, `${i + 1} ${text}`),
    ...vectors[i].slice(0, 6).map((value) => element('td', {}, value.toFixed(4))),
    element('td', {}, `… ${vectors[i].length}`))))));
}

onSubmit('embed-form', async () => {
  const texts = linesOf('embed-texts');
  const reply = await ask('v1/embeddings', { model: $('model').value, input: texts, encoding_format: 'float' });
  const vectors = reply.body.data.map((entry) => entry.embedding);
  $('embed-result').hidden = false;
  showHeat(texts, vectors);
  showPlane(texts, vectors);
  showVectors(texts, vectors);
  return reply;
});

// -------------------------------------------------------------------------------- the others

onSubmit('classify-form', async () => {
  const reply = await ask(`v1/models/${$('model').value}:classify`, { examples: [$('classify-text').value] });
  const found = reply.body.result[0].toSorted((a, b) => b[1] - a[1]).slice(0, 20);
  const most = Math.max(...found.map(([, score]) => Math.abs(score)), 1e-9);
  $('bars').replaceChildren(...found.map(([label, score]) => {
    const bar = element('i', { 'aria-hidden': 'true' });
    bar.style.width = `${100 * Math.max(0, score) / Math.max(1, most)}%`;
    return element('div', { class: 'bar' }, element('span', {}, label), bar, element('span', {}, score.toFixed(4)));
  }));
  return reply;
});

onSubmit('tokens-form', async () => {
  const reply = await ask('tokenize', { model: $('model').value, inputs: $('tokens-text').value });
  const tokens = reply.body[0];
  $('token-count').textContent = `${tokens.length} tokens`;
  $('tokens').replaceChildren(...tokens.map((token) => element('li', token.special ? { class: 'special', title: 'special' } : {},
    token.text || '␠', element('small', {}, `${token.id}`))));
  return reply;
});

onSubmit('rerank-form', async () => {
  const documents = linesOf('rerank-documents');
  const reply = await ask('v1/rerank', { model: $('model').value, query: $('rerank-query').value, documents });
  $('ranking').replaceChildren(...reply.body.results.map((entry) => element('li', {},
    `${documents[entry.index]} `, element('small', {}, entry.relevance_score.toFixed(4)))));
  return reply;
});

// --------------------------------------------------------------------------------------- now

const EVERY_MS = 2000;
const history = [];
let last;

// Sums of the samples of each name; the page needs no labels.
function sumsOf(text) {
  const sums = {};
  for (const line of text.split('\n')) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{[^}]*\})? ([-+\d.eE]+)/.exec(line);
    if (match) sums[match[1]] = (sums[match[1]] ?? 0) + Number(match[2]);
  }
  return sums;
}

function show(id, value, digits = 0) {
  $(id).textContent = Number.isFinite(value) ? value.toFixed(digits) : '–';
}

async function refresh() {
  const { body } = await ask('metrics');
  const now = { at: performance.now(), sums: sumsOf(body) };
  const { sums } = now;
  if (last) {
    const seconds = (now.at - last.at) / 1000;
    const change = (name) => (sums[name] ?? 0) - (last.sums[name] ?? 0);
    const rate = change('gpuserve_items_total') / seconds;
    show('rate', rate);
    show('token-rate', change('gpuserve_tokens_total') / seconds);
    show('latency', 1000 * change('gpuserve_request_seconds_sum') / change('gpuserve_request_seconds_count'), 1);
    history.push(rate);
    if (history.length > 60) history.shift();
    const most = Math.max(...history, 1);
    $('history').replaceChildren(drawn('polyline', {
      points: history.map((value, i) => `${600 - (history.length - 1 - i) * 10},${76 - 70 * value / most}`).join(' ') }));
  }
  show('queue', sums.gpuserve_queue_tokens);
  show('memory', sums.gpuserve_memory_bytes / 1e6);
  last = now;
}

async function watch() {
  try {
    if (!document.hidden) await refresh();
    $('live').hidden = false;
  } catch {
    $('live').hidden = true;
  }
  setTimeout(watch, EVERY_MS);
}

$('model').addEventListener('change', () => showModel().catch((error) => say(error.message, true)));
$('key').addEventListener('change', () => start());

async function start() {
  try {
    await loadModels();
  } catch (error) {
    say(error.message, true);
    $('model-facts').textContent = 'No model can be asked yet.';
  }
}

start();
watch();
