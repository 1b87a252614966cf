// What is easier seen than read: contacts over time, objectives over minutes, accuracy over versions. Each drawing says in words what it shows, and stands
// beside a table that has the same.

import { duration, element, none, short, table, time } from "./page.js";

const SVG = "http://www.w3.org/2000/svg";
// How much time a drawing of contacts may span, in minutes: the least that has what comes next.
const SPANS = [5, 15, 60, 180, 720];
const NEXT = 4;
// Windows that a drawing names in words.
const NAMED = 6;

function shape(name, attributes, children = []) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Who can reach whom when; most contacts go both ways, which is one line.
function pairsOf(contacts) {
  const pairs = new Map();
  for (const contact of contacts) {
    const ends = [contact.from, contact.to].sort();
    const pair = pairs.get(ends.join()) ?? { ends, windows: [] };
    pairs.set(ends.join(), pair);
    const same = (window) => window.start_ms === contact.start_ms && window.end_ms === contact.end_ms;
    if (!pair.windows.some(same)) pair.windows.push(contact);
  }
  return [...pairs.values()];
}

function spanOf(contacts, now) {
  const ends = contacts.map((contact) => contact.end_ms).sort((one, other) => one - other);
  const last = ends[Math.min(NEXT, ends.length) - 1] - now;
  return 60_000 * (SPANS.find((span) => 60_000 * span >= last) ?? SPANS.at(-1));
}

const words = ({ start_ms, end_ms }) => `${time(start_ms)} to ${time(end_ms)}`;

function line(windows, now, span) {
  const percent = (ms) => (100 * Math.min(Math.max(ms - now, 0), span)) / span;
  const shown = windows.filter((window) => window.start_ms < now + span);
  const more = windows.length > NAMED ? `, and ${windows.length - NAMED} more` : "";
  const label = `In reach ${windows.slice(0, NAMED).map(words).join(", ")}${more}`;
  const ticks = [25, 50, 75].map((x) => shape("line", { class: "tick", x1: `${x}%`, x2: `${x}%`, y1: "0", y2: "100%" }));
  const bars = shown.map((window) => {
    const [start, end] = [percent(window.start_ms), percent(window.end_ms)];
    // A pass of minutes within hours is to be seen, too.
    const width = Math.max(end - start, 0.6);
    const place = { x: `${Math.min(start, 100 - width)}%`, width: `${width}%`, y: "15%", height: "70%", rx: "2" };
    const open = window.start_ms <= now ? "open" : "later";
    return shape("rect", { class: open, ...place }, [shape("title", {}, [words(window)])]);
  });
  return shape("svg", { class: "line", role: "img", "aria-label": label }, [...ticks, ...bars]);
}

// `nameOf` is what people call a node, where it has such a name.
export function contacts({ now_ms: now, planned, contacts: all, more }, nameOf) {
  if (!planned) {
    const set = element("code", "contacts = \"contacts.toml\"");
    return [element("p", ["This node's configuration names no contacts: set ", set, " under [mesh], or write [mesh.orbits]."], { class: "none" })];
  }
  if (all.length === 0) return [none("No contact in the next twelve hours.")];
  const span = spanOf(all, now);
  const wait = ({ windows: [next] }) =>
    next.start_ms <= now
      ? [element("strong", "in reach"), ` until ${time(next.end_ms)}`]
      : `in ${duration(1000 * (next.start_ms - now))}, at ${time(next.start_ms)}`;
  const rows = table(pairsOf(all), [
    ["Between", ({ ends }) => [nameOf(ends[0]), " and ", nameOf(ends[1])]],
    [`Now to ${time(now + span)}`, ({ windows }) => line(windows, now, span), "drawn"],
    ["Next contact", wait],
    ["Lasts", ({ windows: [next] }) => duration(1000 * (next.end_ms - Math.max(next.start_ms, now))), "number"],
    ["Rate", ({ windows: [next] }) => next.rate, "number"],
  ]);
  return more ? [rows, none(`${more} more are left out.`)] : [rows];
}

const degrees = (value, plus, minus) => `${Math.abs(value).toFixed(0)}° ${value < 0 ? minus : plus}`;
const spot = ({ latitude, longitude }) => `${degrees(latitude, "N", "S")}, ${degrees(longitude, "E", "W")}`;

