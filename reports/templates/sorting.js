// Sorts a table by the column whose heading is clicked, each of its bodies by itself; another click turns it round.
"use strict";

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

  const sortBody = (body, column, descending) => {
    const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
    const values = new Map(rows.map((row) => [row, valueOf(row.cells[column])]));
    rows.sort((one, other) => compareValues(values.get(one), values.get(other), descending));
    body.append(...rows);
  };

  for (const table of document.querySelectorAll("table")) {
    const headings = [...(table.tHead?.rows[0]?.cells ?? [])];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const descending = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach((one) => one.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
        // A table that is drawn from data sorts the data.
        const asked = new CustomEvent("sortcolumn", { cancelable: true, detail: { column, descending } });
        if (!table.dispatchEvent(asked)) return;
        for (const body of table.tBodies) sortBody(body, column, descending);
      });
    });
  }
}
