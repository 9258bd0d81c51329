// The pages of data-stack browse. Text of the data only ever becomes text nodes and attributes, never markup.
"use strict";

const CHUNK = 60, LAID_OUT = 8e6, OPEN_COLUMNS = 8;
const $ = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en");
const percent = (part, all) => `${Math.floor(100 * part / Math.max(1, all))} %`;

let overview, split = 0, layout = "cards", search = "", conditions = new Map();
let generation = 0, chunks = new Map(), total = 0, isComplete = true, scanned = 0, active = 0, shown = null;

// ---------------------------------------------------------------- tools

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

async function ask(path, parameters = {}) {
  let answer;
  try {
    answer = await fetch(`${path}?${new URLSearchParams(parameters)}`);
  } catch {
    throw new Error("data-stack browse has ended; start it again, and open its new URL.");
  }
  const json = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) throw new Error(json.error);
  return json;
}

function complain(error) {
  $("problem").textContent = error ? error.message : "";
  $("problem").hidden = !error;
}

const columns = () => overview.splits[split].columns;
const classColumn = () => overview.splits[split].class_column ?? null;
const captionColumn = () => overview.splits[split].caption_column ?? null;
const where = () => JSON.stringify([...conditions.values(), ...(search ? [{ contains: search }] : [])]);
const pictureColumn = () => {
  const pictures = columns().map((column, number) => ({ ...column, number })).filter((column) => column.has_picture);
  return (pictures.find((column) => column.kind === "image") ?? pictures[0] ?? { number: null }).number;
};

function picture(position, column, size = "small", number = split) {
  const parameters = new URLSearchParams({ split: number, position, column, size, run: overview.run });
  const image = make("img", { alt: "", loading: "lazy", decoding: "async", draggable: "false" });
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < 200 && image.naturalHeight < 200));
  image.addEventListener("error", async () => {
    const error = await ask(image.src).catch((problem) => problem);
    image.replaceWith(make("span", { class: "text error", title: error.message ?? "" }, error.message ?? "no picture"));
  });
  image.src = `picture?${parameters}`;
  return make("div", { class: "frame" }, image);
}

function tile(position, text, number = split, column = pictureColumn()) {
  const frame = column === null ? make("div", { class: "frame" }, make("span", { class: "text" }, text)) : picture(position, column, "small", number);
  return make("button", { class: "tile", title: text, "aria-label": text, onclick: () => openSample(position, null, number) }, frame);
}

// ---------------------------------------------------------------- samples: one scroll area for any number of them

const view = { top: 0, physical: 0, perRow: 1, rowHeight: 40, nodes: new Map() };

function measure() {
  const width = $("viewport").clientWidth - 24;
  const isCards = layout === "cards";
  const captions = columns().some((column, number) => column.is_plain && column.kind === "text" && number !== captionColumn()) ? 2 : 1;
  view.perRow = isCards ? Math.max(2, Math.floor(width / (width < 500 ? 118 : 152))) : 1;
  view.cell = width / view.perRow;
  const padding = width < 500 ? 10 : 16;
  view.rowHeight = isCards ? Math.round(view.cell + 6 + 18 * captions + (padding - 10)) : 44;
  const rows = Math.ceil(total / view.perRow);
  view.height = rows * view.rowHeight + (isCards ? 24 : 0);
  $("spacer").style.height = `${Math.min(view.height, LAID_OUT)}px`;
}

function scrolled() {
  const area = $("viewport"), now = area.scrollTop, change = now - view.physical;
  const room = Math.max(1, Math.min(view.height, LAID_OUT) - area.clientHeight), virtual = Math.max(1, view.height - area.clientHeight);
  // A browser lays out some ten million pixels: beyond, the scrollbar jumps far, and the wheel moves by single rows.
  const isStep = view.height > LAID_OUT && Math.abs(change) < 2 * area.clientHeight && now > 0 && now < room - 1;
  view.top = isStep ? Math.min(virtual, Math.max(0, view.top + change)) : now * (virtual / room);
  view.physical = now;
  render();
}

