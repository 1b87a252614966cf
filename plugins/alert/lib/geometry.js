// GeoJSON geometries and boxes: does an area touch a box?
//
// Coordinates are degrees on a flat map, as in RFC 7946. A box with west > east crosses the antimeridian and is looked
// at as two. An area that crosses it is cut there by its author (RFC 7946, 3.1.9); edges longer than 180 degrees are
// taken as written. Boxes are closed: what only touches the edge is inside.

import { refuse } from './refusal.js';

const DEPTHS = { Point: 0, MultiPoint: 1, LineString: 1, MultiLineString: 2, Polygon: 2, MultiPolygon: 3 };

/** Refuses what is no geometry, or has more positions than there are left in the budget. */
export function checkGeometry(geometry, field, budget, nested = 0) {
  if (geometry?.type === 'GeometryCollection' && Array.isArray(geometry.geometries) && nested < 4) {
    geometry.geometries.forEach((inner, at) => checkGeometry(inner, `${field}.geometries[${at}]`, budget, nested + 1));
    return;
  }
  const depth = Object.hasOwn(DEPTHS, geometry?.type ?? '') ? DEPTHS[geometry.type] : undefined;
  if (depth === undefined) throw refuse(400, field, `${field} is no GeoJSON geometry`);
  checkPositions(geometry.coordinates, depth, `${field}.coordinates`, budget);
  const rings = { Polygon: [geometry.coordinates], MultiPolygon: geometry.coordinates }[geometry.type] ?? [];
  for (const ring of rings.flat()) {
    const closed = ring.length >= 4 && ring[0][0] === ring.at(-1)[0] && ring[0][1] === ring.at(-1)[1];
    if (!closed) throw refuse(400, field, `${field} has a ring that is not closed: 4 positions or more, the last as the first`);
  }
}

function checkPositions(value, depth, field, budget) {
  if (!Array.isArray(value)) throw refuse(400, field, `${field} must be an array`);
  if (depth > 0) {
    value.forEach((inner) => checkPositions(inner, depth - 1, field, budget));
    return;
  }
  const [x, y] = value;
  if (!(Math.abs(x) <= 180 && Math.abs(y) <= 90 && typeof x === 'number' && typeof y === 'number')) {
    throw refuse(400, field, `${field} has the position [${x},${y}]; it must be [longitude,latitude] in degrees`);
  }
  budget.positions -= 1;
  if (budget.positions < 0) throw refuse(413, field, 'the areas have more than 200000 positions together; simplify them');
}

/** Whether any point of the geometry lies in the box [west, south, east, north]. */
export function touches(geometry, [west, south, east, north]) {
  const boxes = west <= east ? [[west, south, east, north]] : [[west, south, 180, north], [-180, south, east, north]];
  return boxes.some((box) => touchesOne(geometry, box));
}

function touchesOne(geometry, box) {
  const { type, coordinates } = geometry;
  switch (type) {
    case 'GeometryCollection':
      return geometry.geometries.some((inner) => touchesOne(inner, box));
    case 'Point':
      return inBox(coordinates, box);
    case 'MultiPoint':
      return coordinates.some((point) => inBox(point, box));
    case 'LineString':
      return lineTouches(coordinates, box);
    case 'MultiLineString':
      return coordinates.some((line) => lineTouches(line, box));
    case 'Polygon':
      return polygonTouches(coordinates, box);
    default:
      return coordinates.some((polygon) => polygonTouches(polygon, box));
  }
}

/** Either an edge of a ring meets the box, or the box lies whole within the polygon and in none of its holes. */
function polygonTouches(rings, box) {
  return rings.some((ring) => lineTouches(ring, box)) || inPolygon([box[0], box[1]], rings);
}

function inBox([x, y], [west, south, east, north]) {
  return x >= west && x <= east && y >= south && y <= north;
}

function lineTouches(line, box) {
  if (line.length === 1) return inBox(line[0], box);
  return line.some((to, at) => at > 0 && edgeTouches(line[at - 1], to, box));
}

/** Cuts the edge by each side of the box in turn (Liang and Barsky); something is left where they meet. */
function edgeTouches([x0, y0], [x1, y1], [west, south, east, north]) {
  let from = 0;
  let to = 1;
  for (const [step, room] of [[x0 - x1, x0 - west], [x1 - x0, east - x0], [y0 - y1, y0 - south], [y1 - y0, north - y0]]) {
    if (step === 0) {
      if (room < 0) return false;
    } else if (step < 0) {
      from = Math.max(from, room / step);
    } else {
      to = Math.min(to, room / step);
    }
  }
  return from <= to;
}

/** By counting the edges of all rings to the right of the point: odd is inside, and a hole turns it even again. */
function inPolygon([x, y], rings) {
  let inside = false;
  for (const ring of rings) {
    for (let at = 1; at < ring.length; at += 1) {
      const [[x0, y0], [x1, y1]] = [ring[at - 1], ring[at]];
      if (y0 > y !== y1 > y && x < ((x1 - x0) * (y - y0)) / (y1 - y0) + x0) inside = !inside;
    }
  }
  return inside;
}
