// Live metrics: polls /metrics every 2 s and plots the texts per second of the last 2 minutes.
import { $, ask, drawn, element, number } from './base.js';

const EVERY_MS = 2000;
const KEPT = 60;
const SMOOTHED = 5; // samples that a rate is averaged over
const WIDTH = 600, HEIGHT = 80;
let samples = [];
let rates = [];

// Sum of each metric over its labels.
function sumsOf(text) {
  const sums = {};
  for (const line of text.split('\n')) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{[^}]*\})? ([-+\d.eE]+)/.exec(line);
    if (match) sums[match[1]] = (sums[match[1]] ?? 0) + Number(match[2]);
  }
  return sums;
}

function change(name, from, to) {
  return (to.sums[name] ?? 0) - (from.sums[name] ?? 0);
}

function perSecond(name, from, to) {
  return change(name, from, to) / ((to.at - from.at) / 1000);
}

function drawHistory() {
  const max = Math.max(...rates, 1);
  const points = rates.map((rate, i) => [WIDTH - (rates.length - 1 - i) * WIDTH / (KEPT - 1), HEIGHT - 2 - (HEIGHT - 8) * rate / max]);
  const line = points.map((point) => point.join(',')).join(' ');
  $('history').replaceChildren(
    drawn('polygon', { points: `${points[0][0]},${HEIGHT} ${line} ${WIDTH},${HEIGHT}` }),
    drawn('polyline', { points: line }));
  $('history-max').textContent = number(max);
  const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
  $('history-words').textContent = `Texts per second, last 2 minutes: current ${number(rates.at(-1), 1)}, maximum ${number(Math.max(...rates), 1)}, mean ${number(mean, 1)}`;
}

// The table of the plot, made when it is opened.
function listHistory() {
  if (!$('history-table').open) return;
  $('history-rows').replaceChildren(...rates.map((rate, i) => element('tr', {},
    element('th', { scope: 'row' }, `${(rates.length - 1 - i) * EVERY_MS / 1000} s ago`), element('td', {}, number(rate, 1)))).reverse());
}

function show(to) {
  const from = samples[0];
  $('queue').textContent = number(to.sums.gpuserve_queue_tokens);
  $('memory').textContent = number(to.sums.gpuserve_memory_bytes / 1e6);
  if (from === to) return;
  $('rate').textContent = number(perSecond('gpuserve_items_total', from, to), 1);
  $('token-rate').textContent = number(perSecond('gpuserve_tokens_total', from, to));
  $('latency').textContent = number(1000 * change('gpuserve_request_seconds_sum', from, to) / change('gpuserve_request_seconds_count', from, to), 1);
  rates.push(perSecond('gpuserve_items_total', samples.at(-2), to));
  if (rates.length > KEPT) rates.shift();
  drawHistory();
}

async function refresh() {
  const { body } = await ask('metrics');
  samples.push({ at: performance.now(), sums: sumsOf(body) });
  if (samples.length > SMOOTHED + 1) samples.shift();
  show(samples.at(-1));
}

function forget() {
  samples = [];
  rates = [];
  for (const id of ['rate', 'token-rate', 'latency', 'queue', 'memory']) $(id).textContent = '–';
}

// A hidden page sends no requests.
async function watch() {
  try {
    if (document.hidden) forget();
    else await refresh();
    $('live-error').textContent = '';
  } catch (error) {
    forget();
    $('live-error').textContent = error.status === 401 ? 'The metrics require an API key.' : error.message;
  }
  setTimeout(watch, EVERY_MS);
}

$('history-table').addEventListener('toggle', listHistory);
watch();