function scrollToItem(index) {
  const area = $("viewport"), head = layout === "table" ? 34 : 0, top = Math.floor(index / view.perRow) * view.rowHeight;
  const low = top + view.rowHeight + head - area.clientHeight;
  const target = top < view.top ? top : low > view.top ? low + 8 : view.top;
  if (target === view.top) return;
  view.top = target;
  const room = Math.max(1, Math.min(view.height, LAID_OUT) - area.clientHeight), virtual = Math.max(1, view.height - area.clientHeight);
  view.physical = Math.round(target * (room / virtual));
  area.scrollTop = view.physical;
}

function render() {
  const area = $("viewport"), inset = layout === "cards" ? 12 : 0;
  const first = Math.max(0, Math.floor(view.top / view.rowHeight) - 2) * view.perRow;
  const last = Math.min(total, (Math.ceil((view.top + area.clientHeight) / view.rowHeight) + 2) * view.perRow);
  for (const [index, node] of view.nodes) {
    if (index < first || index >= last || (node.isWaiting && sampleAt(index))) { node.remove(); view.nodes.delete(index); }
  }
  for (let index = first; index < last; index++) {
    let node = view.nodes.get(index);
    if (!node) {
      const sample = sampleAt(index);
      node = layout === "cards" ? card(index, sample) : row(index, sample);
      node.isWaiting = !sample;
      view.nodes.set(index, node);
      $("layer").append(node);
    }
    node.style.top = `${Math.floor(index / view.perRow) * view.rowHeight - view.top + inset}px`;
    if (layout === "cards") { node.style.left = `${inset + (index % view.perRow) * view.cell}px`; node.style.width = `${view.cell}px`; }
    node.style.height = `${view.rowHeight}px`;
    node.classList.toggle("active", index === active && document.activeElement === area);
  }
  $("layer").style.top = `${area.scrollTop}px`;
  if (last > first) area.setAttribute("aria-activedescendant", `item-${active}`);
  clearTimeout(view.timer);
  view.timer = setTimeout(() => fetchRange(first, last), 30);
}

const sampleAt = (index) => { const chunk = chunks.get(Math.floor(index / CHUNK)); return Array.isArray(chunk) ? chunk[index % CHUNK] : undefined; };

async function fetchRange(first, last) {
  const mine = generation;
  for (let number = Math.floor(first / CHUNK); number * CHUNK < last; number++) {
    if (chunks.has(number)) continue;
    chunks.set(number, "asked");
    if (chunks.size > 400) chunks.delete(chunks.keys().next().value);
    try {
      const answer = await ask("api/samples", { split, where: where(), start: number * CHUNK, count: CHUNK });
      if (mine !== generation) return;
      if (answer.samples.length < CHUNK && !answer.is_complete) chunks.delete(number);
      else chunks.set(number, answer.samples);
      found(answer);
      for (const [index, sample] of answer.samples.entries()) if (view.nodes.get(number * CHUNK + index)?.isWaiting && sample) { render(); break; }
    } catch (error) { chunks.delete(number); complain(error); return; }
  }
}

function card(index, sample) {
  const node = make("div", { class: "card", role: "option", id: `item-${index}`, onclick: () => { active = index; openSample(sample?.position, index); } });
  const column = pictureColumn();
  if (!sample) return node.append(make("div", { class: "frame" })), node;
  const texts = (sample.cells ?? []).map((text, number) => ({ text, number, ...columns()[number] })).filter(({ text }) => text !== null);
  const label = texts.find(({ number }) => number === captionColumn())?.text ?? "";
  const more = texts.find(({ text, number, is_plain, kind }) => is_plain && kind === "text" && number !== captionColumn() && text !== label)?.text;
  if (sample.error) node.append(make("div", { class: "frame" }, make("span", { class: "text error" }, sample.error)));
  else if (column !== null) node.append(picture(sample.position, column));
  else node.append(make("div", { class: "frame" }, make("span", { class: "text" }, texts.map(({ name, text }) => `${name}: ${text}`).join("\n"))));
  node.append(make("div", { class: "caption" }, make("b", { title: label }, label), make("span", {}, count(sample.position))));
  if (more) node.append(make("div", { class: "caption" }, make("em", { title: more }, more)));
  return node;
}

