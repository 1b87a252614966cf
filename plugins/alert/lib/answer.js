// Takes a request, gives a response: the one place that knows of HTTP.

import { refuse, Refusal } from './refusal.js';
import { readAlerts } from './alerts.js';
import { keeps, readFilter } from './filter.js';
import { chooseFormat, FORMATS } from './formats.js';

const MAX_BYTES = 4 << 20;

/** Answers one request; never throws. */
export async function answer(request) {
  try {
    return await serve(request);
  } catch (error) {
    if (error instanceof Refusal) return json({ error: error.message, field: error.field }, error.status, error.headers);
    return json({ error: `alert failed: ${error.message}` }, 500);
  }
}

async function serve(request) {
  const url = new URL(request.url);
  if (url.pathname !== '/') {
    throw refuse(404, 'path', `\`${url.pathname}\` is not here; POST alerts to \`/\``);
  }
  if (request.method === 'GET') return json(describe());
  if (request.method !== 'POST') {
    throw refuse(405, 'method', `${request.method} is not served; POST alerts, or GET a description`, { allow: 'GET, POST' });
  }
  const format = chooseFormat(url.searchParams.get('format'), request.headers.get('accept'));
  const filter = readFilter(url.searchParams);
  const alerts = readAlerts(await bodyOf(request)).filter((alert) => keeps(filter, alert));
  const headers = { 'content-type': format.type, 'x-alerts': String(alerts.length), vary: 'accept' };
  return new Response(format.write(alerts, new Date()), { headers });
}

/** The body as text, as long as it keeps within the bound: read piece by piece, since a length may be wrong or absent. */
async function bodyOf(request) {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let text = '';
  let bytes = 0;
  const reader = request.body?.getReader();
  try {
    for (let piece = await reader?.read(); piece && !piece.done; piece = await reader.read()) {
      bytes += piece.value.byteLength;
      if (bytes > MAX_BYTES) {
        throw refuse(413, 'body', `the body has more than ${MAX_BYTES} bytes; send fewer alerts at once`);
      }
      text += decoder.decode(piece.value, { stream: true });
    }
    return text + decoder.decode();
  } catch (error) {
    throw error instanceof Refusal ? error : refuse(400, 'body', 'the body is not UTF-8');
  }
}

function describe() {
  return {
    name: 'alert',
    does: 'filters and formats hazard alerts',
    post: 'a GeoJSON FeatureCollection; properties: event, severity, onset, expires; optional: id, headline, description, sent',
    query: {
      bbox: 'west,south,east,north in degrees; west > east crosses the antimeridian',
      'min-severity': 'minor, moderate, severe or extreme',
      event: 'one or more, with commas: flood,storm',
      'active-at': 'a date by ISO 8601, or now',
      format: FORMATS.map((format) => format.name).join(', '),
    },
    accept: FORMATS.map((format) => format.type),
  };
}

function json(value, status = 200, headers = {}) {
  return new Response(`${JSON.stringify(value)}\n`, { status, headers: { 'content-type': 'application/json', ...headers } });
}
