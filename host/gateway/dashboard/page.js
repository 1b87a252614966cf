// Pieces of the page. Everything that comes from elsewhere is put in as text, never as markup.

export const at = (id) => document.getElementById(id);

export function element(name, content, attributes = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const part of [content].flat()) made.append(part ?? "");
  return made;
}

export const none = (words) => element("p", words, { class: "none" });
export const short = (id) => element("code", String(id).slice(0, 8), { title: id });
export const ids = (all) => all.flatMap((id) => [short(id), " "]);

// The day is only told of what is not about now.
export function time(ms) {
  const date = new Date(ms);
  return Math.abs(Date.now() - ms) < 12 * 3600e3 ? date.toLocaleTimeString() : date.toLocaleString();
}

export function duration(us) {
  if (us < 1000) return `${us} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(1)} ms`;
  if (us < 120e6) return `${(us / 1e6).toFixed(1)} s`;
  const minutes = Math.round(us / 60e6);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes(count) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (count < 1024) return `${Number(count.toFixed(1))} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)} GiB`;
}

// Columns are [name, what a row has there, the class of its cells]. On a phone cells stand below each other, and only the roles still say
// that this is a table.
export function table(rows, columns, words) {
  if (rows.length === 0) return none(words);
  const kind = (of) => (of ? { class: of } : {});
  const head = element("tr", columns.map(([name, , of]) => element("th", name, { scope: "col", role: "columnheader", ...kind(of) })), { role: "row" });
  const cell = (row) => ([name, what, of]) => element("td", what(row), { "data-name": name, role: "cell", ...kind(of) });
  const line = (row) => element("tr", columns.map(cell(row)), { role: "row" });
  const group = (name, lines) => element(name, lines, { role: "rowgroup" });
  return element("table", [group("thead", head), group("tbody", rows.map(line))], { role: "table" });
}