const tracks = () => `72px ${columns().slice(0, 40).map((column) => (column.has_picture ? "minmax(44px, .4fr)" : "minmax(96px, 1fr)")).join(" ")}`;

function row(index, sample) {
  const node = make("div", { class: "row", role: "option", id: `item-${index}`, onclick: () => { active = index; openSample(sample?.position, index); } });
  node.style.gridTemplateColumns = tracks();
  if (!sample) return node;
  node.append(make("span", { class: "muted" }, count(sample.position)));
  if (sample.error) return node.append(make("span", { class: "error", title: sample.error }, sample.error)), node;
  sample.cells.forEach((text, number) => node.append(text === null ? picture(sample.position, number)
    : make("span", { class: columns()[number].kind === "number" && number !== classColumn() ? "number" : "", title: text }, text)));
  return node;
}

function head() {
  const names = columns().slice(0, 40).map((column, number) => make("span", { class: column.kind === "number" && number !== classColumn() ? "number" : "", title: `${column.name}: ${column.dtype}` }, column.name));
  $("head").replaceChildren(make("span"), ...names);
  $("head").style.gridTemplateColumns = tracks();
  $("head").hidden = layout !== "table" || !columns().length;
  const width = layout === "table" ? `${104 + columns().slice(0, 40).reduce((sum, column) => sum + (column.has_picture ? 60 : 112), 0)}px` : "";
  $("head").style.minWidth = $("spacer").style.minWidth = width && `max(100%, ${width})`;
}

function found(answer) {
  const changed = answer.n_found !== total || answer.is_complete !== isComplete;
  total = answer.n_found; isComplete = answer.is_complete; scanned = answer.n_scanned;
  const all = overview.splits[split].n_samples, [plus, more] = isComplete ? ["", ""] : ["+", `, searched ${percent(scanned, all)}`];
  $("status").textContent = total === all && isComplete ? `${count(all)} samples` : `${count(total)}${plus} of ${count(all)}${more}`;
  $("empty").hidden = total > 0 || !isComplete;
  $("empty").textContent = all ? "No sample fulfils all filters." : "This split has no samples.";
  if (changed) { measure(); render(); }
}

/** Show the samples from the first one, after a change of split, filter or layout. */
async function refresh() {
  const mine = ++generation;
  chunks = new Map(); active = 0; total = 0; isComplete = false;
  view.nodes.forEach((node) => node.remove()); view.nodes.clear();
  view.top = view.physical = $("viewport").scrollTop = 0;
  complain(overview.splits[split].error ? { message: overview.splits[split].error } : null);
  chips(); head(); measure(); showHistograms(mine);
  try {
    chunks.set(0, "asked");
    let answer = await ask("api/samples", { split, where: where(), start: 0, count: CHUNK });
    if (mine !== generation) return;
    chunks.set(0, answer.samples);
    found(answer); measure(); render();
    while (!answer.is_complete) {
      answer = await ask("api/samples", { split, where: where(), start: 0, count: 0 });
      if (mine !== generation) return;
      if (chunks.get(0).length < Math.min(CHUNK, answer.n_found)) { chunks.delete(0); fetchRange(0, 1); }
      found(answer);
    }
  } catch (error) { if (mine === generation) complain(error); }
}

// ---------------------------------------------------------------- filters

