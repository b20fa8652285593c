// The leaderboard: filters, sorts and ranks the entries that the page carries, and draws a hundred at a time.
"use strict";
{
  const SHOWN = 100;
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const seconds = (value) => (value > 0 && value < 0.005 ? "<\u20090.01" : value.toFixed(2));
  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

  const settings = data.settings.map((values) =>
    Object.fromEntries(data.setting_fields.map((field, place) => [field, values[place]])));
  const entries = data.entries.map(([setting, method, kind, networks, accuracy, deviation, seeds, rank, ranked, below,
    upload, download, server, validation, epsilon]) => ({
    ...settings[setting], setting, method: data.methods[method], kind: data.kinds[kind], networks, accuracy, deviation,
    seeds, rank, ranked, below, upload: upload / 1e6, download: download / 1e6, server,
    validation: validation ? "yes" : "no", epsilon,
  }));
  const comparable = entries.filter((entry) => entry.rank !== null);

  // Filters.

  const nameOf = {
    track: (value) => value?.replace("_", " ") ?? "own settings",
    training: (value) => value ?? "not stated",
    shift: (value) => value ?? "no shift",
    wire_budget: (value) => value ?? "not stated",
  };
  const shownAs = (field, value) => nameOf[field]?.(value) ?? (value === null ? "none" : String(value));
  const form = byId("filters");
  const selects = [...form.querySelectorAll("select")];
  const values = new Map(selects.map((select) => {
    const found = [...new Set(entries.map((entry) => entry[select.name]))];
    return [select, found.sort((one, other) => compareValues(one, other, false))];
  }));
  for (const [select, found] of values) {
    select.append(new Option("all", ""), ...found.map((value, index) => new Option(shownAs(select.name, value), index)));
  }
  const texts = entries.map((entry) =>
    [entry.method, entry.kind, ...data.setting_fields.map((field) => shownAs(field, entry[field]))].join(" ").toLowerCase());
  const words = form.elements.namedItem("text");

  // What the selects ask for; settings have no method and no kind.
  const admits = (names) => {
    const wanted = selects.filter((select) => select.value !== "" && names(select.name))
      .map((select) => [select.name, values.get(select)[select.value]]);
    return (entry) => wanted.every(([name, value]) => entry[name] === value);
  };

  // Mean ranks.

  const chosen = byId("chosen");
  const counts = new Map();
  for (const entry of comparable) counts.set(entry.method, (counts.get(entry.method) ?? 0) + 1);
  const defaults = new Set(data.chosen.map((index) => data.methods[index]));
  const boxes = [...counts.keys()].sort((one, other) => counts.get(other) - counts.get(one) || compareValues(one, other, false))
    .map((method) => {
      const box = document.createElement("input");
      Object.assign(box, { type: "checkbox", value: method, defaultChecked: defaults.has(method) });
      const label = document.createElement("label");
      label.append(box, ` ${method} (${counts.get(method)})`);
      chosen.append(label);
      return box;
    });

  const rankAmong = (scores) => scores.map((score) =>
    // Those that tie share the mean of their ranks.
    scores.filter((other) => other > score).length + (scores.filter((other) => other === score).length + 1) / 2);

  const drawRanks = () => {
    const methods = boxes.filter((box) => box.checked).map((box) => box.value);
    const place = new Map(methods.map((method, index) => [method, index]));
    const admitted = admits((name) => name !== "method" && name !== "kind");
    const bySetting = new Map();
    for (const entry of comparable.filter((one) => place.has(one.method) && admitted(one))) {
      if (!bySetting.has(entry.setting)) bySetting.set(entry.setting, []);
      bySetting.get(entry.setting)[place.get(entry.method)] = entry.accuracy;
    }
    const whole = [...bySetting.values()].filter((scores) => Object.keys(scores).length === methods.length);
    const sums = methods.map(() => 0);
    for (const scores of whole) rankAmong(scores).forEach((rank, index) => { sums[index] += rank; });
    const means = methods.map((method, index) => [method, sums[index] / whole.length]);
    means.sort((one, other) => one[1] - other[1] || compareValues(one[0], other[0], false));
    byId("rank-summary").textContent = whole.length === 0
      ? "The chosen methods share no setting among those that the filters leave."
      : `Over the ${plural(whole.length, "setting")} that the filters leave and in which all ${methods.length} chosen `
        + "methods ran with every seed; 1 is the best. Methods are ranked among the chosen ones. Settings that share a data set are not "
        + "independent of each other.";
    const table = byId("rank-table");
    for (const heading of table.tHead.rows[0].cells) heading.removeAttribute("aria-sort");
    table.tBodies[0].replaceChildren(...(whole.length === 0 ? [] : means).map(([method, mean]) => {
      const row = document.createElement("tr");
      row.append(headingOf(method), cellOf(mean.toFixed(2)));
      return row;
    }));
  };

  // The table.

  const headingOf = (text) => {
    const heading = document.createElement("th");
    heading.scope = "row";
    heading.append(text);
    return heading;
  };
  const cellOf = (...content) => {
    const cell = document.createElement("td");
    cell.append(...content);
    return cell;
  };
  const spanOf = (name, text) => {
    const span = document.createElement("span");
    span.className = name;
    span.append(text);
    return span;
  };
  const linkOf = (report) => {
    const link = document.createElement("a");
    link.href = data.links[report];
    link.append(report);
    return link;
  };
  const drawn = {
    method: (entry) => {
      const heading = headingOf(entry.method);
      if (entry.kind !== "one network") heading.append(" ", spanOf("tag", entry.kind));
      if (entry.below) heading.append(" ", spanOf("tag below", "below local"));
      return heading;
    },
    rank: (entry) => cellOf(entry.rank !== null ? `${entry.rank} of ${entry.ranked}`
      : entry.kind === "one network" ? "fewer seeds" : "apart"),
    accuracy: (entry) => {
      const cell = cellOf((100 * entry.accuracy).toFixed(2));
      if (entry.deviation !== null) cell.append(" ", spanOf("sd", `± ${(100 * entry.deviation).toFixed(2)}`));
      return cell;
    },
    upload: (entry) => cellOf(entry.upload.toFixed(3)),
    download: (entry) => cellOf(entry.download.toFixed(3)),
    server: (entry) => cellOf(seconds(entry.server)),
    epsilon: (entry) => cellOf(entry.epsilon === null ? "–" : entry.epsilon.toFixed(2)),
    report: (entry) => cellOf(linkOf(entry.report)),
  };
  const table = byId("entry-table");
  const columns = [...table.tHead.rows[0].cells].map((cell) => ({ name: cell.dataset.column, word: cell.className === "word" }));
  let shown = [], first = 0, order = null;

  const drawPage = () => {
    table.tBodies[0].replaceChildren(...shown.slice(first, first + SHOWN).map((entry) => {
      const row = document.createElement("tr");
      for (const { name, word } of columns) {
        const cell = drawn[name]?.(entry) ?? cellOf(shownAs(name, entry[name]));
        if (word) cell.classList.add("word");
        row.append(cell);
      }
      return row;
    }));
    const last = Math.min(first + SHOWN, shown.length);
    byId("count").textContent = shown.length === 0 ? "No entry has all of this."
      : `Entries ${(first + 1).toLocaleString("en")} to ${last.toLocaleString("en")} of ${shown.length.toLocaleString("en")}.`;
    byId("back").disabled = first === 0;
    byId("next").disabled = last === shown.length;
  };
  const sort = () => {
    if (order !== null) shown.sort((one, other) => compareValues(one[order.name], other[order.name], order.descending));
    first = 0;
    drawPage();
  };
  const filter = () => {
    const admitted = admits(() => true), text = words.value.trim().toLowerCase();
    shown = entries.filter((entry, index) => admitted(entry) && texts[index].includes(text));
    sort();
    drawRanks();
  };

  table.addEventListener("sortcolumn", (event) => {
    event.preventDefault();
    order = { name: columns[event.detail.column].name, descending: event.detail.descending };
    sort();
  });
  for (const [id, step] of [["back", -SHOWN], ["next", SHOWN]]) {
    byId(id).addEventListener("click", () => { first += step; drawPage(); });
  }
  for (const select of selects) select.addEventListener("change", filter);
  words.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  // The form is reset after its event.
  form.addEventListener("reset", () => setTimeout(filter));
  chosen.addEventListener("change", drawRanks);
  filter();
}
