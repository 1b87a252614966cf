import assert from 'node:assert/strict';
import { test } from 'node:test';

import { answer } from '../lib/answer.js';

const area = { type: 'Polygon', coordinates: [[[8, 50], [9, 50], [9, 51], [8, 51], [8, 50]]] };
const alert = (properties, geometry = area) => ({
  type: 'Feature',
  geometry,
  properties: { event: 'Flood', severity: 'Severe', onset: '2026-11-21T06:00:00Z', expires: '2026-11-21T18:00:00+01:00', ...properties },
});
const collection = (...features) => JSON.stringify({ type: 'FeatureCollection', features });
const post = (query, body, headers) => answer(new Request(`http://alert/${query}`, { method: 'POST', body, headers }));
const events = async (query, ...features) => (await (await post(query, collection(...features))).json()).features.map((f) => f.properties.event);

test('GET describes what is served', async () => {
  const response = await answer(new Request('http://alert/'));
  assert.equal(response.status, 200);
  assert.ok('bbox' in (await response.json()).query);
});

test('without a query, what goes in comes out', async () => {
  const body = collection(alert({ extra: [1, 2] }));
  const response = await post('', body);
  assert.equal(response.headers.get('content-type'), 'application/geo+json');
  assert.equal(response.headers.get('x-alerts'), '1');
  assert.deepEqual(await response.json(), JSON.parse(body));
});

test('severity, event, time and place filter', async () => {
  const alerts = [
    alert({ event: 'Flood' }),
    alert({ event: 'Storm', severity: 'minor' }),
    alert({ event: 'Fire', onset: '2026-11-22T00:00:00Z', expires: undefined }),
    alert({ event: 'Quake' }, { type: 'Point', coordinates: [-120, 40] }),
    alert({ event: 'Heat' }, null),
  ];
  assert.deepEqual(await events('?min-severity=Severe', ...alerts), ['Flood', 'Fire', 'Quake', 'Heat']);
  assert.deepEqual(await events('?event=storm,%20fire', ...alerts), ['Storm', 'Fire']);
  assert.deepEqual(await events('?active-at=2026-11-21T16:59:59Z', ...alerts), ['Flood', 'Storm', 'Quake', 'Heat']);
  assert.deepEqual(await events('?active-at=2026-11-21T17:00:00Z', ...alerts), []);
  assert.deepEqual(await events('?bbox=8.4,50.4,8.6,50.6', ...alerts), ['Flood', 'Storm', 'Fire']);
  assert.deepEqual(await events('?bbox=170,0,-110,60&min-severity=moderate', ...alerts), ['Quake']);
});

test('format= and Accept choose the form', async () => {
  const body = collection(alert({ headline: 'Water & "mud"\n<now>', areaDesc: 'Lahn' }));
  const type = async (query, accept) => (await post(query, body, accept ? { accept } : {})).headers.get('content-type');
  assert.equal(await type('', 'text/*;q=0.5, application/atom+xml'), 'application/atom+xml');
  assert.equal(await type('', 'text/*, application/xml;q=0.9'), 'text/plain; charset=utf-8');
  assert.equal(await type('', 'application/geo+json;q=0, */*;q=0.1'), 'text/plain; charset=utf-8');
  assert.equal(await type('?format=rss', 'text/plain'), 'application/rss+xml');
  assert.equal(
    await (await post('?format=text', body)).text(),
    'severity=severe event="Flood" onset=2026-11-21T06:00:00.000Z expires=2026-11-21T17:00:00.000Z area="Lahn" headline="Water & \\"mud\\" <now>"\n',
  );
  for (const format of ['atom', 'rss']) {
    const feed = await (await post(`?format=${format}`, body)).text();
    assert.match(feed, /Water &amp; &quot;mud&quot;\n&lt;now&gt;/);
  }
});

test('refusals name the status and the field', async () => {
  const deep = (n) => (n ? { type: 'GeometryCollection', geometries: [deep(n - 1)] } : area);
  for (const [query, body, status, field, headers] of [
    ['', '{', 400, 'body'],
    ['', new Uint8Array([0x22, 0xff, 0x22]), 400, 'body'],
    ['', '[]', 400, 'type'],
    ['', collection(alert({ event: '' })), 400, 'features[0].properties.event'],
    ['', collection(alert({}), alert({ severity: 'bad' })), 400, 'features[1].properties.severity'],
    ['', collection(alert({ onset: 'tomorrow' })), 400, 'features[0].properties.onset'],
    ['', collection(alert({ onset: '2026-11-21T06:00:00' })), 400, 'features[0].properties.onset'],
    ['', collection(alert({ expires: '2020-01-01T00:00:00Z' })), 400, 'features[0].properties.expires'],
    ['', collection(alert({ headline: 7 })), 400, 'features[0].properties.headline'],
    ['', collection(alert({}, { type: 'Circle' })), 400, 'features[0].geometry'],
    ['', collection(alert({}, { type: 'constructor' })), 400, 'features[0].geometry'],
    ['', collection(alert({}, deep(5))), 400, 'features[0].geometry.geometries[0].geometries[0].geometries[0].geometries[0]'],
    ['', collection(alert({}, { type: 'Point', coordinates: [200, 0] })), 400, 'features[0].geometry.coordinates'],
    ['', collection(alert({}, { type: 'Polygon', coordinates: [[[0, 0], [1, 1], [2, 0]]] })), 400, 'features[0].geometry'],
    ['?bbox=1,2,3', collection(), 400, 'bbox'],
    ['?bbox=0,10,10,0', collection(), 400, 'bbox'],
    ['?min-severity=loud', collection(), 400, 'min-severity'],
    ['?active-at=soon', collection(), 400, 'active-at'],
    ['?format=pdf', collection(), 400, 'format'],
    ['?bbx=1', collection(), 400, 'bbx'],
    ['', collection(), 406, 'accept', { accept: 'image/png' }],
    ['', ' '.repeat((4 << 20) + 1), 413, 'body'],
    ['', JSON.stringify({ type: 'FeatureCollection', features: Array(10_001).fill(0) }), 413, 'features'],
    ['other', collection(), 404, 'path'],
  ]) {
    const response = await post(query, body, headers);
    const error = await response.json();
    assert.equal(response.status, status, JSON.stringify(error));
    assert.equal(error.field, field);
    assert.ok(error.error.length > 10);
  }
  const put = await answer(new Request('http://alert/', { method: 'PUT', body: '' }));
  assert.deepEqual([put.status, put.headers.get('allow')], [405, 'GET, POST']);
});