function chips() {
  const label = ({ column, values, low, high, contains }) => {
    const name = $("columns").querySelector(`[data-column="${column}"] .name`)?.textContent;
    if (values) return `${name}: ${values.map((value) => conditions.get(column).labels?.get(value) ?? value ?? "missing").join(", ")}`;
    const short = (bound) => (bound === undefined ? "…" : Number.isNaN(Number(bound)) ? bound : String(Number(Number(bound).toPrecision(5))));
    return contains !== undefined ? `${name}: “${contains}”` : `${name}: ${short(low)} to ${short(high)}`;
  };
  $("chips").replaceChildren(...[...conditions.values()].map((condition) => {
    const text = label(condition);
    return make("button", { class: "chip", title: `Remove the filter ${text}`, onclick: () => filter(condition.column, null) }, text);
  }));
}

function filter(column, condition) {
  if (condition) conditions.set(column, condition); else conditions.delete(column);
  refresh();
}

function toggleValue(column, bar) {
  const value = bar.where.values[0], old = conditions.get(column)?.values ?? [], labels = conditions.get(column)?.labels ?? new Map();
  const values = old.includes(value) ? old.filter((each) => each !== value) : [...old, value];
  const condition = { column, values };
  Object.defineProperty(condition, "labels", { value: labels.set(value, bar.label) });  // not sent
  filter(column, values.length ? condition : null);
}

function chooseRange(column, bars, chosen, extends_) {
  const old = conditions.get(column), here = bars[chosen].where;
  const same = old && old.low === here.low && old.high === here.high;
  const anchor = extends_ && old ? bars.findIndex((bar) => bar.where.low === old.low) : -1;
  const [first, last] = anchor < 0 ? [chosen, chosen] : [Math.min(anchor, chosen), Math.max(anchor, chosen)];
  const condition = { column, low: bars[first].where.low, high: bars[last].where.high };
  filter(column, same && !extends_ ? null : condition);
}

function panels() {
  $("columns").replaceChildren(...columns().map((column, number) => {
    if (!column.is_plain) return "";
    const open = number < OPEN_COLUMNS || number === classColumn();
    const body = make("div", { class: "note" }, "…");
    const panel = make("details", { class: "column", "data-column": number }, make("summary", {},
      make("span", { class: "name", title: column.name }, column.name), make("span", { class: "muted" }, column.dtype)), body);
    panel.open = open;
    panel.addEventListener("toggle", () => { if (panel.open && !panel.isFilled) showHistograms(generation); });
    return panel;
  }));
  $("facts").replaceChildren(...Object.entries(overview.facts).flatMap(([name, fact]) => [make("dt", {}, name), make("dd", {}, fact)]));
}

async function showHistograms(mine) {
  const open = [...$("columns").querySelectorAll("details[open]")], wanted = open.map((panel) => panel.dataset.column).join(",");
  for (let before = -1; wanted;) {
    let answer;
    try { answer = await ask("api/histograms", { split, where: where(), columns: wanted }); } catch (error) { complain(error); return; }
    if (mine !== generation) return;
    for (const panel of open) if (answer.columns[panel.dataset.column]) fillPanel(panel, answer);
    chips();
    if (answer.is_complete || answer.n_read === before) return;
    before = answer.n_read;
  }
}

