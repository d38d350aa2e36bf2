"use strict";
// The page about heads: one state, one function that changes it, and what follows from each change.

const STORED = {
  head: { below: HEADS.length }, example: { below: DATA.examples.length }, row: { below: 1e6 }, column: { below: 1e6 },
  frame: { below: FRAMES.length + 1 }, scale: Object.keys(SCALES), kind: KINDS, layer: HEADS.map((head) => String(head.layer)),
  number: HEADS.map((head) => String(head.head)), role: ROLES, effect: ["beyond", "within", "less"], named: ["yes"],
};

// Change the state and show what follows from it.
function select(change) {
  const before = { ...state };
  Object.assign(state, change);
  if (state.frame < FRAMES.length && state.example !== 0) {
    // maps of earlier steps are of the first example
    if (change.example === undefined) state.example = 0;
    else state.frame = FRAMES.length;
  }
  const map = shownMap();
  state.row = clamp(state.row, map.rows);
  if (change.column === undefined && (change.head !== undefined || change.row !== undefined)) state.column = sortedRow(map, state.row)[0] ?? 0;
  state.column = clamp(state.column, map.columns);
  const changed = (...names) => names.some((name) => before[name] !== state[name]);
  const otherKind = HEADS[before.head].kind !== selected().kind;
  show(otherKind, otherKind || changed("example", "frame", "scale"), changed);
}

// grid: it must be made anew; maps: its pictures must be painted; changed: whether one of the names has changed.
function show(grid, maps, changed) {
  if (grid) buildGrid();
  if (maps) paintGrid();
  if (grid || changed("example")) labelMap();
  else if (maps || changed("head")) paintMap();
  if (changed("scale")) legend($("legend"), state.scale);
  titleMap();
  markGrid();
  markMap();
  if (maps || changed("head", "row")) {
    showRow();
    paintLines();
  }
  if (changed("head")) showFacts();
  if (changed("head", "scale")) showTopRows();
  markTable();
  showMovie();
  showChoices(maps || changed("head"));
  writeHash(stored());
}

function stored() {
  const found = {};
  const start = { head: 0, example: 0, row: 0, column: 0, frame: FRAMES.length, scale: "sqrt" };
  for (const name of Object.keys(STORED)) {
    const value = name === "named" ? (state.named ? "yes" : "") : state[name];
    if (value !== start[name]) found[name] = value;
  }
  found.head = state.head;
  return found;
}

function showChoices(tell) {
  $("example").value = state.example;
  $("scale").value = state.scale;
  for (const input of $("kinds").querySelectorAll("input")) input.checked = input.value === selected().kind;
  if (!tell) return;
  $("status").textContent = $("map-title").textContent;
}

function wireChoices() {
  $("bar").addEventListener("submit", (event) => event.preventDefault());
  $("example").addEventListener("change", () => select({ example: Number($("example").value) }));
  $("scale").addEventListener("change", () => select({ scale: $("scale").value }));
  $("link").addEventListener("click", () => copy(location.href));
  for (const kind of KINDS) {
    const input = el("input", { type: "radio", name: "kind", value: kind, onchange: () => chooseKind(kind) });
    $("kinds").append(el("label", { title: tr(`kind.${kind}.about`) }, input, ` ${tr(`kind.${kind}`)}`));
  }
  $("kinds").hidden = KINDS.length < 2;
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => copy($(button.dataset.copy).textContent));
  }
}

// The head at the same place in another kind, or the first one.
function chooseKind(kind) {
  const same = headIndex(kind, selected().layer, selected().head);
  const filter = state.kind ? { kind } : {}; // a filter of another kind would leave nothing of this one
  select({ head: same >= 0 ? same : HEADS.findIndex((head) => head.kind === kind), ...filter });
  $("f-kind").value = state.kind;
}

// ---- training

let timer = 0;

function wireMovie() {
  if (!$("movie")) return;
  for (const path of document.querySelectorAll("#movie path.line")) {
    path.addEventListener("click", () => select({ head: Number(path.dataset.line) }));
  }
  if (!FRAMES.length) return;
  $("movie-controls").hidden = false;
  $("step").max = FRAMES.length;
  $("step").addEventListener("input", () => {
    stop();
    select({ frame: Number($("step").value) });
  });
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    $("play").hidden = true;
    $("movie-hint").append(` ${tr("movie.still")}`);
  }
  $("play").addEventListener("click", () => (timer ? stop() : play()));
}

function play() {
  if (state.frame >= FRAMES.length) select({ frame: 0 });
  $("play").textContent = tr("pause");
  $("play").setAttribute("aria-pressed", "true");
  timer = setInterval(() => {
    select({ frame: state.frame + 1 });
    if (state.frame >= FRAMES.length) stop();
  }, 600);
}

function stop() {
  clearInterval(timer);
  timer = 0;
  $("play").textContent = tr("play");
  $("play").setAttribute("aria-pressed", "false");
}

function showMovie() {
  if (!$("movie")) return;
  const step = state.frame < FRAMES.length ? FRAMES[state.frame].step : null;
  $("step").value = state.frame;
  $("step-text").textContent = step === null ? tr("movie.end") : String(step);
  for (const svg of document.querySelectorAll("#movie svg")) {
    for (const path of svg.querySelectorAll("path.line")) path.classList.toggle("on", Number(path.dataset.line) === state.head);
    const mark = svg.querySelector(".now");
    const axis = svg.querySelector(".axis");
    mark.setAttribute("visibility", step === null ? "hidden" : "visible");
    const [left, right] = [Number(axis.getAttribute("x1")), Number(axis.getAttribute("x2"))];
    const along = (value) => (svg.dataset.log ? Math.log10(Number(value) + 1) : Number(value));
    const share = (along(step) - along(svg.dataset.low)) / (along(svg.dataset.high) - along(svg.dataset.low));
    for (const end of ["x1", "x2"]) mark.setAttribute(end, left + share * (right - left));
  }
}

// ---- start

// The head to begin with: the one whose name and effect are the surest.
function clearest() {
  const sure = (head) => {
    const role = namesOf(head)[0];
    return role ? 10 * (verdict(head) === "beyond") + role.score - role.null : -1;
  };
  return HEADS.reduce((best, head, i) => (sure(head) > sure(HEADS[best]) ? i : best), 0);
}

function useHash() {
  const { found, bad } = readHash(STORED);
  found.named = found.named === "yes";
  Object.assign(state, found);
  if (bad) toast(tr("bad.link"));
}

useHash();
if (!location.hash) state.head = clearest();
if (state.frame < FRAMES.length) state.example = 0;
wireChoices();
buildFilter();
wireTable();
wireMap();
wireCopies();
wireLines();
wireMovie();
select(location.hash.includes("row=") ? {} : { row: shownMap().rows - 1 });
show(true, true, () => true);
let resizeTimer = 0;
addEventListener("resize", () => {
  clearTimeout(resizeTimer);
  resizeTimer = setTimeout(() => show(false, true, (...names) => names.includes("example")), 100);
});
addEventListener("hashchange", () => {
  useHash();
  select({});
  show(true, true, () => true);
});
// paper is light, whatever the screen is, and shows every part
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((part) => (part.open = true));
  document.documentElement.classList.add("paper");
  paintLines();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("paper");
  paintLines();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintLines);
document.body.dataset.ready = "yes";
