"use strict";
// Lines from queries to keys: 16 classes of opacity, one path each, and never more than the eye can use.

const MOST_LINES = 4000;
const LEAST = 0.02; // weights below are not drawn as lines
const CLASSES = 16;
const SIDE = 92; // CSS pixels for tokens on each side

function paintLines() {
  const map = shownMap();
  const { queries, keys } = info();
  const density = window.devicePixelRatio || 1;
  const longest = Math.max(map.rows, map.columns);
  const pitch = Math.max(3, Math.min(22, 460 / longest));
  const width = Math.max(240, $("lines-box").clientWidth - 4);
  const height = Math.ceil(pitch * longest) + 8;
  const canvas = $("lines-canvas");
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.dataset.pitch = pitch;
  const context = canvas.getContext("2d");
  context.scale(density, density);
  const ink = getComputedStyle(canvas);
  const y = (i) => 4 + (i + 0.5) * pitch;
  const chosen = chooseLines(map);
  drawClasses(context, chosen.lines, map, y, width, ink.getPropertyValue("--line"));
  drawRow(context, map, y, width, ink.getPropertyValue("--strong"));
  drawTokens(context, queries, keys, map, pitch, y, width, ink.color);
  const all = map.masked ? map.masked.reduce((n, m) => n - m, map.values.length) : map.values.length;
  $("lines-note").textContent = tr("lines.note", { shown: chosen.lines.length, all, least: fmt(chosen.least, 2) });
  canvas.setAttribute("aria-label", tr("lines.label", { name: selected().name, query: queries[state.row] }));
  keepInView(y(state.row));
}

// Places of the strongest weights.
function chooseLines(map) {
  let lines = [];
  for (let k = 0; k < map.values.length; k++) if (map.values[k] >= LEAST * TOP) lines.push(k);
  if (lines.length <= MOST_LINES) return { lines, least: LEAST };
  lines.sort((a, b) => map.values[b] - map.values[a]);
  lines = lines.slice(0, MOST_LINES);
  return { lines, least: map.values[lines[MOST_LINES - 1]] / TOP };
}

function drawClasses(context, lines, map, y, width, colour) {
  const paths = Array.from({ length: CLASSES }, () => new Path2D());
  for (const k of lines) {
    const row = Math.floor(k / map.columns);
    const path = paths[Math.min(CLASSES - 1, Math.floor((CLASSES * map.values[k]) / TOP))];
    path.moveTo(SIDE, y(row));
    path.lineTo(width - SIDE, y(k % map.columns));
  }
  context.strokeStyle = colour;
  paths.forEach((path, c) => {
    context.globalAlpha = 0.75 * ((c + 0.5) / CLASSES);
    context.stroke(path);
  });
  context.globalAlpha = 1;
}

// The selected query: its lines are thicker the larger the weight.
function drawRow(context, map, y, width, colour) {
  context.strokeStyle = colour;
  const from = state.row * map.columns;
  for (let j = 0; j < map.columns; j++) {
    const weight = map.values[from + j] / TOP;
    if (weight < LEAST / 2) continue;
    context.globalAlpha = 0.25 + 0.75 * weight;
    context.lineWidth = 0.8 + 3 * weight;
    context.beginPath();
    context.moveTo(SIDE, y(state.row));
    context.lineTo(width - SIDE, y(j));
    context.stroke();
  }
  context.globalAlpha = 1;
  context.lineWidth = 1;
}

// Every token where they fit, else those of the selected row and of the keys that it reads.
function drawTokens(context, queries, keys, map, pitch, y, width, colour) {
  const size = Math.max(10, Math.min(13, pitch - 2));
  const font = getComputedStyle(document.body).fontFamily;
  const strong = (j) => map.values[state.row * map.columns + j] >= LEAST * TOP;
  const read = new Set(sortedRow(map, state.row).slice(0, 3).filter(strong));
  context.fillStyle = colour;
  context.textBaseline = "middle";
  const write = (text, x, at, align, bold) => {
    context.font = `${bold ? "bold " : ""}${size}px ${font}`;
    context.textAlign = align;
    context.globalAlpha = bold ? 1 : 0.75;
    context.fillText(shortened(context, text, SIDE - 10), x, at);
  };
  queries.forEach((text, i) => {
    if (pitch >= LABEL || i === state.row) write(text, SIDE - 6, y(i), "right", i === state.row);
  });
  keys.forEach((text, j) => {
    if (pitch >= LABEL || read.has(j)) write(text, width - SIDE + 6, y(j), "left", read.has(j));
  });
  context.globalAlpha = 1;
}

function shortened(context, text, room) {
  let shown = text.slice(0, 40);
  if (shown === text && context.measureText(shown).width <= room) return text;
  while (shown && context.measureText(`${shown}…`).width > room) shown = [...shown].slice(0, -1).join("");
  return `${shown}…`;
}

function keepInView(at) {
  const box = $("lines-box");
  if (at < box.scrollTop + 20 || at > box.scrollTop + box.clientHeight - 20) box.scrollTop = at - box.clientHeight / 2;
}

function wireLines() {
  const canvas = $("lines-canvas");
  canvas.addEventListener("keydown", moveRow);
  canvas.addEventListener("click", (event) => {
    const at = Math.floor((event.offsetY - 4) / Number(canvas.dataset.pitch));
    const left = event.offsetX < canvas.clientWidth / 2;
    if (left) select({ row: clamp(at, shownMap().rows) });
    else select({ column: clamp(at, shownMap().columns) });
  });
}
