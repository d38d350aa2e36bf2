"use strict";
// The small maps: rows are layers, columns are heads, on every width.

const THUMB = 54; // CSS pixels of the longer side

let thumbs = []; // {index, button, canvas}

// Make the grid of the selected head's kind.
function buildGrid() {
  const kind = selected().kind;
  const layers = layersOf(kind);
  const most = Math.max(...layers.map((layer) => Math.max(...layer.heads))) + 1;
  const box = el("div", { class: "grid", role: "radiogroup", "aria-labelledby": "pick-title", onkeydown: moveInGrid });
  const top = el("div", { class: "grid-row", "aria-hidden": "true" }, el("span", { class: "grid-side" }));
  for (let h = 0; h < most; h++) top.append(el("span", { class: "grid-top" }, tr("head.short", { head: h })));
  box.append(top);
  thumbs = [];
  for (const layer of layers) {
    const row = el("div", { class: "grid-row" });
    row.append(el("span", { class: "grid-side", "aria-hidden": "true" }, tr("layer.short", { layer: layer.layer })));
    for (let h = 0; h < most; h++) {
      if (layer.heads.includes(h)) row.append(thumb(headIndex(kind, layer.layer, h)));
      else row.append(el("span", { class: "thumb empty" }));
    }
    box.append(row);
  }
  $("grid").replaceChildren(box);
}

function thumb(index) {
  const head = HEADS[index];
  const canvas = el("canvas", { "aria-hidden": "true" });
  const names = namesOf(head);
  const scores = names.map((role) => `${word(role.role)} ${fmt(role.score, 2)}, ${tr("null")} ${fmt(role.null, 2)}`);
  const label = [head.name, ...scores].join(", ");
  const button = el(
    "button",
    { type: "button", class: "thumb", role: "radio", "data-head": index, "aria-label": label, title: label },
    canvas,
    el("span", { class: "thumb-name" }, ...names.map((role) => el("span", {}, word(role.role)))),
  );
  button.addEventListener("click", () => select({ head: index }));
  thumbs.push({ index, button, canvas });
  return button;
}

// Paint every small map; called when example, kind, step or scale change.
function paintGrid() {
  const maps = mapsOf(selected().kind);
  const density = Math.min(2, window.devicePixelRatio || 1);
  for (const { index, canvas } of thumbs) {
    const map = maps.get(index);
    const unit = (THUMB * density) / Math.max(map.rows, map.columns);
    const width = Math.max(8, Math.round(unit * map.columns));
    const height = Math.max(8, Math.round(unit * map.rows));
    paint(canvas, map, width, height, state.scale);
    canvas.style.width = `${width / density}px`;
    canvas.style.height = `${height / density}px`;
  }
}

// Mark the selected head and those that the filter leaves out.
function markGrid() {
  for (const { index, button } of thumbs) {
    const on = index === state.head;
    button.setAttribute("aria-checked", on);
    button.tabIndex = on ? 0 : -1;
    button.classList.toggle("faint", !matches(HEADS[index]));
  }
  const n = HEADS.filter(matches).length;
  $("matches").textContent = n < HEADS.length ? tr("matches", { n, all: HEADS.length }) : "";
}

function moveInGrid(event) {
  const step = steps(event);
  if (!step) return;
  const layers = layersOf(selected().kind);
  const at = layers.findIndex((layer) => layer.layer === selected().layer);
  const layer = layers[clamp(at + step[0], layers.length)];
  const place = layer.heads.indexOf(selected().head);
  const number = layer.heads[clamp((place < 0 ? 0 : place) + step[1], layer.heads.length)];
  select({ head: headIndex(layer.kind, layer.layer, number) });
  const found = thumbs.find((item) => item.index === state.head);
  found.button.focus();
}

// Choices of the filter, from what the heads have.
function buildFilter() {
  const add = (id, values, text = String) => {
    for (const value of values) $(id).append(el("option", { value }, text(value)));
  };
  const numbers = (key) => [...new Set(HEADS.map((head) => head[key]))].sort((a, b) => a - b);
  add("f-kind", KINDS, (kind) => tr(`kind.${kind}`));
  $("f-kind").parentElement.hidden = KINDS.length < 2;
  add("f-layer", numbers("layer"));
  add("f-head", numbers("head"));
  add("f-role", ROLES, word);
  const fields = { "f-kind": "kind", "f-layer": "layer", "f-head": "number", "f-role": "role", "f-effect": "effect" };
  for (const [id, name] of Object.entries(fields)) {
    $(id).value = state[name];
    $(id).addEventListener("change", () => {
      select({ [name]: $(id).value });
      // else every head of the grid would be faint
      if (name === "kind" && state.kind && state.kind !== selected().kind) chooseKind(state.kind);
    });
  }
  $("f-named").checked = state.named;
  $("f-named").addEventListener("change", () => select({ named: $("f-named").checked }));
  $("f-clear").addEventListener("click", () => {
    for (const id of Object.keys(fields)) $(id).value = "";
    $("f-named").checked = false;
    select({ kind: "", layer: "", number: "", role: "", effect: "", named: false });
  });
  if (Object.values(fields).some((name) => state[name] !== "") || state.named) $("filter").open = true;
}
