// A page's script: sorts tables, hides methods, draws charts, and keeps what a reader chose in the page's address.
"use strict";

// "#?hide=a&sort.table=2,down"; an address such as "#notes" is that of a section.
const state = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");
function keep(values) {
  for (const [name, value] of Object.entries(values)) {
    if (value) state.set(name, value);
    else state.delete(name);
  }
  history.replaceState(null, "", state.size ? `#?${state}` : "#");
}

// Compares numbers, then words, then nothing (null), which comes last in either direction.
function compareValues(one, other, descending) {
  const rank = (value) => (value === null ? 2 : typeof value === "number" ? 0 : 1);
  if (rank(one) !== rank(other)) return rank(one) - rank(other);
  if (one === null || one === other) return 0;
  const order = typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
  return descending ? -order : order;
}

{
  const valueOf = (cell) => {
    const text = (cell?.textContent ?? "").trim().replaceAll("\u2212", "-").replaceAll("\u2009", "");
    if (text === "" || text === "–") return null;
    // A number may be followed by its deviation or its unit, but not by a letter, as in a digest.
    const number = /^(<?)([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\p{L}\p{N}_])/iu.exec(text);
    if (number === null) return text;
    // "< 0.01" comes before 0.01.
    return number[1] ? 0.99 * Number(number[2]) : Number(number[2]);
  };

  // Each body is sorted by itself.
  const sortBody = (body, column, descending) => {
    const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
    const values = new Map(rows.map((row) => [row, valueOf(row.cells[column])]));
    rows.sort((one, other) => compareValues(values.get(one), values.get(other), descending));
    body.append(...rows);
  };

  document.querySelectorAll("table").forEach((table) => {
    const headings = [...(table.tHead?.rows[0]?.cells ?? [])];
    const sort = (column, descending) => {
      headings.forEach((one) => one.removeAttribute("aria-sort"));
      headings[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
      if (table.id) keep({ [`sort.${table.id}`]: `${column},${descending ? "down" : "up"}` });
      // A table that is drawn from data sorts the data.
      const asked = new CustomEvent("sortcolumn", { cancelable: true, detail: { column, descending } });
      if (table.dispatchEvent(asked)) for (const body of table.tBodies) sortBody(body, column, descending);
    };
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(column, heading.getAttribute("aria-sort") === "ascending"));
    });
    const [column, direction] = (state.get(`sort.${table.id}`) ?? "").split(",");
    // The script of a table that is drawn from data comes after this one, and perhaps later.
    if (headings[column]) {
      document.addEventListener("DOMContentLoaded", () => sort(Number(column), direction === "down"));
    }
  });
}

{
  const boxes = [...document.querySelectorAll(".methods input")];
  const views = [];
  const hidden = () => boxes.filter((box) => !box.checked).map((box) => box.value);
  const hide = () => {
    const names = new Set(hidden());
    for (const row of document.querySelectorAll("tr[data-method]")) row.hidden = names.has(row.dataset.method);
    for (const view of views) view.signal("hidden", [...names]).runAsync();
  };
  const asked = new Set(state.getAll("hide"));
  for (const box of boxes) {
    box.checked = !asked.has(box.value);
    box.addEventListener("change", () => {
      hide();
      state.delete("hide");
      for (const name of hidden()) state.append("hide", name);
      keep({});
    });
  }
  hide();
  // Without Vega, as without scripts, charts are those that the page contains.
  if (window.vegaEmbed) {
    for (const plot of document.querySelectorAll(".plot")) {
      const spec = JSON.parse(plot.nextElementSibling.textContent);
      spec.width = "container";
      vegaEmbed(plot, spec, { actions: false, renderer: "svg", logLevel: 1 }).then(({ view }) => {
        views.push(view);
        hide();
      });
    }
  }
}
