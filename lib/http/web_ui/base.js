// Helpers shared by the scripts: DOM nodes, number formatting and requests to the server.
export const $ = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

export function number(value, digits = 0) {
  if (!Number.isFinite(value)) return '–';
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// An error with the HTTP status of the reply, if any, or the id of the form field it concerns.
export class Refused extends Error {
  constructor(message, { status, field } = {}) {
    super(message);
    Object.assign(this, { status, field });
  }
}

function messageOf(body, status) {
  const found = body && (body.error?.message ?? body.error ?? body.message);
  return typeof found === 'string' ? found : `The server returned status ${status}.`;
}

export async function ask(path, body) {
  const headers = {};
  const key = $('key').value;
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers['Content-Type'] = 'application/json';
  let reply;
  try {
    reply = await fetch(path, { method: body ? 'POST' : 'GET', headers, body: body && JSON.stringify(body) });
  } catch {
    throw new Refused('The server does not respond. Check that it is running.');
  }
  const text = await reply.text();
  let parsed = text;
  if ((reply.headers.get('Content-Type') ?? '').includes('json')) parsed = JSON.parse(text);
  if (!reply.ok) throw new Refused(messageOf(parsed, reply.status), { status: reply.status });
  return { body: parsed, headers: reply.headers };
}
