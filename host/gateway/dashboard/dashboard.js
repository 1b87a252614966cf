// Shows what the admin routes say, again and again.

import { contacts, curve, kept, nodeName, world } from "./drawings.js";
import { at, bytes, duration, element, ids, none, short, table, time } from "./page.js";

const EVERY_MS = 2000;
// A question that is not answered by then has failed, and is asked again.
const PATIENCE_MS = 15_000;
const TIERS = ["space", "edge", "fog", "cloud"];
const KEY = "karman-token";
const VERSIONS = 10;
let timer = null;
// Which look counts: one that is answered when the reader has left, or looks again, is passed over.
let turn = 0;
// Whether the reader wants it to stay as it is.
let held = false;

const put = (id, ...parts) => at(id).replaceChildren(...parts);

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

function showNodes({ here, offer, peers }) {
  at("here").textContent = `node ${here.node.slice(0, 8)} (${here.tier})${here.mesh ? `, mesh ${here.mesh}` : ", in no mesh"}`;
  const nodes = [{ id: here.node, tier: offer.tier, offer, words: "this node", kind: "here" }];
  for (const peer of peers) {
    const link = peer.path ? `connected: ${peer.path}` : `not connected, last seen ${duration(peer.last_seen_ms * 1000)} ago`;
    const trip = peer.path && peer.round_trip_us != null ? `, round trip ${duration(peer.round_trip_us)}` : "";
    const words = link + trip;
    nodes.push({ id: peer.node, tier: peer.tier, offer: peer.offer, words, sent: peer.sent_bytes, kind: peer.path ? "" : "away" });
  }
  const tiers = TIERS.filter((tier) => nodes.some((node) => node.tier === tier));
  const column = (tier) => {
    const cards = nodes.filter((node) => node.tier === tier).map(nodeCard);
    return element("div", [element("h3", tier), ...cards], { class: "tier" });
  };
  put("map", ...tiers.map(column));
  put("plugins", table(here.plugins, [
    ["Plugin", (plugin) => `${plugin.name} ${plugin.version}`],
    ["World", (plugin) => plugin.world],
    ["Calls", (plugin) => String(plugin.calls), "number"],
    ["Running", (plugin) => String(plugin.running), "number"],
    ["Errors", (plugin) => String(plugin.errors), "number"],
    ["Most memory", (plugin) => bytes(plugin.memory_peak), "number"],
  ], "This node has no plugins. Deploy one: karman deploy FILE"));
}

const figures = (items) => items.map(([name, value]) => element("div", [element("dt", name), element("dd", String(value))]));

function showLoad(load) {
  put("load", ...figures([
    ["requests running", load.running], ["requests waiting", load.waiting], ["beside them", load.beside], ["connections", load.connections],
    ["memory of bodies", bytes(load.bodies)], ["failed tokens", load.failed_tokens + load.tokens_kept_out],
  ]));
}

// The share since the last look says more than the one since the beginning, where there was a look.
let lastUse = null;
function showGpu(use) {
  const why = {
    unasked: () => "Nobody has asked for a GPU since this node began.",
    starting: () => "A GPU is being looked for.",
    absent: () => `No GPU: ${use.why}`,
  }[use.state];
  if (why) {
    put("gpu", none(why()));
    return;
  }
  const since = lastUse && lastUse.since_us < use.since_us ? lastUse : { since_us: 0, busy_us: 0 };
  const share = (use.busy_us - since.busy_us) / Math.max(use.since_us - since.since_us, 1);
  lastUse = use;
  const items = figures([
    ["device", use.device], ["busy", `${(100 * Math.min(share, 1)).toFixed(0)} %`], ["worked", duration(use.busy_us)],
    ["pieces of work", use.done], ["waiting", use.waiting],
  ]);
  put("gpu", element("dl", items));
}

function showContacts(ahead) {
  const names = new Map(ahead.satellites.map(({ node, name }) => [node, name]));
  put("contacts", world(ahead, names), ...contacts(ahead, nodeName(names)));
}

