// Charts and tables of results. Each chart is a table, or has a table with the same numbers.
import { drawn, element, number } from './base.js';

const MAX_TOKENS = 2000;
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const cosine = (a, b) => dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);

function rowHead(i, text) {
  return element('th', { scope: 'row', title: text }, element('b', {}, `${i + 1}`), ` ${text}`);
}

function table(caption, heads, rows, attributes = {}) {
  return element('table', attributes, element('caption', { class: 'hidden' }, caption),
    element('thead', {}, element('tr', {}, ...heads.map((head) => (head ? element('th', { scope: 'col' }, head) : element('td'))))),
    element('tbody', {}, ...rows));
}

// ---------------------------------------------------------------------------------- embeddings

export function heat(texts, vectors) {
  const rows = texts.map((text, i) => element('tr', {}, rowHead(i, text), ...texts.map((_, j) => {
    const value = cosine(vectors[i], vectors[j]);
    const cell = element('td', {}, value.toFixed(2));
    cell.style.setProperty('--share', Math.max(0, value).toFixed(3));
    return cell;
  })));
  return table('Cosine similarity of each pair of texts', ['Text', ...texts.map((_, i) => `${i + 1}`)], rows, { class: 'heat' });
}

export function components(texts, vectors) {
  const rows = texts.map((text, i) => element('tr', {}, rowHead(i, text),
    ...vectors[i].slice(0, 8).map((value) => element('td', {}, value.toFixed(4)))));
  const n = Math.min(8, vectors[0].length);
  return table(`The first ${n} of ${vectors[0].length} components`, ['Text', ...vectors[0].slice(0, 8).map((_, i) => `${i + 1}`)], rows);
}

// Ranks from 0; equal values have the mean of their ranks.
function ranksOf(values) {
  const order = values.map((value, i) => [value, i]).sort((a, b) => a[0] - b[0]);
  const ranks = [];
  for (let begin = 0, end; begin < order.length; begin = end) {
    for (end = begin; end < order.length && order[end][0] === order[begin][0]; end++);
    for (let k = begin; k < end; k++) ranks[order[k][1]] = (begin + end - 1) / 2;
  }
  return ranks;
}

// Spearman's rank correlation; undefined for fewer than 3 values, or if one side's are all equal.
export function rankCorrelation(a, b) {
  const centred = [a, b].map((values) => ranksOf(values).map((rank) => rank - (values.length - 1) / 2));
  const squares = dot(centred[0], centred[0]) * dot(centred[1], centred[1]);
  return a.length > 2 && squares > 0 ? dot(...centred) / Math.sqrt(squares) : undefined;
}

export function similarities(vectors) {
  return vectors.flatMap((a, i) => vectors.slice(i + 1).map((b) => cosine(a, b)));
}

// Principal component analysis by power iteration on the Gram matrix (n x n): the points, and the share
// of the variance that the first two components explain.
export function project(vectors) {
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
    axes.push({ v, length });
  }
  const all = gram.reduce((sum, row, i) => sum + row[i], 0);
  return {
    points: rows.map((_, i) => axes.map((axis) => axis.v[i] * Math.sqrt(axis.length))),
    share: all > 0 ? Math.min(1, (axes[0].length + axes[1].length) / all) : 0,
  };
}

const OFFSETS = [[8, 4, 'start'], [-8, 4, 'end'], [0, -9, 'middle'], [0, 18, 'middle'],
  [7, -6, 'start'], [-7, -6, 'end'], [7, 14, 'start'], [-7, 14, 'end']];

function boxOf(x, y, anchor, text) {
  const width = 8 * text.length;
  const left = { start: x, end: x - width, middle: x - width / 2 }[anchor];
  return [left, y - 11, left + width, y + 2];
}

const meet = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

// A label for each point where it does not overlap another; the table has all of them.
function labelsOf(dots, width, height) {
  const taken = dots.map(([x, y]) => [x - 4, y - 4, x + 4, y + 4]);
  return dots.flatMap(([x, y], i) => {
    const text = `${i + 1}`;
    for (const [dx, dy, anchor] of OFFSETS) {
      const box = boxOf(x + dx, y + dy, anchor, text);
      const inside = box[0] > 2 && box[1] > 2 && box[2] < width - 2 && box[3] < height - 2;
      if (inside && !taken.some((other) => meet(box, other))) {
        taken.push(box);
        return [drawn('text', { x: x + dx, y: y + dy, 'text-anchor': anchor }, text)];
      }
    }
    return [];
  });
}

// Drawn in pixels of the available width, so that labels have the same size on every screen.
export function plane(svg, texts, points) {
  const width = Math.max(240, svg.clientWidth), height = Math.round(Math.min(360, width * 0.7)), edge = 26;
  const spread = (k) => points.map((point) => point[k]);
  const scaled = (value, all, from, to) => {
    const min = Math.min(...all), max = Math.max(...all);
    return max - min < 1e-9 ? (from + to) / 2 : from + (to - from) * (value - min) / (max - min);
  };
  const dots = points.map((point) => [scaled(point[0], spread(0), edge, width - edge), scaled(point[1], spread(1), height - edge, edge)]);
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('height', height);
  svg.replaceChildren(...dots.map(([cx, cy], i) => drawn('circle', { cx, cy, r: 4.5 }, drawn('title', {}, `${i + 1} ${texts[i]}`))),
    ...labelsOf(dots, width, height));
}

export function pointsTable(texts, points) {
  const rows = texts.map((text, i) => element('tr', {}, rowHead(i, text), ...points[i].map((value) => element('td', {}, value.toFixed(3)))));
  return table('Coordinates of each text', ['Text', 'x', 'y'], rows);
}

// ------------------------------------------------------------------------------ scores, tokens

// The cell of a bar, hidden from screen readers: the next cell has the same number.
function barOf(score, max) {
  const bar = element('i');
  bar.style.width = `${100 * Math.max(0, score) / max}%`;
  return element('td', { class: 'track', 'aria-hidden': 'true' }, bar);
}

export function bars(caption, heads, scored, kind = '') {
  const max = Math.max(1, ...scored.map(([, score]) => Math.abs(score)));
  return table(caption, [heads[0], '', heads[1]], scored.map(([label, score]) => element('tr', { class: 'bar' },
    element('th', { scope: 'row', title: label }, element('div', {}, label)), barOf(score, max), element('td', {}, score.toFixed(4)))), { class: `bars ${kind}` });
}

export function entities(found) {
  return table('Entities of the text', ['Entity', 'Label', 'Score'], found.map((entity) => element('tr', { class: 'entity' },
    element('th', { scope: 'row' }, entity.word), element('td', {}, entity.entity_group), element('td', {}, entity.score.toFixed(4)))), { class: 'bars' });
}

export function tokens(list) {
  return list.slice(0, MAX_TOKENS).map((token) => element('li', token.special ? { class: 'special' } : {},
    token.text.trim() ? token.text : '␠', element('small', {}, `${token.id}`)));
}

export function tokensLine(list, max) {
  const special = list.filter((token) => token.special).length;
  const limit = list.length > max ? `; above the model's limit of ${number(max)}` : `; the model's limit is ${number(max)}`;
  const cut = list.length > MAX_TOKENS ? ` The first ${number(MAX_TOKENS)} are shown.` : '';
  return `${number(list.length)} tokens, including ${special} special tokens (dashed)${limit}.${cut}`;
}
