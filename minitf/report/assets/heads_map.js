"use strict";
// The large map of the selected head, what is known about the head, and its selected row as a table.

const LABEL = 11; // least CSS pixels of a cell whose token is written beside it
const WIDEST = 540; // CSS pixels of the map with its labels
let cell = 1; // CSS pixels of a cell; less than 1 if there are more cells than pixels

function paintMap() {
  const map = shownMap();
  const canvas = $("map-canvas");
  const density = window.devicePixelRatio || 1;
  const room = Math.min(WIDEST, $("map-frame").clientWidth - 2) - ($("map-queries").clientWidth || 0);
  const fit = (room * density) / Math.max(map.columns, map.rows);
  const size = fit >= 1 ? Math.min(Math.floor(fit), Math.round(44 * density)) : fit; // device pixels; whole ones if it can be
  const width = Math.max(1, Math.floor(size * map.columns));
  const height = Math.max(1, Math.floor(size * map.rows));
  paint(canvas, map, width, height, state.scale);
  canvas.style.width = `${width / density}px`;
  canvas.style.height = `${height / density}px`;
  cell = size / density;
}

// Tokens beside the map where there is room for them.
function labelMap() {
  const { queries, keys } = info();
  const map = shownMap();
  const room = Math.min(WIDEST, $("map-frame").clientWidth - 2);
  const fits = (room - 90) / Math.max(map.rows, map.columns) >= LABEL;
  $("map-frame").classList.toggle("labelled", fits);
  $("map-queries").replaceChildren(...(fits ? queries.map((text) => bdi(text)) : []));
  $("map-keys").replaceChildren(...(fits ? keys.map((text) => bdi(text)) : []));
  paintMap();
  for (const label of $("map-queries").children) label.style.height = label.style.lineHeight = `${cell}px`;
  for (const label of $("map-keys").children) label.style.width = `${cell}px`;
}

function titleMap() {
  const head = selected();
  const role = namesText(head);
  const title = role ? tr("map.title.named", { name: head.name, role }) : tr("map.title", { name: head.name });
  const step = state.frame < FRAMES.length ? `, ${tr("step.shown", { step: FRAMES[state.frame].step })}` : "";
  $("map-title").textContent = title + step;
  const labelled = $("map-frame").classList.contains("labelled");
  $("map-kind").textContent = tr(`kind.${head.kind}.about`) + (labelled ? "" : tr("map.unlabelled"));
  const map = shownMap();
  $("map-canvas").setAttribute("aria-label", tr("map.label", { name: head.name, queries: map.rows, keys: map.columns }));
  $("map-canvas").dataset.head = state.head;
}

// Row and cell that are selected: a frame over the map, so that no pixel of it changes.
function markMap() {
  const map = shownMap();
  const { queries, keys } = info();
  const place = (box, row, column, rows, columns) => {
    box.style.top = `${row * cell}px`;
    box.style.left = `${column * cell}px`;
    box.style.height = `${rows * cell}px`;
    box.style.width = `${columns * cell}px`;
  };
  place($("map-row"), state.row, 0, 1, map.columns);
  place($("map-cell"), state.row, state.column, 1, 1);
  [...$("map-queries").children].forEach((label, i) => label.classList.toggle("on", i === state.row));
  [...$("map-keys").children].forEach((label, j) => label.classList.toggle("on", j === state.column));
  readout(map, queries, keys, state.row, state.column);
}

function readout(map, queries, keys, row, column) {
  const at = row * map.columns + column;
  const value = map.masked && map.masked[at] ? tr("masked") : fmt(map.values[at] / TOP, 5);
  $("readout").replaceChildren(`${row} `, bdi(queries[row]), " → ", `${column} `, bdi(keys[column]), ": ", el("b", {}, value));
}

function wireMap() {
  const canvas = $("map-canvas");
  const at = (event) => {
    const map = shownMap();
    return [clamp(Math.floor(event.offsetY / cell), map.rows), clamp(Math.floor(event.offsetX / cell), map.columns)];
  };
  canvas.addEventListener("pointermove", (event) => readout(shownMap(), info().queries, info().keys, ...at(event)));
  canvas.addEventListener("pointerleave", markMap);
  canvas.addEventListener("click", (event) => {
    const [row, column] = at(event);
    select({ row, column });
  });
  canvas.addEventListener("keydown", moveRow);
}

// Arrow keys on the map or on the lines.
function moveRow(event) {
  const step = steps(event);
  const map = shownMap();
  if (step) select({ row: clamp(state.row + step[0], map.rows), column: clamp(state.column + step[1], map.columns) });
}

// ---- what is known about the head

function showFacts() {
  const head = selected();
  const names = namesOf(head);
  const others = head.roles.filter((role) => !role.named);
  const list = el("ul", { class: "names" }, ...names.map((role, i) => roleLine(role, names[i + 1])));
  if (!names.length) list.append(el("li", {}, tr("facts.none")));
  const rest = el("dl", {});
  for (const role of others) rest.append(el("dt", { title: word(role.role, "about") }, word(role.role)), el("dd", {}, roleText(role), ` (${tr(whyUnnamed(role))})`));
  for (const [name, value] of Object.entries(head.metrics)) {
    const about = word(name, "about");
    rest.append(el("dt", {}, word(name)), el("dd", {}, fmtMetric(value), about ? el("small", {}, ` ${about}`) : ""));
  }
  const more = el("details", {}, el("summary", {}, tr("facts.more")), rest);
  const open = $("facts").querySelector("details")?.open; // stays open from head to head
  if (open) more.open = true;
  $("facts").replaceChildren(list, effectLine(head), rest.children.length ? more : "");
}