function showModels({ held, in_parts }) {
  const parts = new Map(in_parts.map((model) => [model.model, model.runs]));
  put("models", table(Object.entries(held), [
    ["Model", ([name]) => name],
    ["Held by", ([, nodes]) => ids(nodes)],
    ["Runs", ([name]) => parts.get(name) || "whole, where it is held"],
  ], "No node in reach has a model. Add one: karman model add NAME FILE.onnx"));
}

// The first ten characters of an id are the milliseconds since 1970, in Crockford's base 32.
const begun = (id) => [...id.slice(0, 10)].reduce((ms, c) => 32 * ms + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".indexOf(c), 0);

function steps({ flow, steps }) {
  const all = steps.reduce((sum, step) => sum + Math.max(step.runs, 1), 0);
  const done = steps.reduce((sum, step) => sum + (step.state === "skipped" ? Math.max(step.runs, 1) : step.done), 0);
  const bar = element("progress", [], { max: all, value: done, "aria-label": `Tasks of ${flow.slice(0, 8)} that are done` });
  const line = (step) => {
    const count = step.runs > 1 ? ` (${step.done} of ${step.runs})` : "";
    const why = step.error ? `: ${step.error.message}` : "";
    return element("p", `${step.task} ${step.state}${count}${why}`, { class: "step" });
  };
  return all ? [bar, ...steps.map(line)] : "–";
}

function showFlows(flows) {
  const ended = (flow) => {
    const where = flow.failed ? ` in ${flow.failed}` : "";
    return flow.state + where + (flow.error ? `: ${flow.error.message}` : "");
  };
  put("flows", table(flows, [
    ["Run", (flow) => short(flow.flow)],
    ["At", (flow) => time(begun(flow.flow))],
    ["Workflow", (flow) => flow.name],
    ["Promise", (flow) => flow.promise],
    ["State", ended],
    ["Tasks", steps],
  ], "No workflow was run. Run one: karman flow run FLOW.toml"));
}

// How often a workflow may be late or fail: by the 95th percentile, one time in twenty.
const MAY_MISS = 1 / 20;

function objectives({ slo }) {
  const named = [["latency-p95", "95 of 100 within"], ["accuracy", "accuracy at least"], ["cost", "cost at most"], ["energy", "joules at most"]];
  const all = named.filter(([key]) => slo[key] != null).map(([key, says]) => `${says} ${slo[key]}`);
  if (slo.cost != null || slo.energy != null) all.push(`for ${slo.requests} runs`);
  return all.join(", ");
}

function showSlos({ minute_ms: now, workflows }) {
  const sum = ({ minutes }, what) => minutes.reduce((sum, minute) => sum + minute[what], 0);
  const said = (slo) => {
    const [runs, late, failed] = ["runs", "late", "failed"].map((what) => sum(slo, what));
    const word = late + failed <= MAY_MISS * runs ? "kept" : "missed";
    return [element("strong", word), `: of ${runs} runs ${late} late, ${failed} failed`];
  };
  const cost = (slo) => {
    const each = sum(slo, "cost") / sum(slo, "runs");
    if (slo.slo.cost == null) return each.toPrecision(2);
    const may = slo.slo.cost / slo.slo.requests;
    return [`${each.toPrecision(2)} of ${may.toPrecision(2)}`, ...(each > may ? [element("strong", " over")] : [])];
  };
  put("slos", table(workflows, [
    ["Workflow", (slo) => slo.workflow],
    ["Wanted", objectives],
    ["The last hour, minute by minute", (slo) => kept(slo.minutes, now, 1 - MAY_MISS), "drawn"],
    ["Together", said],
    ["Cost of a run", cost, "number"],
  ], "No workflow with objectives has ended within the last hour."));
}

function federatedRun(run) {
  const share = (value) => (value == null ? "–" : value.toFixed(3));
  const rounds = run.rounds == null ? "not begun" : `version ${run.version} of ${run.rounds}`;
  const says = [`${run.state}, ${rounds}`];
  if (run.state === "running") says.push(`${run.clients} clients in reach, ${run.training} train`);
  if (run.accuracy != null) says.push(`accuracy ${share(run.accuracy)}`);
  if (run.troubles) says.push(`${run.troubles} troubles`);
  if (run.failure) says.push(run.failure);
  const last = run.versions.slice(-VERSIONS).reverse();
  const columns = [
    ["Version", (made) => String(made.version), "number"],
    ["Accuracy", (made) => share(made.accuracy), "number"],
    ["Loss", (made) => share(made.loss), "number"],
    ["Clients", (made) => String(made.clients), "number"],
    ["Not answered", (made) => String(made.lost), "number"],
    ["Updates", (made) => bytes(made.bytes_up), "number"],
    ["Took", (made) => duration(made.ms * 1000), "number"],
  ];
  if (last.some((made) => made.complete != null)) {
    const warm = (made) => (made.warm_up == null ? "–" : `${(100 * made.warm_up).toFixed(0)} %${made.covered ? "" : ", no cover"}`);
    columns.push(["Have the mean", (made) => (made.complete == null ? "–" : String(made.complete)), "number"]);
    columns.push(["Warm-up", warm, "number"]);
  }
  if (last.some((made) => made.epsilon != null)) columns.push(["ε spent", (made) => share(made.epsilon), "number"]);
  const made = table(last, columns, "No version yet.");
  return element("article", [element("h3", run.name), element("p", says.join("; ")), curve(run.versions), made]);
}

function showRounds(runs) {
  put("rounds", ...(runs.length ? runs.map(federatedRun) : [none("This node has driven no federated run. Begin one: karman fed run FED.toml")]));
}

function showDecisions(decisions) {
  const command = (id) => element("code", `karman why ${id}`, { class: "command" });
  put("decisions", table(decisions.slice(0, 50), [
    ["At", (one) => time(one.unix_ms)],
    ["Model", (one) => one.model],
    ["Ran on", (one) => [short(one.node), ` ${one.tier}${one.ran_on ? `, ${one.ran_on}` : ""}`]],
    ["Cut", (one) => one.cut || "–"],
    ["Why", (one) => [one.why, ...(one.decision ? [command(one.decision)] : [])]],
    ["Took", (one) => duration(one.took_us), "number"],
  ], "Nothing was decided yet."));
}

function showTasks(tasks) {
  put("tasks", table(tasks.slice(-100).reverse(), [
    ["Task", (task) => short(task.task)],
    ["Name", (task) => task.name],
    ["Promise", (task) => task.guarantee],
    ["State", (task) => task.state + (task.error ? `: ${task.error.message}` : "")],
    ["Where", (task) => ids(task.nodes || [])],
  ], "No task was accepted."));
}

function showErrors(errors) {
  put("errors", table(errors, [
    ["At", (event) => time(event.unix_ms)],
    ["Level", (event) => element("span", event.level, { class: `level ${event.level}` })],
    ["Plugin", (event) => event.plugin || "–"],
    ["What", (event) => event.message],
  ], "Nothing went wrong."));
}

// Each part of the page: what it asks for, what shows the answer, and how often; what changes seldom is asked for at every fifth look.
const PARTS = [
  { path: "load", show: showLoad, every: 1 },
  { path: "nodes", show: showNodes, every: 1 },
  { path: "contacts", show: showContacts, every: 5 },
  { path: "models", show: showModels, every: 1 },
  { path: "flows", show: showFlows, every: 1 },
  { path: "slos", show: showSlos, every: 2 },
  { path: "rounds", show: showRounds, every: 2 },
  { path: "gpu", show: showGpu, every: 1 },
  { path: "decisions", show: showDecisions, every: 1 },
  { path: "tasks", show: showTasks, every: 1 },
  { path: "errors", show: showErrors, every: 1 },
].map((part) => ({ ...part, wait: 0, shown: null }));

async function ask(path) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.ok) return answer.text();
  const body = await answer.json().catch(() => ({}));
  const error = new Error(body.message || answer.statusText);
  error.status = answer.status;
  throw error;
}