function fillPanel(panel, answer) {
  const number = Number(panel.dataset.column), { kind, bars, n_distinct } = answer.columns[number];
  if (panel.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;  // being typed into
  const focused = [...panel.querySelectorAll("button")].indexOf(document.activeElement), at = panel.querySelector(".values")?.scrollTop;
  const parts = [panel.firstElementChild], old = conditions.get(number);
  const ranges = bars.filter((bar) => !bar.where.values), values = bars.filter((bar) => bar.where.values);
  if (kind === "texts") parts.push(bound(number, "contains", "contains"));
  if (ranges.length) {
    const most = Math.max(...ranges.map((bar) => bar.count)), group = make("div", { class: "ranges", role: "group", "aria-label": `${columns()[number].name}: arrow keys move` });
    ranges.forEach((bar, index) => group.append(barButton("range", bar, most, isWithin(bar, old), (event) => chooseRange(number, ranges, index, event.shiftKey))));
    const ends = [ranges[0].label.split(" – ")[0], ranges.at(-1).label.split(" – ").at(-1)];
    parts.push(oneStop(group, focused), make("div", { class: "ends muted" }, make("span", {}, ends[0]), make("span", {}, ends[1])));
    parts.push(make("div", { class: "bounds" }, bound(number, "low", "from"), bound(number, "high", "to")));
  }
  if (values.length) {
    const most = Math.max(...values.map((bar) => bar.count)), group = make("div", { class: "values", role: "group", "aria-label": `${columns()[number].name}: arrow keys move` });
    group.style.setProperty("--label", `${Math.min(13, Math.max(...values.map((bar) => (bar.label || "(empty)").length)) + 1)}ch`);
    values.forEach((bar) => group.append(barButton("value", bar, most, old?.values?.includes(bar.where.values[0]) ?? false, () => toggleValue(number, bar))));
    parts.push(oneStop(group, focused - ranges.length));
  }
  const notes = [];
  if (kind === "texts" || n_distinct > bars.length && kind === "values") notes.push(`${count(n_distinct)} different values`);
  if (answer.n_read < answer.n_samples) notes.push(`from ${count(answer.n_read)} of ${count(answer.n_samples)} samples`);
  if (notes.length) parts.push(make("p", { class: "note" }, notes.join(", ")));
  panel.replaceChildren(...parts);
  panel.isFilled = true;
  if (at) panel.querySelector(".values").scrollTop = at;
  if (focused >= 0) panel.querySelectorAll("button")[focused]?.focus();
}

/** Whether a bar is of a chosen range; its ends may have moved since, as more was read. */
function isWithin({ where: bar }, condition) {
  if (!condition || condition.values) return false;
  const isLess = (one, other) => (Number.isNaN(Number(one)) ? one < other : Number(one) < Number(other));  // times are texts
  return (bar.low === undefined || condition.high === undefined || isLess(bar.low, condition.high))
    && (bar.high === undefined || condition.low === undefined || isLess(condition.low, bar.high));
}

function barButton(kind, bar, most, pressed, onclick) {
  const all = make("i"), some = make("i"), edge = kind === "value" ? "width" : "height";
  some.hidden = !bar.counts[0];
  all.style[edge] = `${100 * bar.count / most}%`;
  some.style[edge] = `${100 * bar.counts[0] / most}%`;
  const caption = bar.counts[0] === bar.count ? count(bar.count) : `${count(bar.counts[0])} of ${count(bar.count)}`;
  const button = make("button", { class: kind, "aria-pressed": pressed, "aria-label": `${bar.label}: ${caption}`, title: `${bar.label}: ${caption}`, onclick });
  if (kind === "range") button.append(all, some);
  else button.append(make("span", { class: "label" }, bar.label || "(empty)"), make("span", { class: "track" }, all, some), make("span", { class: "number" }, count(bar.counts[0])));
  return button;
}

function bound(column, field, label) {
  const input = make("input", { type: "text", placeholder: label, "aria-label": `${columns()[column].name} ${label}`, maxlength: 200, autocomplete: "off", spellcheck: "false" });
  input.value = conditions.get(column)?.[field] ?? "";
  input.addEventListener("change", () => {
    const { low, high } = field === "contains" ? {} : conditions.get(column) ?? {};
    const text = input.value.trim(), condition = { column, low, high, closed: field === "high" || undefined, [field]: text || undefined };
    input.blur();
    filter(column, condition.low || condition.high || condition.contains ? condition : null);
  });
  return field === "contains" ? make("div", { class: "bounds" }, input) : input;
}

// ---------------------------------------------------------------- one sample

async function openSample(position, index = null, number = split) {
  if (position === undefined) return;
  if (number !== split) { chooseSplit(number); index = null; }
  shown = { position, index };
  let sample;
  try { sample = await ask("api/sample", { split, position }); } catch (error) { complain(error); return; }
  if (shown?.position !== position) return;
  const place = sample.where ? make("span", { title: sample.where }, sample.where) : "";
  $("heading").replaceChildren(`${overview.splits[split].name} · sample ${count(position)}`, place);
  const pictures = make("div", { class: "pictures" }), texts = make("dl", { class: "field" });
  if (sample.error) texts.append(make("dd", { class: "error" }, sample.error));
  for (const field of sample.fields) {
    const role = field.role && field.role !== field.name ? ` · ${field.role}` : "";
    if (field.has_picture) pictures.append(make("figure", {}, picture(position, field.column, "large"), make("figcaption", {}, `${field.name}${role} · ${(field.text ?? "").split("\n")[0]}`)));
    else texts.append(make("dt", {}, field.name + role), make("dd", { class: field.error ? "error" : (field.text ?? "").includes("\n") ? "code" : "" }, field.error ?? field.text));
  }
  $("fields").replaceChildren(...[pictures, texts].filter((part) => part.children.length));
  $("previous").disabled = index === null || index <= 0;
  $("next").disabled = index === null || index >= total - 1;
  if (!$("sample").open) $("sample").showModal();
  $("fields").scrollTop = 0;
}

async function step(by) {
  const index = (shown?.index ?? -1) + by;
  if (shown?.index === null || index < 0 || index >= total) return;
  active = index;
  scrollToItem(index); render();
  if (!sampleAt(index)) await fetchRange(index, index + 1);
  openSample(sampleAt(index)?.position, index);
}

// ---------------------------------------------------------------- splits side by side

async function showComparison() {
  const names = [...new Set(overview.splits.flatMap((each) => each.columns.filter((column) => column.is_plain).map((column) => column.name)))];
  const legend = make("div", { class: "legend" }, ...overview.splits.map((each, number) => make("span", {}, make("i", { class: `c${number % 6}` }), `${each.name}: ${count(each.n_samples)} samples`)));
  const board = make("div", { class: "board" });
  $("compare").replaceChildren(legend, board);
  if (!names.length) board.append("No column can be compared.");
  for (const name of names.slice(0, 60)) {
    const panel = make("section", { class: "panel" }, make("h3", {}, name));
    board.append(panel);
    for (let before = -1; ;) {
      let answer;
      try { answer = await ask("api/compare", { name }); } catch (error) { panel.append(make("p", { class: "error" }, error.message)); break; }
      panel.replaceChildren(panel.firstElementChild, ...compared(answer));
      const read = answer.n_read.reduce((sum, each) => sum + each, 0);
      if (answer.is_complete || read === before || $("compare").hidden) break;
      before = read;
    }
  }
}

function compared({ kind, bars, n_read, n_distinct }) {
  const share = (bar, number) => bar.counts[number] / Math.max(1, n_read[number]);
  const most = Math.max(1e-9, ...bars.flatMap((bar) => bar.counts.map((_, number) => share(bar, number))));
  const caption = (bar, number) => `${overview.splits[number].name}, ${bar.label}: ${count(bar.counts[number])}, ${(100 * share(bar, number)).toFixed(1)} %`;
  const filled = (bar, number, edge) => { const part = make("i", { class: `c${number % 6}`, title: caption(bar, number) }); part.style[edge] = `${100 * share(bar, number) / most}%`; return part; };
  const partial = n_read.some((read, number) => read && read < overview.splits[number].n_samples) ? [make("p", { class: "note" }, `from ${n_read.map(count).join(" and ")} samples`)] : [];
  if (kind === "texts") return [make("p", { class: "note" }, `${count(n_distinct)} different values`), ...partial];
  if (kind === "ranges") {
    const ranges = bars.filter((bar) => !bar.where.values);
    const rows = n_read.map((_, number) => make("div", { class: "ranges" }, ...ranges.map((bar) => make("div", { class: "range" }, filled(bar, number, "height")))));
    return [make("div", { class: "overlay" }, ...rows), make("div", { class: "ends muted" }, make("span", {}, ranges[0].label.split(" – ")[0]), make("span", {}, ranges.at(-1).label.split(" – ").at(-1))), ...partial];
  }
  const group = make("div", { class: "grouped" });
  for (const bar of bars) {
    const lines = n_read.map((_, number) => { const line = make("div", {}, filled(bar, number, "width"), `${(100 * share(bar, number)).toFixed(1)} %`); line.firstChild.style.width = `${78 * share(bar, number) / most}%`; return line; });
    group.append(make("span", { class: "label", title: bar.label }, bar.label || "(empty)"), make("div", { class: "lines" }, ...lines));
  }
  return [group, ...partial];
}

// ---------------------------------------------------------------- duplicates

async function showDuplicates(run = false) {
  const column = $("compared").value;
  let answer = await ask("api/duplicates", run ? { column, run: 1 } : { column }).catch(complain);
  while (answer?.state === "running" && !$("duplicates").hidden) {
    $("audited").textContent = `Reading ${count(answer.n_samples)} samples …`;
    await new Promise((resolve) => setTimeout(resolve, 300));
    answer = await ask("api/duplicates", { column }).catch(complain);
  }
  if (!answer || $("compared").value !== column) return;
  const command = `data-stack report ${overview.title} --duplicates`;
  $("audited").textContent = { none: `Reads all ${count(answer.n_samples)} samples once.`, failed: answer.error, done: answer.is_leaking ? "There is leakage." : "No sample is in two splits.",
    "too many": `${count(answer.n_samples)} samples are too many for this page; run ${command}` }[answer.state] ?? "";
  if (answer.state === "done" && overview.splits.length < 2) $("audited").textContent = "";
  const number = Object.fromEntries(overview.splits.map((each, index) => [each.name, index])), groups = [];
  for (const { first, second, n_distinct, n_in_first, n_in_second, positions } of answer.between ?? []) {
    const caption = n_distinct ? `${count(n_in_first)} samples of ${first} equal ${count(n_in_second)} of ${second}` : "None is in both.";
    groups.push(finding(`${first} and ${second}`, caption, positions, n_distinct, number[first], number[second]));
  }
  for (const { split: name, n_samples, n_repeats, positions } of answer.within ?? []) {
    groups.push(finding(`Within ${name}`, n_repeats ? `${count(n_repeats)} of ${count(n_samples)} equal an earlier one` : "No repeats.", positions, n_repeats, number[name], number[name]));
  }
  $("pairs").replaceChildren(...groups);
}

function finding(title, caption, positions, n_all, first, second) {
  const couples = positions.map(([one, other]) => make("div", { class: "couple" },
    ...[[one, first], [other, second]].map(([position, number]) => make("div", {}, tile(position, `${overview.splits[number].name}, sample ${count(position)}`, number), make("div", { class: "caption" }, count(position))))));
  const more = n_all > positions.length ? `; the first ${positions.length}:` : "";
  return make("section", { class: "finding" }, make("h3", {}, title), make("p", {}, caption + more), make("div", { class: "couples" }, ...couples));
}

// ---------------------------------------------------------------- the page

function chooseSplit(number) {
  split = number;
  conditions = new Map();
  layout = pictureColumn() === null ? "table" : "cards";
  $("splits").replaceChildren(...overview.splits.map((each, index) => make("button", { role: "tab", "aria-selected": index === split, onclick: () => { chooseView("samples"); chooseSplit(index); } },
    each.name, make("span", {}, count(each.n_samples)))));
  panels();
  chooseLayout(layout);
}

function chooseLayout(name) {
  layout = name;
  $("layout").textContent = layout === "cards" ? "Table" : "Pictures";
  $("layout").hidden = pictureColumn() === null;
  refresh();
}

function chooseView(name) {
  for (const button of $("views").children) {
    button.setAttribute("aria-selected", button.dataset.view === name);
    $(button.dataset.view).hidden = button.dataset.view !== name;
  }
  if (name === "compare") showComparison();
  if (name === "duplicates") showDuplicates();
}

function keys(event) {
  if ($("sample").open) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) { event.preventDefault(); step(by); }
    return;
  }
  if (event.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) { event.preventDefault(); $("search").focus(); return; }
  if (![document.body, $("viewport")].includes(document.activeElement) || !total || $("samples").hidden || event.ctrlKey || event.altKey || event.metaKey) return;
  const page = Math.max(1, Math.floor($("viewport").clientHeight / view.rowHeight) - 1) * view.perRow;
  const sideways = layout === "cards" ? 1 : 0;
  const by = { ArrowLeft: -sideways, ArrowRight: sideways, ArrowUp: -view.perRow, ArrowDown: view.perRow, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity }[event.key];
  if (by) { event.preventDefault(); active = Math.min(total - 1, Math.max(0, active + by)); $("viewport").focus({ preventScroll: true }); scrollToItem(active); render(); }
  if (event.key === "Enter" && sampleAt(active)) openSample(sampleAt(active).position, active);
}

