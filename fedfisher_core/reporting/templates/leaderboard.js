// The leaderboard: filters entries, averages them by method and data set, and lists them, a hundred at a time.
"use strict";
{
  const SHOWN = 100;
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const seconds = (value) => (value > 0 && value < 0.005 ? "<\u20090.01" : value.toFixed(2));
  const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
  const deviation = (values) =>
    Math.sqrt(values.reduce((sum, one) => sum + (one - mean(values)) ** 2, 0) / (values.length - 1));

  const settings = data.settings.map((values) =>
    Object.fromEntries(data.setting_fields.map((field, place) => [field, values[place]])));
  const entries = data.entries.map(([setting, method, kind, variant, networks, by_seed, rank, ranked, below, upload,
    download, server, validation, epsilon]) => {
    const scores = Object.values(by_seed);
    return {
      ...settings[setting], setting, method: data.methods[method], name: data.names[method],
      attacked: data.attacked[method], kind: data.kinds[kind], variant, networks, by_seed, accuracy: mean(scores),
      deviation: scores.length > 1 ? deviation(scores) : null, seeds: scores.length, rank, ranked, below,
      upload: upload / 1e6, download: download / 1e6, server, validation: validation ? "yes" : "no", epsilon,
    };
  });

  // Filters, which the page's address has.

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
    select.append(new Option("all", "all"), ...found.map((value) => new Option(shownAs(select.name, value))));
  }
  const texts = entries.map((entry) =>
    [entry.method, entry.name, entry.kind, ...data.setting_fields.map((field) => shownAs(field, entry[field]))]
      .join(" ").toLowerCase());
  const [variants, references, words] = ["variants", "references", "text"].map((name) => form.elements.namedItem(name));
  const opened = entries.some((entry) => entry.track === "best_effort") ? "best effort" : "all";
  const usual = (select) => (select.name === "track" ? opened : "all");
  const readState = () => {
    for (const select of selects) {
      select.value = state.get(select.name) ?? usual(select);
      if (select.selectedIndex < 0) select.value = usual(select);
    }
    for (const box of [variants, references]) box.checked = state.has(box.name);
    words.value = state.get("text") ?? "";
  };
  const writeState = () => {
    keep({
      ...Object.fromEntries(selects.map((select) => [select.name, select.value === usual(select) ? "" : select.value])),
      ...Object.fromEntries([variants, references].map((box) => [box.name, box.checked ? "shown" : ""])),
      text: words.value.trim(),
    });
  };
  const admitted = () => {
    const wanted = selects.filter((select) => select.value !== "all")
      .map((select) => [select.name, values.get(select)[select.selectedIndex - 1]]);
    const text = words.value.trim().toLowerCase();
    return entries.filter((entry, index) => (variants.checked || !entry.variant)
      && (references.checked || entry.kind !== "reference")
      && wanted.every(([name, value]) => entry[name] === value) && texts[index].includes(text));
  };

  const headingOf = (entry) => {
    const heading = document.createElement("th");
    heading.scope = "row";
    heading.title = entry.method;
    heading.append(entry.name);
    if (entry.kind !== "one network") heading.append(" ", spanOf("tag", entry.kind));
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
  const rowOf = (...cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  };

  // Means over settings.

  const meansTable = byId("means-table");
  const columns = [...meansTable.tHead.rows[0].cells];
  const sets = columns.filter((column) => column.dataset.set).map((column) => column.dataset.set);
  const averaged = (own, baselines) => {
    const seeds = Object.keys(own[0].by_seed).filter((seed) => own.every((entry) => seed in entry.by_seed));
    const bySeed = seeds.map((seed) => mean(own.map((entry) => entry.by_seed[seed])));
    const ratios = own.filter((entry) => baselines.get(entry.setting))
      .map((entry) => entry.upload / baselines.get(entry.setting));
    const ranks = own.map((entry) => entry.rank).filter((rank) => rank !== null);
    return {
      // An interval is of the seeds that all settings have, and so is its middle.
      first: own[0], count: own.length, accuracy: mean(seeds.length > 1 ? bySeed : own.map((entry) => entry.accuracy)),
      half: seeds.length > 1 ? data.student[seeds.length] * deviation(bySeed) / Math.sqrt(seeds.length) : null,
      sets: sets.map((set) => own.filter((entry) => entry.dataset === set).map((entry) => entry.accuracy)),
      ratio: ratios.length ? mean(ratios) : null, rank: ranks.length ? mean(ranks) : null,
      server: mean(own.map((entry) => entry.server)),
    };
  };
  const percent = (value) => (100 * value).toFixed(2);
  const drawMeans = (found) => {
    const baselines = new Map(entries.filter((entry) => entry.method === data.baseline && entry.upload > 0)
      .map((entry) => [entry.setting, entry.upload]));
    const groups = new Map();
    for (const entry of found) {
      if (!groups.has(entry.method)) groups.set(entry.method, []);
      groups.get(entry.method).push(entry);
    }
    const lines = [...groups.values()].map((own) => averaged(own, baselines));
    const place = (line) => data.kinds.indexOf(line.first.kind);
    lines.sort((one, other) => place(one) - place(other) || other.count - one.count || other.accuracy - one.accuracy);
    for (const heading of columns) heading.removeAttribute("aria-sort");
    meansTable.tBodies[0].replaceChildren(...lines.map((line) => rowOf(
      headingOf(line.first), cellOf(percent(line.accuracy)),
      cellOf(line.half === null ? "–" : `${percent(line.accuracy - line.half)} to ${percent(line.accuracy + line.half)}`),
      ...line.sets.map((scores) => cellOf(scores.length ? percent(mean(scores)) : "–")),
      cellOf(line.ratio === null ? "–" : `${line.ratio.toFixed(2)}×`), cellOf(seconds(line.server)),
      cellOf(line.first.attacked === null ? "–" : line.first.attacked.toFixed(1)),
      cellOf(line.rank === null ? "–" : line.rank.toFixed(2)), cellOf(line.count))));
    columns.forEach((column, index) => {
      const unused = sets.includes(column.dataset.set) && !found.some((entry) => entry.dataset === column.dataset.set);
      for (const row of meansTable.rows) row.cells[index].hidden = unused;
    });
  };

  // Entries.

  const linkOf = (report) => {
    const link = document.createElement("a");
    link.href = data.links[report];
    link.append(report);
    return link;
  };
  const drawn = {
    method: (entry) => {
      const heading = headingOf(entry);
      if (entry.below) heading.append(" ", spanOf("tag below", "below local"));
      return heading;
    },
    rank: (entry) => cellOf(entry.rank !== null ? `${entry.rank} of ${entry.ranked}`
      : entry.kind === "one network" ? "fewer seeds" : "apart"),
    accuracy: (entry) => {
      const cell = cellOf(percent(entry.accuracy));
      if (entry.deviation !== null) cell.append(" ", spanOf("sd", `± ${percent(entry.deviation)}`));
      return cell;
    },
    upload: (entry) => cellOf(entry.upload.toFixed(3)),
    download: (entry) => cellOf(entry.download.toFixed(3)),
    server: (entry) => cellOf(seconds(entry.server)),
    epsilon: (entry) => cellOf(entry.epsilon === null ? "–" : entry.epsilon.toFixed(2)),
    report: (entry) => cellOf(linkOf(entry.report)),
  };
  const table = byId("entry-table");
  const fields = [...table.tHead.rows[0].cells].map((cell) => ({ name: cell.dataset.column, word: cell.className === "word" }));
  let shown = [], first = 0, order = null;

  const drawPage = () => {
    table.tBodies[0].replaceChildren(...shown.slice(first, first + SHOWN).map((entry) => {
      const row = document.createElement("tr");
      for (const { name, word } of fields) {
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
    shown = admitted();
    drawMeans(shown);
    sort();
  };
  const changed = () => {
    writeState();
    filter();
  };

  table.addEventListener("sortcolumn", (event) => {
    event.preventDefault();
    order = { name: fields[event.detail.column].name, descending: event.detail.descending };
    sort();
  });
  for (const [id, step] of [["back", -SHOWN], ["next", SHOWN]]) {
    byId(id).addEventListener("click", () => { first += step; drawPage(); });
  }
  form.addEventListener("change", changed);
  words.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => {
    for (const { name } of [...selects, variants, references, words]) state.delete(name);
    readState();
    changed();
  });
  readState();
  filter();
}