// Shows what an answer brings that is new: what stays as it was keeps what the reader has marked in it.
function take(part, text) {
  if (text !== part.shown) part.show(JSON.parse(text));
  part.shown = text;
  part.wait = part.every;
}

function say(words, wrong = false) {
  if (at("state").textContent !== words) at("state").textContent = words;
  at("state").classList.toggle("wrong", wrong);
}

function sayMissing(missing) {
  const shown = at("contents").hidden ? "trying again" : "below is what was known before";
  say(missing.length ? `No answer (${missing.join("; ")}): ${shown}` : "", missing.length > 0);
}

function still(yes) {
  held = yes;
  at("hold").setAttribute("aria-pressed", String(yes));
  say(yes ? "held still" : "");
}

// What is wider than its place can be moved by keyboard, too.
function reach() {
  for (const section of document.querySelectorAll("#contents section")) {
    if (section.scrollWidth > section.clientWidth) section.tabIndex = 0;
    else section.removeAttribute("tabindex");
  }
}

function enter(why) {
  turn += 1;
  clearTimeout(timer);
  for (const part of PARTS) Object.assign(part, { wait: 0, shown: null });
  // Whoever forgets the token forgets what it showed.
  for (const place of document.querySelectorAll("#contents section > :not(h2)")) place.replaceChildren();
  at("here").textContent = "not connected";
  at("contents").hidden = true;
  at("leave").hidden = true;
  at("hold").hidden = true;
  at("enter").hidden = false;
  at("refused").textContent = why;
  at("token").setAttribute("aria-invalid", String(why !== ""));
  still(false);
  at("token").focus();
}

