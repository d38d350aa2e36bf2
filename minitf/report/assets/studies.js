"use strict";
// The page of studies: sort and filter the table, open a study, copy its command.

const DATA = json("data");
const STORED = { verdict: DATA.verdicts, study: { below: DATA.names.length } };
const state = { verdict: "", study: null };
const sorting = { by: "", down: false };
const BODY = $("verdicts").tBodies[0];
const STUDIES = [...document.querySelectorAll("details.study")];
const NUMBERS = ["seeds", "seconds"];

function show() {
  const hidden = (row) => state.verdict !== "" && row.dataset.verdict !== state.verdict;
  let shown = 0;
  for (const row of BODY.rows) {
    row.hidden = hidden(row);
    STUDIES[Number(row.dataset.index)].hidden = row.hidden;
    shown += row.hidden ? 0 : 1;
  }
  $("verdict").value = state.verdict;
  $("count").textContent = tr("study.count", { n: shown, all: DATA.names.length });
  writeHash(state);
}

function openStudy(index) {
  state.study = index;
  if (STUDIES[index].hidden) state.verdict = "";
  show();
  STUDIES[index].open = true;
  STUDIES[index].scrollIntoView();
  STUDIES[index].querySelector("summary").focus({ preventScroll: true });
}

function sortTable(column, at) {
  sorting.down = sorting.by === column ? !sorting.down : NUMBERS.includes(column);
  sorting.by = column;
  const value = (row) => (NUMBERS.includes(column) ? Number(row.cells[at].textContent) : row.cells[at].textContent.trim());
  const rows = [...BODY.rows].map((row) => [value(row), row]);
  rows.sort(([a, rowA], [b, rowB]) => {
    const order = typeof a === "string" ? a.localeCompare(b) : a - b;
    return (sorting.down ? -order : order) || rowA.dataset.index - rowB.dataset.index;
  });
  BODY.append(...rows.map(([, row]) => row));
  for (const heading of $("verdicts").tHead.rows[0].cells) {
    if (heading.dataset.sort === column) heading.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    else heading.removeAttribute("aria-sort");
  }
}

function wire() {
  [...$("verdicts").tHead.rows[0].cells].forEach((heading, at) => {
    const name = heading.textContent;
    const sort = () => sortTable(heading.dataset.sort, at);
    heading.replaceChildren(el("button", { type: "button", class: "plain", "aria-label": tr("sort.by", { name }), onclick: sort }, name));
  });
  for (const row of BODY.rows) {
    row.querySelector("a").addEventListener("click", (event) => {
      event.preventDefault();
      openStudy(Number(row.dataset.index));
    });
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => copy($(button.dataset.copy).textContent));
  }
  $("verdict").addEventListener("change", () => {
    state.verdict = $("verdict").value;
    state.study = null;
    show();
  });
  $("bar").addEventListener("submit", (event) => event.preventDefault());
  $("open-all").addEventListener("click", () => STUDIES.forEach((study) => (study.open = true)));
  $("close-all").addEventListener("click", () => STUDIES.forEach((study) => (study.open = false)));
}

// Paper shows everything that the filter leaves; afterwards it is as before.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const box of opened) box.open = true;
});
addEventListener("afterprint", () => {
  for (const box of opened) box.open = false;
});

function start() {
  const { found, bad } = readHash(STORED);
  Object.assign(state, found);
  wire();
  if (state.study === null) show();
  else openStudy(state.study);
  if (bad) toast(tr("bad.link"));
}

start();
document.body.dataset.ready = "yes";