// The parts of a way that do not cross the edge of the map.
function parts(track) {
  const all = [[]];
  track.forEach((place, number) => {
    const before = track[number - 1];
    if (before && Math.abs(place.longitude - before.longitude) > 180) all.push([]);
    all.at(-1).push(`${place.longitude.toFixed(1)},${(-place.latitude).toFixed(1)}`);
  });
  return all.map((part) => part.join(" "));
}

// Satellites and their way for one round, over a net of meridians and parallels; `names` are what people call nodes.
export function world({ satellites, stations }, names) {
  const above = satellites.filter(({ track }) => track.length);
  if (above.length === 0) return "";
  const called = (node) => names.get(node) ?? node.slice(0, 8);
  const net = [-120, -60, 0, 60, 120].map((x) => shape("line", { class: "tick", x1: x, x2: x, y1: -90, y2: 90 }));
  net.push(...[-60, -30, 0, 30, 60].map((y) => shape("line", { class: "tick", x1: -180, x2: 180, y1: y, y2: y })));
  const ways = above.flatMap(({ track }) => parts(track).map((points) => shape("polyline", { points })));
  const point = (kind, node, place) =>
    shape("circle", { class: kind, cx: place.longitude, cy: -place.latitude, r: 4 }, [shape("title", {}, [`${called(node)}: ${spot(place)}`])]);
  const points = [
    ...stations.map(({ node, place }) => point("station", node, place)),
    ...above.map(({ node, track: [place] }) => point("open", node, place)),
  ];
  const says = above.slice(0, NAMED).map(({ node, track: [place] }) => `${called(node)} is above ${spot(place)}`);
  says.push(...stations.slice(0, NAMED).map(({ node, place }) => `station ${called(node)} is at ${spot(place)}`));
  const label = says.join("; ");
  const box = { class: "world", role: "img", "aria-label": label, viewBox: "-180 -90 360 180" };
  return element("figure", [shape("svg", box, [...net, ...ways, ...points]), element("figcaption", label)]);
}

const MINUTE_MS = 60_000;
const HOUR = 60;

// A bar for each minute in which runs ended, as high as the share of them that did as wanted; one that is too low is dashed and
// hollow, so that it is told from the others without colour.
export function kept(minutes, now, least) {
  const bars = minutes.map((minute) => {
    const ended = minute.runs - minute.late - minute.failed;
    const share = ended / minute.runs;
    const words = `${time(minute.unix_ms)}: ${ended} of ${minute.runs} as wanted`;
    const place = HOUR - 1 - (now - minute.unix_ms) / MINUTE_MS;
    // Nothing as wanted is to be seen, too.
    const height = Math.max(100 * share, 6);
    const box = { x: `${(100 * place) / HOUR}%`, width: `${90 / HOUR}%`, y: `${100 - height}%`, height: `${height}%` };
    const bar = shape("rect", { class: share < least ? "missed" : "open", ...box }, [shape("title", {}, [words])]);
    return { words, bar };
  });
  const named = bars.slice(-NAMED).map(({ words }) => words);
  return shape("svg", { class: "line", role: "img", "aria-label": named.join("; ") }, bars.map(({ bar }) => bar));
}

// Accuracy from the version that was judged first to the last, between the tenths that it lies within.
export function curve(versions) {
  const judged = versions.filter((made) => made.accuracy != null);
  if (judged.length < 2) return "";
  const shares = judged.map((made) => made.accuracy);
  const low = Math.floor(10 * Math.min(...shares)) / 10;
  const high = Math.max(Math.ceil(10 * Math.max(...shares)) / 10, low + 0.1);
  const [first, last] = [judged[0], judged.at(-1)];
  const x = (made) => (100 * (made.version - first.version)) / Math.max(last.version - first.version, 1);
  const y = (made) => (100 * (high - made.accuracy)) / (high - low);
  const points = judged.map((made) => `${x(made).toFixed(2)},${y(made).toFixed(2)}`).join(" ");
  const path = shape("polyline", { points, "vector-effect": "non-scaling-stroke" });
  const says = ({ accuracy, version }) => `${accuracy.toFixed(3)} after version ${version}`;
  const label = `Accuracy: ${says(first)}, ${says(last)}`;
  const box = { class: "curve", role: "img", "aria-label": label, viewBox: "0 0 100 100", preserveAspectRatio: "none" };
  const bound = (share) => element("span", share.toFixed(1), { "aria-hidden": "true" });
  return element("figure", [bound(high), shape("svg", box, [path]), bound(low), element("figcaption", label)]);
}

export const nodeName = (names) => (id) => names.get(id) ?? short(id);