/** Make buttons one stop of the Tab key, in which the arrow keys move; `at` is the one to begin with. */
function oneStop(group, at = 0) {
  const buttons = [...group.querySelectorAll("button")];
  const choose = (index) => buttons.forEach((button, each) => button.setAttribute("tabindex", each === index ? 0 : -1));
  choose(Math.max(0, at));
  group.addEventListener("focusin", (event) => choose(buttons.indexOf(event.target)));
  group.addEventListener("keydown", (event) => {
    const here = buttons.indexOf(document.activeElement), last = buttons.length - 1;
    const to = { ArrowLeft: here - 1, ArrowUp: here - 1, ArrowRight: here + 1, ArrowDown: here + 1, Home: 0, End: last }[event.key];
    if (to === undefined || here < 0) return;
    event.preventDefault();
    buttons[Math.min(last, Math.max(0, to))].focus();
  });
  return group;
}

async function start() {
  history.replaceState(null, "", location.pathname);  // the token does not stay in the address bar
  try { overview = await ask("api/overview"); } catch (error) { complain(error); return; }
  document.title = $("title").textContent = overview.title;
  $("compared").append(make("option", { value: -1 }, "whole samples"), ...(overview.splits[0]?.columns ?? []).map((column, number) => make("option", { value: number }, column.name)));
  const proper = (overview.splits[0]?.columns ?? []).findIndex((column) => column.role === "sample" || column.kind === "image");
  $("compared").value = proper;
  $("compared").addEventListener("change", () => showDuplicates());
  $("audit").addEventListener("submit", (event) => { event.preventDefault(); showDuplicates(true); });
  $("views").querySelector('[data-view="compare"]').hidden = overview.splits.length < 2;
  $("views").addEventListener("click", (event) => { if (event.target.dataset.view) chooseView(event.target.dataset.view); });
  $("layout").addEventListener("click", () => chooseLayout(layout === "cards" ? "table" : "cards"));
  $("toggle").addEventListener("click", () => $("toggle").setAttribute("aria-expanded", $("filters").classList.toggle("open")));
  $("search").addEventListener("input", () => { clearTimeout(view.typing); view.typing = setTimeout(() => { search = $("search").value.trim(); refresh(); }, 250); });
  $("viewport").addEventListener("scroll", scrolled, { passive: true });
  for (const name of ["focus", "blur"]) $("viewport").addEventListener(name, () => render());
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  $("close").addEventListener("click", () => $("sample").close());
  $("sample").addEventListener("click", (event) => { if (event.target === $("sample")) $("sample").close(); });
  $("sample").addEventListener("close", () => { shown = null; $("viewport").focus({ preventScroll: true }); });
  document.addEventListener("keydown", keys);
  new ResizeObserver(() => { if (overview && !$("samples").hidden) { measure(); view.nodes.forEach((node) => node.remove()); view.nodes.clear(); scrolled(); } }).observe($("viewport"));
  chooseSplit(0);
  if (document.activeElement === document.body) $("viewport").focus({ preventScroll: true });
}

start();
