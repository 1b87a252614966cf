// Reads a GeoJSON FeatureCollection of alerts, and refuses what is none with the field that is wrong.

import { checkGeometry } from './geometry.js';
import { refuse } from './refusal.js';

/** As the Common Alerting Protocol orders them, least first. */
export const SEVERITIES = ['unknown', 'minor', 'moderate', 'severe', 'extreme'];

const MAX_ALERTS = 10_000;
const MAX_POSITIONS = 200_000;

/** The alerts in a body. Each keeps the feature it came from, so that GeoJSON goes out as it came in. */
export function readAlerts(text) {
  let given;
  try {
    given = JSON.parse(text);
  } catch (error) {
    throw refuse(400, 'body', `the body is not JSON: ${error.message}`);
  }
  if (given?.type !== 'FeatureCollection' || !Array.isArray(given.features)) {
    throw refuse(400, 'type', 'the body must be a GeoJSON FeatureCollection with an array `features`');
  }
  if (given.features.length > MAX_ALERTS) {
    throw refuse(413, 'features', `there are ${given.features.length} alerts; ${MAX_ALERTS} is the most at once`);
  }
  const budget = { positions: MAX_POSITIONS };
  return given.features.map((feature, at) => readAlert(feature, `features[${at}]`, budget));
}

function readAlert(feature, place, budget) {
  if (feature?.type !== 'Feature' || typeof feature.properties !== 'object' || feature.properties === null) {
    throw refuse(400, place, `${place} must be a GeoJSON Feature with \`properties\``);
  }
  const { properties } = feature;
  const field = (name) => `${place}.properties.${name}`;
  const text = (name) => {
    const value = properties[name];
    if (value !== undefined && value !== null && typeof value !== 'string') {
      throw refuse(400, field(name), `${field(name)} is ${shown(value)}; it must be a text`);
    }
    return value ?? '';
  };
  if (!text('event')) throw refuse(400, field('event'), `${field('event')} is missing`);
  const severity = text('severity').toLowerCase() || 'unknown';
  if (!SEVERITIES.includes(severity)) {
    throw refuse(400, field('severity'), `${field('severity')} is ${shown(severity)}; it must be one of ${SEVERITIES.join(', ')}`);
  }
  const date = (name) => (text(name) ? readDate(text(name), field(name)) : null);
  const [sent, onset, expires] = ['sent', 'onset', 'expires'].map(date);
  if (onset && expires && expires < onset) {
    throw refuse(400, field('expires'), `${field('expires')} ${text('expires')} is before the onset ${text('onset')}`);
  }
  if (feature.geometry !== null) checkGeometry(feature.geometry, `${place}.geometry`, budget);
  return {
    feature,
    id: String(feature.id ?? (text('id') || place)),
    event: text('event'),
    severity,
    sent,
    onset,
    expires,
    headline: text('headline') || text('event'),
    description: text('description'),
    area: text('areaDesc'),
    geometry: feature.geometry,
  };
}

/** A date by ISO 8601 with its zone: without one, nobody can tell when it is. */
export function readDate(text, field) {
  const form = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/;
  const date = new Date(text);
  if (!form.test(text) || Number.isNaN(date.getTime())) {
    throw refuse(400, field, `${field} is ${shown(text)}; it must be a date with its zone, as in 2026-11-21T08:00:00Z`);
  }
  return date;
}

/** A value as a message quotes it. */
export function shown(value) {
  const text = JSON.stringify(value) ?? 'missing';
  return `\`${text.length > 60 ? `${text.slice(0, 60)}…` : text}\``;
}
