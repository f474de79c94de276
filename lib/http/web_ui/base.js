// Helpers shared by the scripts: DOM nodes, number formatting, requests to the server and their text for other clients.
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

// An error with the HTTP status of the reply and the seconds of its Retry-After, if any, or the id of the form field it
// concerns.
export class Refused extends Error {
  constructor(message, { status, retryAfter, field } = {}) {
    super(message);
    Object.assign(this, { status, retryAfter, field });
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
  if (!reply.ok) throw new Refused(messageOf(parsed, reply.status), { status: reply.status, retryAfter: Number(reply.headers.get('Retry-After')) });
  return { body: parsed, headers: reply.headers, request: { path, body } };
}

// The templates of the API document, such as /v2/models/{model}, stay readable.
const urlOf = (path) => (path.startsWith('/') ? location.origin + path : new URL(path, location.href).href);

// One request as a command of curl. The API key stays out of it.
export function curlOf({ path, body }, hasKey = false) {
  const key = hasKey ? ' -H "Authorization: Bearer $GPUSERVE_API_KEY"' : '';
  if (!body) return `curl ${urlOf(path)}${key}`;
  return `curl ${urlOf(path)}${key} -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
}

function pythonOfValue(value) {
  if (Array.isArray(value)) return `[${value.map(pythonOfValue).join(', ')}]`;
  if (value === null) return 'None';
  if (typeof value === 'object') return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonOfValue(one)}`).join(', ')}}`;
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  return JSON.stringify(value);
}

// One request as a line of Python with the package requests.
export function pythonOf({ path, body }, hasKey = false) {
  const key = hasKey ? ', headers={"Authorization": "Bearer " + os.environ["GPUSERVE_API_KEY"]}' : '';
  return `import ${hasKey ? 'os, ' : ''}requests; print(requests.post("${urlOf(path)}", json=${pythonOfValue(body)}${key}).json())`;
}