function opened() {
  const entered = !at("enter").hidden;
  at("enter").hidden = true;
  at("contents").hidden = false;
  // Whoever came by keyboard goes on where the contents begin.
  if (entered) at("main").focus();
  at("leave").hidden = !sessionStorage.getItem(KEY);
  at("hold").hidden = false;
}

const isRefusal = ({ reason }) => reason?.status === 401 || reason?.status === 403;

// A token that does not hold is shown once, and not once for each part: the gateway looks at so many only.
async function answersTo(due) {
  const question = (part) => ask(`/admin/${part.path}`);
  if (!at("contents").hidden) return Promise.allSettled(due.map(question));
  const first = await Promise.allSettled(due.slice(0, 1).map(question));
  return first.some(isRefusal) ? first : [...first, ...await Promise.allSettled(due.slice(1).map(question))];
}

async function look() {
  clearTimeout(timer);
  const mine = (turn += 1);
  const due = PARTS.filter((part) => (part.wait -= 1) <= 0);
  const answers = await answersTo(due);
  if (mine !== turn) return;
  const refused = answers.find(isRefusal);
  if (refused) {
    const given = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    enter(given ? refused.reason.message : "");
    return;
  }
  const missing = [];
  due.forEach((part, number) => {
    const { value, reason } = answers[number];
    try {
      if (reason) throw reason;
      take(part, value);
    } catch (error) {
      missing.push(`${part.path}: ${error.message}`);
    }
  });
  if (missing.length < due.length) opened();
  reach();
  sayMissing(missing);
  timer = setTimeout(look, EVERY_MS);
}

at("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = at("token").value.trim();
  // No header can carry anything else, and the browser would not even ask.
  if (!/^[!-~]+$/.test(token)) return enter("A token has no spaces, and only the letters, digits and signs of ASCII.");
  sessionStorage.setItem(KEY, token);
  at("token").value = "";
  look();
});
at("leave").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  enter("");
});
at("hold").addEventListener("click", () => {
  turn += 1;
  clearTimeout(timer);
  still(!held);
  if (!held) look();
});
window.addEventListener("resize", reach);
document.addEventListener("visibilitychange", () => {
  turn += 1;
  clearTimeout(timer);
  if (!document.hidden && !held && at("enter").hidden) look();
});
look();
