"use strict";
// The page's data: heads, examples, and the map of one head.

const DATA = json("data");
const HEADS = DATA.heads;
const KINDS = [...new Set(DATA.layers.map((layer) => layer.kind))];
const ROLES = [...new Set(HEADS.flatMap((head) => head.roles.map((role) => role.role)))];
const FRAMES = DATA.snapshots.filter((snapshot) => Object.keys(snapshot.maps).length > 0);

// What is shown. frame: which of FRAMES, FRAMES.length for the trained model.
const state = {
  head: 0, example: 0, row: 0, column: 0, frame: FRAMES.length, scale: "sqrt",
  kind: "", layer: "", number: "", role: "", effect: "", named: false,
};

const selected = () => HEADS[state.head];
const namesOf = (head) => head.roles.filter((role) => role.named);
const namesText = (head) => namesOf(head).map((role) => word(role.role)).join(", ");
// The roles that the table tells of a head: that of the filter, else all of its names.
const rolesOf = (head) => (state.role ? head.roles.filter((role) => role.role === state.role) : namesOf(head));
const roleOf = (head) => rolesOf(head)[0] ?? null;
const layersOf = (kind) => DATA.layers.filter((layer) => layer.kind === kind);

function headIndex(kind, layer, number) {
  return HEADS.findIndex((head) => head.kind === kind && head.layer === layer && head.head === number);
}

// "beyond" every control, farther from 0 or on the other side of it; "less" than every one; "within" them; "" unknown.
function verdict({ effect, controls }) {
  if (typeof effect !== "number" || !controls.length) return "";
  const [low, high] = [controls[0], controls[controls.length - 1]];
  if (effect >= low && effect <= high) return "within";
  return (effect < low ? effect < 0 : effect > 0) ? "beyond" : "less";
}

function matches(head) {
  const role = roleOf(head);
  return (
    (state.kind === "" || head.kind === state.kind) &&
    (state.layer === "" || head.layer === Number(state.layer)) &&
    (state.number === "" || head.head === Number(state.number)) &&
    (state.role === "" || role !== null) &&
    (!state.named || (role !== null && role.named)) &&
    (state.effect === "" || verdict(head) === state.effect)
  );
}

const unpacked = new Map();

// All maps of one kind, for the example or the step of the training that is shown: one for each head of HEADS.
function mapsOf(kind) {
  const info = DATA.examples[state.example].maps[kind];
  const source = (state.frame < FRAMES.length && FRAMES[state.frame].maps[kind]) || info.array;
  if (!unpacked.has(source)) {
    if (unpacked.size >= 8) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(source, unpack(kind, info, array(source)));
  }
  return unpacked.get(source);
}

function unpack(kind, info, packed) {
  const rows = info.queries.length;
  const columns = info.keys.length;
  const found = new Map();
  let at = 0;
  layersOf(kind).forEach((layer, l) => {
    const masked = maskOf(info, l, rows, columns);
    for (const number of layer.heads) {
      const values = new Uint16Array(rows * columns);
      for (let i = 0; i < rows; i++) {
        const stored = info.causal ? i + 1 : columns;
        values.set(packed.subarray(at, at + stored), i * columns);
        at += stored;
      }
      found.set(headIndex(kind, layer.layer, number), { values, masked, rows, columns });
    }
  });
  return found;
}

const masks = new Map();

// 1 where a query may not read a key; null: it may read all.
function maskOf(info, layer, rows, columns) {
  if (!info.causal && !info.mask) return null;
  const index = info.causal || info.mask_layers === 1 ? 0 : layer;
  const name = `${info.array} ${index}`;
  if (masks.has(name)) return masks.get(name);
  const made = new Uint8Array(rows * columns);
  const bits = info.causal ? null : array(info.mask);
  for (let k = 0; k < made.length; k++) {
    const bit = index * made.length + k;
    made[k] = bits ? 1 - ((bits[bit >> 3] >> (7 - (bit & 7))) & 1) : Number(k % columns > Math.floor(k / columns));
  }
  masks.set(name, made);
  return made;
}

const info = () => DATA.examples[state.example].maps[selected().kind];
const shownMap = () => mapsOf(selected().kind).get(state.head);

// Keys of a row by weight, the largest first, equal ones by place; masked ones are not among them.
function sortedRow(map, row) {
  const from = row * map.columns;
  const keys = [];
  for (let j = 0; j < map.columns; j++) if (!(map.masked && map.masked[from + j])) keys.push(j);
  return keys.sort((a, b) => map.values[from + b] - map.values[from + a] || a - b);
}
