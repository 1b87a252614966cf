// The forms in which alerts go out, and which one a caller gets.

import { refuse } from './refusal.js';

/** The first is the default. */
export const FORMATS = [
  { name: 'geojson', type: 'application/geo+json', also: ['application/json'], write: geojson },
  { name: 'text', type: 'text/plain; charset=utf-8', also: [], write: text },
  { name: 'atom', type: 'application/atom+xml', also: ['application/xml', 'text/xml'], write: atom },
  { name: 'rss', type: 'application/rss+xml', also: [], write: rss },
];

/** `format=` decides; without it, what `Accept` prefers among what there is. */
export function chooseFormat(name, accept) {
  if (name !== null) {
    const format = FORMATS.find((known) => known.name === name.toLowerCase());
    if (format) return format;
    throw refuse(400, 'format', `format is \`${name}\`; it must be one of ${FORMATS.map((known) => known.name).join(', ')}`);
  }
  const ranges = readAccept(accept ?? '*/*');
  const offers = FORMATS.map((format) => ({ format, q: quality(format, ranges) })).filter(({ q }) => q > 0);
  if (offers.length === 0) {
    const types = FORMATS.map((format) => format.type).join(', ');
    throw refuse(406, 'accept', `nothing here is \`${accept}\`; there are ${types}`);
  }
  return offers.reduce((best, offer) => (offer.q > best.q ? offer : best)).format;
}

/** The media ranges of `Accept` with their weights, as RFC 9110 has it. */
function readAccept(header) {
  return header
    .split(',')
    .map((part) => part.split(';').map((piece) => piece.trim().toLowerCase()))
    .filter(([range]) => range)
    .map(([range, ...parameters]) => {
      const q = Number(parameters.find((parameter) => parameter.startsWith('q='))?.slice(2) ?? 1);
      return { range, q: q >= 0 && q <= 1 ? q : 0 };
    });
}

/** The weight that the most exact range gives to a format. */
function quality({ type, also }, ranges) {
  const types = [type.split(';')[0], ...also];
  const exactness = ({ range }) => {
    if (types.includes(range)) return 3;
    if (range.endsWith('/*') && types[0].startsWith(range.slice(0, -1))) return 2;
    return range === '*/*' ? 1 : 0;
  };
  return ranges.reduce((best, range) => (exactness(range) > best.exact ? { exact: exactness(range), q: range.q } : best), { exact: 0, q: 0 }).q;
}

function geojson(alerts) {
  return `${JSON.stringify({ type: 'FeatureCollection', features: alerts.map((alert) => alert.feature) })}\n`;
}

/** One alert a line, in the words of the Common Alerting Protocol. */
function text(alerts) {
  const line = (alert) =>
    [
      `severity=${alert.severity}`,
      `event=${quoted(alert.event)}`,
      alert.onset && `onset=${alert.onset.toISOString()}`,
      alert.expires && `expires=${alert.expires.toISOString()}`,
      alert.area && `area=${quoted(alert.area)}`,
      `headline=${quoted(alert.headline)}`,
    ]
      .filter(Boolean)
      .join(' ');
  return alerts.map((alert) => `${line(alert)}\n`).join('');
}

const quoted = (value) => JSON.stringify(value.replace(/\s+/g, ' ').trim());

function atom(alerts, now) {
  const entries = alerts.map((alert) => `
  <entry>
    <id>urn:karman:alert:${xml(encodeURIComponent(alert.id))}</id>
    <title>${xml(alert.headline)}</title>
    <updated>${(alert.sent ?? alert.onset ?? now).toISOString()}</updated>
    <category term="${xml(alert.event)}"/>
    <category term="${alert.severity}" label="severity"/>
    <summary>${xml(summary(alert))}</summary>
  </entry>`);
  return `<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <id>urn:karman:alerts</id>
  <title>Alerts</title>
  <updated>${now.toISOString()}</updated>
  <author><name>alert</name></author>${entries.join('')}
</feed>
`;
}

function rss(alerts, now) {
  const items = alerts.map((alert) => `
    <item>
      <guid isPermaLink="false">${xml(alert.id)}</guid>
      <title>${xml(alert.headline)}</title>
      <pubDate>${(alert.sent ?? alert.onset ?? now).toUTCString()}</pubDate>
      <category>${xml(alert.event)}</category>
      <description>${xml(summary(alert))}</description>
    </item>`);
  return `<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0">
  <channel>
    <title>Alerts</title>
    <link>urn:karman:alerts</link>
    <description>Hazard alerts</description>${items.join('')}
  </channel>
</rss>
`;
}

function summary(alert) {
  const until = alert.expires ? `, until ${alert.expires.toISOString()}` : '';
  return `${alert.severity} ${alert.event}${until}. ${alert.description}`.trim();
}

/** As text of XML: characters that XML 1.0 cannot hold are left out. */
function xml(value) {
  const marks = { '<': '&lt;', '>': '&gt;', '&': '&amp;', '"': '&quot;' };
  return value.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '').replace(/[<>&"]/g, (mark) => marks[mark]);
}