const aboutRole = (role) => word(role.role, "about") || tr(role.role.startsWith("offset ") ? "about.offset" : "about.role");

// Roles that mean the same are explained once, under the last of them.
function roleLine(role, next) {
  const about = next && aboutRole(next) === aboutRole(role) ? "" : el("small", { class: "block" }, aboutRole(role));
  return el("li", {}, el("b", {}, word(role.role)), " ", roleText(role), about);
}

// Why a role that was measured names nobody. Above both, it is below the threshold of the name or above by too little.
function whyUnnamed(role) {
  if (role.null === null) return "facts.unnamed.null";
  const above = role.score > role.null && (role.baseline === null || role.score > role.baseline);
  return above ? "facts.unnamed.little" : "facts.below";
}

function roleText(role) {
  const parts = [tr("facts.score", { score: fmt(role.score) }), tr("facts.null", { null: fmt(role.null) })];
  if (role.baseline !== null) parts.push(tr("facts.baseline", { baseline: fmt(role.baseline) }));
  return parts.join(" · ");
}

// The effect as a bar and the controls as dots, on one axis that all heads share.
function effectLine(head) {
  const box = el("div", { class: "ablation" }, el("b", {}, tr("facts.effect"), ": "));
  if (typeof head.effect !== "number") {
    box.append(tr("facts.effect.none"));
    return box;
  }
  const found = verdict(head);
  const told = found ? tr(`facts.verdict.${found}`) : tr("facts.control.none");
  box.append(el("span", { class: "value" }, tr("facts.effect.value", { effect: signed(head.effect) })), ` ${controlText(head)}${told}`);
  const limit = Math.max(1e-9, ...HEADS.flatMap((h) => [h.effect, ...h.controls]).filter(Number.isFinite).map(Math.abs));
  const place = (value) => `${50 + (50 * value) / limit}%`;
  const bar = el("i", { class: head.effect < 0 ? "bar-down" : "bar-up" });
  bar.style.left = place(Math.min(0, head.effect));
  bar.style.width = `${(50 * Math.abs(head.effect)) / limit}%`;
  const strip = el("div", { class: "strip", "aria-hidden": "true" }, bar);
  for (const value of head.controls) {
    const dot = el("i", { class: "dot" });
    dot.style.left = place(value);
    strip.append(dot);
  }
  const name = DATA.effect_of || tr("effect.score");
  box.append(strip, el("small", {}, tr("effect.axis", { name, low: fmt(-limit, 2), high: fmt(limit, 2) })));
  return box;
}

const signed = (value) => (value > 0 ? `+${fmt(value)}` : fmt(value));

function controlText(head) {
  const { controls } = head;
  if (!controls.length) return "";
  if (controls.length === 1) return `${tr("facts.control.one", { low: signed(controls[0]) })} – `;
  const [low, high] = [controls[0], controls[controls.length - 1]].map(signed);
  return `${tr("facts.control", { low, high, n: controls.length })} – `;
}

// ---- the selected row in numbers

const LISTED = 8;

function showRow() {
  const map = shownMap();
  const { queries, keys } = info();
  const order = sortedRow(map, state.row);
  const weight = (j) => map.values[state.row * map.columns + j] / TOP;
  const [before, after] = tr("row.title", { index: state.row }).split("{token}");
  $("row-title").replaceChildren(before, bdi(queries[state.row]), after);
  const body = el("tbody");
  for (const j of order.slice(0, LISTED)) {
    const bar = el("i", { class: "weight" });
    bar.style.width = `${100 * weight(j)}%`;
    const row = el("tr", {}, el("th", { scope: "row" }, String(j)), el("td", { class: "word" }, bdi(keys[j])), el("td", {}, fmt(weight(j))), el("td", { class: "bar-cell" }, bar));
    body.append(row);
  }
  const note = (text, name) => body.append(el("tr", { class: name }, el("td", { colspan: "4" }, text)));
  const rest = order.slice(LISTED);
  if (!order.length) note(tr("no.key"));
  if (rest.length) note(tr("row.more", { n: rest.length, sum: fmt(rest.reduce((sum, j) => sum + weight(j), 0)) }));
  const hidden = map.columns - order.length;
  if (hidden) note(`${tr("row.masked")}: ${tr("row.masked.n", { n: hidden })}`, "hatched");
  const names = ["row.key", "row.token", "row.weight"].map((key) => el("th", { scope: "col" }, tr(key)));
  $("row-table").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...names, el("td"))), body));
}

function rowValues(map, row) {
  const from = row * map.columns;
  return Array.from({ length: map.columns }, (_, j) => (map.masked && map.masked[from + j] ? null : map.values[from + j] / TOP));
}

function wireCopies() {
  $("row-tsv").addEventListener("click", () => {
    const values = rowValues(shownMap(), state.row);
    copy(tsv([[tr("row.key"), tr("row.token"), tr("row.weight")], ...values.map((v, j) => [j, info().keys[j], v ?? "masked"])]));
  });
  $("row-list").addEventListener("click", () => {
    copy(`[${rowValues(shownMap(), state.row).map((v) => (v === null ? "None" : exact(v))).join(", ")}]`);
  });
  $("map-tsv").addEventListener("click", () => {
    const map = shownMap();
    const rows = info().queries.map((token, i) => [token, ...rowValues(map, i).map((v) => v ?? "masked")]);
    copy(tsv([["", ...info().keys], ...rows]));
  });
}
