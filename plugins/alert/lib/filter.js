// The filter that stands in the query of the URL.

import { readDate, SEVERITIES, shown } from './alerts.js';
import { touches } from './geometry.js';
import { refuse } from './refusal.js';

const KNOWN = ['bbox', 'min-severity', 'event', 'active-at', 'format'];

/** What the query asks for; what it does not name lets every alert through. */
export function readFilter(query, now = () => new Date()) {
  for (const name of query.keys()) {
    if (!KNOWN.includes(name)) throw refuse(400, name, `\`${name}\` is no parameter; there are ${KNOWN.join(', ')}`);
  }
  const at = query.get('active-at');
  return {
    box: readBox(query.get('bbox')),
    least: readSeverity(query.get('min-severity')),
    events: readEvents(query.get('event')),
    at: at === null ? null : at === 'now' ? now() : readDate(at, 'active-at'),
  };
}

/** Whether the alert passes. One without an area is not in any box; one without a date has begun, or does not end. */
export function keeps({ box, least, events, at }, alert) {
  return (
    SEVERITIES.indexOf(alert.severity) >= least &&
    (events === null || events.includes(alert.event.toLowerCase())) &&
    (at === null || ((alert.onset ?? at) <= at && at < (alert.expires ?? Infinity))) &&
    (box === null || (alert.geometry !== null && touches(alert.geometry, box)))
  );
}

function readBox(text) {
  if (text === null) return null;
  const numbers = text.split(',').map((part) => (part.trim() === '' ? NaN : Number(part)));
  const [west, south, east, north] = numbers;
  const fits = numbers.length === 4 && [west, east].every((x) => Math.abs(x) <= 180) && [south, north].every((y) => Math.abs(y) <= 90);
  if (!fits || south > north) {
    throw refuse(400, 'bbox', `bbox is ${shown(text)}; it must be west,south,east,north in degrees, south <= north`);
  }
  return numbers;
}

function readSeverity(text) {
  const least = text === null ? 0 : SEVERITIES.indexOf(text.toLowerCase());
  if (least < 0) throw refuse(400, 'min-severity', `min-severity is ${shown(text)}; it must be one of ${SEVERITIES.join(', ')}`);
  return least;
}

function readEvents(text) {
  if (text === null) return null;
  const events = text.toLowerCase().split(',').map((event) => event.trim()).filter(Boolean);
  if (events.length === 0) throw refuse(400, 'event', 'event is empty; name one or more, as in flood,storm');
  return events;
}
