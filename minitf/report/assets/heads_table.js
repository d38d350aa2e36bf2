"use strict";
// The table of heads, sorted and filtered, and the rows of data where the selected head is most active.

const sorting = { by: "", down: true };

function wireTable() {
  const body = $("heads-table").tBodies[0];
  for (const row of body.rows) {
    const head = Number(row.dataset.head);
    const name = row.cells[0].textContent;
    row.cells[0].replaceChildren(el("button", { type: "button", class: "plain", onclick: () => select({ head }) }, name));
    row.addEventListener("click", () => select({ head }));
    tint(row.querySelector(".effect"), HEADS[head].effect);
  }
  for (const heading of $("heads-table").tHead.rows[0].cells) {
    const name = heading.textContent;
    const button = el("button", { type: "button", class: "plain", title: heading.title, "aria-label": tr("sort.by", { name }) }, name);
    button.addEventListener("click", () => sortTable(heading.dataset.sort));
    heading.replaceChildren(button);
  }
  $("table-tsv").addEventListener("click", () => {
    const names = [...$("heads-table").tHead.rows[0].cells].map((heading) => heading.textContent);
    const rows = [...body.rows].filter((row) => !row.hidden).map((row) => exactCells(HEADS[Number(row.dataset.head)]));
    copy(tsv([names, ...rows]));
  });
}

// Blue for what falls, orange for what rises, white at 0, the same limits for every head.
function tint(box, value) {
  const limit = Math.max(1e-9, ...HEADS.map((head) => Math.abs(head.effect)).filter(Number.isFinite));
  if (typeof value !== "number") return;
  const share = Math.round((100 * Math.abs(value)) / limit);
  box.style.background = `color-mix(in oklab, var(${value < 0 ? "--down" : "--up"}) ${0.7 * share}%, transparent)`;
}

function valueOf(head, column) {
  const role = roleOf(head);
  if (column.startsWith("metric.")) return head.metrics[column.slice(7)] ?? null;
  if (column === "head") return HEADS.indexOf(head);
  if (column === "name") return role ? word(role.role) : "";
  if (column === "effect") return head.effect;
  if (column === "control") return head.controls.length ? head.controls[0] : null;
  return role ? role[column] : null;
}

function sortTable(column) {
  const words = column === "head" || column === "name";
  sorting.down = sorting.by === column ? !sorting.down : !words && column !== "effect";
  sorting.by = column;
  const body = $("heads-table").tBodies[0];
  const rows = [...body.rows].map((row) => [valueOf(HEADS[Number(row.dataset.head)], column), row]);
  const missing = (value) => value === null || value === "" || (typeof value === "string" && column !== "name");
  rows.sort(([a, rowA], [b, rowB]) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b) || rowA.dataset.head - rowB.dataset.head;
    const order = typeof a === "string" ? a.localeCompare(b) : a - b;
    return (sorting.down ? -order : order) || rowA.dataset.head - rowB.dataset.head;
  });
  body.append(...rows.map(([, row]) => row));
  for (const heading of $("heads-table").tHead.rows[0].cells) {
    const on = heading.dataset.sort === column;
    if (on) heading.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    else heading.removeAttribute("aria-sort");
  }
}

// Selected and filtered rows, a line for each name; where the filter asks for a role, its numbers.
function markTable() {
  for (const row of $("heads-table").tBodies[0].rows) {
    const index = Number(row.dataset.head);
    const head = HEADS[index];
    const roles = rolesOf(head);
    row.hidden = !matches(head);
    row.classList.toggle("on", index === state.head);
    const fill = (column, text, none) => row.cells[column].replaceChildren(...(roles.length ? roles.map((role) => el("div", {}, text(role))) : [none]));
    fill(1, (role) => word(role.role) + (role.named ? "" : ` (${tr("no.name")})`), tr("no.name"));
    ["score", "null", "baseline"].forEach((part, i) => fill(2 + i, (role) => fmt(role[part]), "–"));
  }
}

function exactCells(head) {
  const roles = rolesOf(head);
  const parts = ["score", "null", "baseline"].map((part) => roles.map((role) => exact(role[part])).join(" "));
  const metrics = [...$("heads-table").tHead.rows[0].cells].map((heading) => heading.dataset.sort).filter((name) => name.startsWith("metric."));
  return [head.name, roles.map((role) => role.role).join(", "), ...parts, head.effect, head.controls.map(exact).join(" "), ...metrics.map((name) => valueOf(head, name))];
}

function showTopRows() {
  const { rows, name } = selected();
  $("rows").hidden = !rows.length;
  if (!rows.length) return;
  $("rows-title").textContent = tr("rows.title", { name });
  const tokens = array("rows-tokens");
  const activity = array("rows-activity");
  const line = ({ start, length, label }) => {
    const text = el("p", { class: "strip-of-tokens" });
    for (let i = start; i < start + length; i++) {
      const piece = bdi(DATA.symbols[tokens[i]]);
      const t = SCALES[state.scale](activity[i] / TOP);
      piece.style.background = `rgb(${ramp(Math.max(0, t)).join(" ")})`;
      piece.classList.toggle("dark", t > 0.5);
      piece.title = fmt(activity[i] / TOP);
      text.append(piece);
    }
    return el("li", {}, label ? el("small", {}, label) : "", text);
  };
  $("rows-list").replaceChildren(...rows.map(line));
}
