import assert from 'node:assert/strict';
import { test } from 'node:test';

import { touches } from '../lib/geometry.js';

const square = (west, south, east, north) => [[west, south], [east, south], [east, north], [west, north], [west, south]];
const polygon = (...rings) => ({ type: 'Polygon', coordinates: rings });
const cases = [
  ['a point inside', { type: 'Point', coordinates: [5, 5] }, true],
  ['a point on the edge', { type: 'Point', coordinates: [10, 5] }, true],
  ['a point outside', { type: 'Point', coordinates: [10.1, 5] }, false],
  ['one point of many', { type: 'MultiPoint', coordinates: [[50, 5], [1, 1]] }, true],
  ['a line through, with both ends outside', { type: 'LineString', coordinates: [[-5, 5], [15, 6]] }, true],
  ['a line past a corner', { type: 'LineString', coordinates: [[-5, 8], [5, 18]] }, false],
  ['a line of no length inside', { type: 'LineString', coordinates: [[5, 5], [5, 5]] }, true],
  ['an area within', polygon(square(4, 4, 6, 6)), true],
  ['an area around', polygon(square(-20, -20, 20, 20)), true],
  ['an area whose hole holds the box', polygon(square(-20, -20, 20, 20), square(-5, -5, 15, 15)), false],
  ['an area whose hole cuts the box', polygon(square(-20, -20, 20, 20), square(-5, -5, 5, 15)), true],
  ['an area across, no corner in the other', polygon(square(-5, 4, 15, 6)), true],
  ['an area beside', polygon(square(11, 0, 20, 10)), false],
  ['an area whose box overlaps but which does not', polygon([[9, -30], [40, 12], [40, -30], [9, -30]]), false],
  ['an area that touches at a corner', polygon(square(10, 10, 20, 20)), true],
  ['the second of two areas', { type: 'MultiPolygon', coordinates: [[square(50, 0, 60, 10)], [square(5, 5, 30, 30)]] }, true],
  ['a collection', { type: 'GeometryCollection', geometries: [{ type: 'Point', coordinates: [1, 2] }] }, true],
];

for (const [name, geometry, expected] of cases) {
  test(`in the box 0,0,10,10: ${name}`, () => assert.equal(touches(geometry, [0, 0, 10, 10]), expected));
}

test('a box across the antimeridian is two boxes', () => {
  const box = [170, -10, -170, 10];
  assert.equal(touches({ type: 'Point', coordinates: [179, 0] }, box), true);
  assert.equal(touches({ type: 'Point', coordinates: [-179, 0] }, box), true);
  assert.equal(touches({ type: 'Point', coordinates: [0, 0] }, box), false);
});

/** Two convex shapes are apart where one direction keeps them apart: one of their edges' normals. */
function apart(one, other) {
  const normals = [one, other].flatMap((shape) => shape.slice(1).map(([x, y], at) => [y - shape[at][1], shape[at][0] - x]));
  return normals.some(([nx, ny]) => {
    const reach = (shape) => shape.map(([x, y]) => x * nx + y * ny);
    const [a, b] = [reach(one), reach(other)];
    return Math.max(...a) < Math.min(...b) || Math.max(...b) < Math.min(...a);
  });
}

test('2000 random boxes and triangles agree with the separating axes', () => {
  let seed = 1;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const corner = () => [random() * 20 - 10, random() * 20 - 10];
  let met = 0;
  for (let round = 0; round < 2000; round += 1) {
    const ring = [corner(), corner(), corner()];
    ring.push(ring[0]);
    const [west, south] = corner();
    const box = [west, south, west + random() * 5, south + random() * 5];
    const expected = !apart(ring, square(...box));
    met += expected;
    assert.equal(touches(polygon(ring), box), expected, JSON.stringify({ ring, box }));
  }
  assert.ok(met > 200 && met < 1800, `${met} met`);
});
