"use strict";

// Shows what the admin routes say, again and again. Everything that comes from there is put in as text, never as markup.

const EVERY_MS = 2000;
const TIERS = ["space", "edge", "fog", "cloud"];
const KEY = "karman-token";
const at = (id) => document.getElementById(id);
let timer = null;

async function ask(path) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({}));
  const error = new Error(body.message || answer.statusText);
  error.status = answer.status;
  throw error;
}

function element(name, content, attributes = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const part of [content].flat()) made.append(part ?? "");
  return made;
}

const short = (id) => element("code", String(id).slice(0, 8), { title: id });
const time = (ms) => new Date(ms).toLocaleTimeString();
const duration = (us) => (us < 1000 ? `${us} µs` : us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(1)} s`);
function bytes(count) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (count < 1024) return `${Number(count.toFixed(1))} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)} GiB`;
}

// Columns are [name, what a row has there, whether it is a number].
function table(id, rows, columns, none) {
  const place = at(id);
  if (rows.length === 0) return place.replaceChildren(element("p", none, { class: "none" }));
  const kind = (number) => (number ? { class: "number" } : {});
  const head = element("tr", columns.map(([name, , number]) => element("th", name, { scope: "col", ...kind(number) })));
  const line = (row) =>
    element("tr", columns.map(([name, of, number]) => element("td", of(row), { "data-name": name, ...kind(number) })));
  place.replaceChildren(element("table", [element("thead", head), element("tbody", rows.map(line))]));
}

function nodeCard({ id, offer, words, sent, kind }) {
  // A plugin is also found by what it does, and a model is a task, too; once is enough.
  const names = offer ? offer.tasks.map((task) => task.name) : [];
  const others = offer ? [...offer.models, ...names] : [];
  const tasks = names.filter((name) => !others.some((other) => name.endsWith(`/${other}`))).join(", ");
  const models = offer ? offer.models.join(", ") : "";
  const lines = [words];
  if (sent) lines.push(`${bytes(sent)} sent to it`);
  if (offer) lines.push(`${offer.cores} cores, ${bytes(offer.memory)}`);
  if (tasks) lines.push(`tasks: ${tasks}`);
  if (models) lines.push(`models: ${models}`);
  return element("div", [short(id), ...lines.map((line) => element("p", line))], { class: `node ${kind}` });
}

function map({ here, offer, peers }) {
  at("here").textContent = `node ${here.node.slice(0, 8)} (${here.tier})${here.mesh ? `, mesh ${here.mesh}` : ", in no mesh"}`;
  const nodes = [{ id: here.node, tier: offer.tier, offer, words: "this node", kind: "here" }];
  for (const peer of peers) {
    const link = peer.path ? `in reach: ${peer.path}` : `out of reach, last seen ${duration(peer.last_seen_ms * 1000)} ago`;
    const trip = peer.path && peer.round_trip_us != null ? `, ${duration(peer.round_trip_us)} there and back` : "";
    const words = link + trip;
    nodes.push({ id: peer.node, tier: peer.tier, offer: peer.offer, words, sent: peer.sent_bytes, kind: peer.path ? "" : "away" });
  }
  const tiers = TIERS.filter((tier) => nodes.some((node) => node.tier === tier));
  at("map").replaceChildren(
    ...tiers.map((tier) => {
      const cards = nodes.filter((node) => node.tier === tier).map(nodeCard);
      return element("div", [element("h3", tier), ...cards], { class: "tier" });
    }),
  );
}

function show([nodes, models, tasks, decisions, errors, load]) {
  map(nodes);
  const items = [
    ["run", load.running], ["wait", load.waiting], ["connections", load.connections], ["bodies held", bytes(load.bodies)],
  ];
  at("load").replaceChildren(...items.map(([name, value]) => element("div", [element("dt", name), element("dd", String(value))])));
  const parts = new Map(models.in_parts.map((model) => [model.model, model.runs]));
  table("models", Object.entries(models.held), [
    ["Model", ([name]) => name],
    ["Held by", ([, held]) => held.flatMap((id) => [short(id), " "])],
    ["Runs", ([name]) => parts.get(name) || "whole, where it is held"],
  ], "No node in reach has a model. Add one: karman model add NAME FILE.onnx");
  table("plugins", nodes.here.plugins, [
    ["Plugin", (plugin) => `${plugin.name} ${plugin.version}`],
    ["World", (plugin) => plugin.world],
    ["Calls", (plugin) => String(plugin.calls), true],
    ["Running", (plugin) => String(plugin.running), true],
    ["Errors", (plugin) => String(plugin.errors), true],
    ["Most memory", (plugin) => bytes(plugin.memory_peak), true],
  ], "This node has no plugins. Deploy one: karman deploy FILE");
  table("decisions", decisions.slice(0, 50), [
    ["At", (one) => time(one.unix_ms)],
    ["Model", (one) => one.model],
    ["Ran on", (one) => [short(one.node), ` ${one.tier}${one.ran_on ? `, ${one.ran_on}` : ""}`]],
    ["Cut", (one) => one.cut || "–"],
    ["Why", (one) => [one.why, ...(one.decision ? [element("code", `karman why ${one.decision}`, { class: "command" })] : [])]],
    ["Took", (one) => duration(one.took_us), true],
  ], "Nothing was decided yet.");
  table("tasks", tasks.slice(-100).reverse(), [
    ["Task", (task) => short(task.task)],
    ["Name", (task) => task.name],
    ["Promise", (task) => task.guarantee],
    ["State", (task) => task.state + (task.error ? `: ${task.error.message}` : "")],
    ["Where", (task) => (task.nodes || []).flatMap((id) => [short(id), " "])],
  ], "No task was accepted.");
  table("errors", errors, [
    ["At", (event) => time(event.unix_ms)],
    ["Level", (event) => element("span", event.level, { class: `level ${event.level}` })],
    ["Plugin", (event) => event.plugin || "–"],
    ["What", (event) => event.message],
  ], "Nothing went wrong.");
}

function enter(why) {
  clearTimeout(timer);
  at("contents").hidden = true;
  at("leave").hidden = true;
  at("enter").hidden = false;
  at("refused").textContent = why;
  at("state").textContent = "";
  at("token").focus();
}

async function look() {
  try {
    const paths = ["nodes", "models", "tasks", "decisions", "errors", "load"];
    show(await Promise.all(paths.map((path) => ask(`/admin/${path}`))));
    const entered = !at("enter").hidden;
    at("enter").hidden = true;
    at("contents").hidden = false;
    // Whoever came by keyboard goes on where the contents begin.
    if (entered) at("main").focus();
    at("leave").hidden = !sessionStorage.getItem(KEY);
    at("state").textContent = "";
  } catch (error) {
    if (error.status === 401 || error.status === 403) {
      const given = sessionStorage.getItem(KEY);
      sessionStorage.removeItem(KEY);
      return enter(given ? error.message : "");
    }
    at("state").textContent = `not answering (${error.message}); what is below is of before`;
  }
  timer = setTimeout(look, EVERY_MS);
}

at("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("token").value.trim());
  at("token").value = "";
  look();
});
at("leave").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  enter("");
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden && at("enter").hidden) look();
});
look();
