// The OpenAPI document for people: one folding entry for each path and method.
const names = { openai: 'OpenAI', tei: 'Text Embeddings Inference and Hugging Face', cohere: 'Cohere and Jina', kserve: 'KServe, TensorFlow Serving and Ollama' };

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function shape(schema) {
  return element('pre', { class: 'scroll', tabindex: '0' }, JSON.stringify(schema, null, 2));
}

function entry(path, method, operation) {
  const parts = [];
  if (operation.description) parts.push(element('p', {}, operation.description));
  const body = operation.requestBody?.content['application/json']?.schema;
  if (body) parts.push(element('h4', {}, 'Request'), shape(body));
  const [media, reply] = Object.entries(operation.responses['200'].content)[0];
  parts.push(element('h4', {}, `Reply: ${media}`));
  if (media.includes('json')) parts.push(shape(reply.schema));
  const others = Object.entries(operation.responses).filter(([status]) => status !== '200');
  parts.push(element('h4', {}, 'Other answers'), element('dl', {}, ...others.flatMap(([status, response]) => [
    element('dt', {}, status), element('dd', { class: 'small' }, response.description)])));
  return element('details', {}, element('summary', {}, element('code', {}, `${method.toUpperCase()} ${path}`), ` ${operation.summary}`), ...parts);
}

const main = document.getElementById('main');
try {
  const found = await (await fetch('openapi.json')).json();
  document.getElementById('about').textContent = `${found.info.description} Version ${found.info.version}.`;
  for (const [tag, title] of Object.entries(names)) {
    main.append(element('h2', {}, title));
    for (const [path, methods] of Object.entries(found.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (operation.tags[0] === tag) main.append(entry(path, method, operation));
      }
    }
  }
} catch (error) {
  document.getElementById('about').textContent = `The document cannot be read: ${error.message}`;
}
