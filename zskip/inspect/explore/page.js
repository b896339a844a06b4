// The page: reads the exported data, draws with Bokeh, and prunes again whenever a constant changes.
"use strict";

const $ = (id) => document.getElementById(id);

function unpacked(id) {
  const packed = Uint8Array.from(atob($(id).textContent.trim()), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate")));
}

function run(text) {
  const script = document.createElement("script");
  script.textContent = text;
  document.body.append(script);
}

// The values of an array. The block stores the first byte of every value, then the second, and so on.
function valuesOf(block, place, kind) {
  const width = kind.BYTES_PER_ELEMENT, planes = new Uint8Array(block, place.at, width * place.length);
  const bytes = new Uint8Array(planes.length);
  for (let byte = 0, from = 0; byte < width; byte++)
    for (let to = byte; to < bytes.length; to += width) bytes[to] = planes[from++];
  return new kind(bytes.buffer);
}

async function loaded() {
  run(await unpacked("libraries").text());
  run($("plots").textContent);
  const page = JSON.parse($("facts").textContent);
  const block = await unpacked("arrays").arrayBuffer();
  const kinds = {uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int64: BigInt64Array, float64: Float64Array};
  page.array = (place) => {
    const raw = valuesOf(block, place, kinds[place.type]);
    return place.base ? Float64Array.from(raw, (value) => value + place.base) : raw;
  };
  page.column = Object.fromEntries(page.columns.map((column) => [column.path, column]));
  for (const level of page.levels) {
    level.bounds = Object.fromEntries(Object.entries(level.places).map(([path, places]) => [
      path, Object.fromEntries(Object.entries(places).map(([name, place]) => [name, page.array(place)]))]));
  }
  for (const part of page.conjuncts) part.tree = part.part === null ? page.tree : page.tree.parts[part.part];
  page.rows = page.array(page.row_counts);
  page.bytes = page.array(page.sizes);
  if (page.levels.length > 1) page.fileOfGroup = page.array(page.group_files);
  return page;
}

// --- values as people read and write them ---

const LAST_DAY = 8.64e15; // milliseconds to the last day that a Date holds

// The number of decimals of a second in a timestamp or time of day: 0, 3 or 6.
function decimalsOf(column) {
  return Math.round(Math.log10(1000 * column.scale));
}

function shown(column, key) {
  if (!Number.isFinite(key)) return "unknown";
  if (column.kind === "boolean") return String(key !== 0);
  if (column.kind === "text") {
    const bytes = Uint8Array.from(column.texts[(key - 1) / 2] ?? "", (letter) => letter.charCodeAt(0));
    return new TextDecoder().decode(bytes);
  }
  const number = key / column.scale;
  if (column.kind === "number" || Math.abs(number) > LAST_DAY) return String(column.exact ? number : Number(number.toPrecision(15)));
  if (column.kind === "date") return new Date(key / column.scale).toISOString().replace(/T.*/, "");
  const decimals = decimalsOf(column), second = Math.floor(key / 10 ** decimals);
  const [day, time] = new Date(1000 * second).toISOString().replace(/\.\d+Z$/, "").split("T");
  const rest = String(key - second * 10 ** decimals).padStart(decimals, "0").replace(/0+$/, "");
  return (column.kind === "time" ? time : `${day} ${time}`) + (rest ? `.${rest}` : "");
}

function clipped(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// The range of a file or row group, and whether it may hold NULL and NaN.
function rangeOf(column, {lower, upper, flags}, unit) {
  const others = [...(flags[unit] & 2 ? ["NULL"] : []), ...(flags[unit] & 4 ? ["NaN"] : [])];
  if (!(flags[unit] & 1)) return others.length ? `only ${others.join(" and ")}` : "no values";
  const ends = [lower[unit], upper[unit]];
  const range = ends.some(Number.isFinite) ? ends.map((key) => clipped(shown(column, key), 60)).join(" to ") : "range unknown";
  const rounded = ends.some(Number.isFinite) && !column.exact && column.kind !== "text" ? "about " : "";
  return rounded + range + others.map((other) => `, may hold ${other}`).join("");
}

// The key of a typed constant. A constant that the column cannot hold exactly is refused, not rounded.
function keyOf(column, typed) {
  // The page shows times with a zone in UTC; a reader may type another offset.
  const zone = column.zoned ? /^(.*\d:\d\d(?:\.\d*)?)\s*(?:Z|UTC|([+-]\d\d):?(\d\d)?)$/i.exec(typed.trim()) : null;
  const minutes = zone && zone[2] ? 60 * Number(zone[2]) + Number(`${zone[2][0]}${zone[3] ?? 0}`) : 0;
  const text = zone ? zone[1] : typed.trim(), [, whole, fraction] = /^(.*?)(?:\.(\d*?)0*)?$/.exec(text);
  if (column.kind === "boolean") {
    if (!/^(true|false)$/i.test(text)) throw new Error(`“${text}” is neither true nor false`);
    return Number(text.toLowerCase() === "true");
  }
  if (column.kind === "number") {
    // Number() also accepts 0x10 and 0b1, which are not valid SQL.
    const number = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) * column.scale : NaN;
    if (!Number.isFinite(number)) throw new Error(`“${text}” is not a number`);
    if (!column.discrete) return number;
    const key = Math.round(number);
    if (Math.abs(key) > Number.MAX_SAFE_INTEGER) throw new Error(`${text} is beyond the numbers that this page compares`);
    if (Math.abs(number - key) > 1e-6 || (fraction ?? "").length > Math.log10(column.scale) + 1e-9) {
      const most = Math.round(Math.log10(column.scale));
      throw new Error(most ? `the column has ${most} decimals` : `“${text}” is not a whole number`);
    }
    return key;
  }
  const [day, time] = column.kind === "time" ? ["1970-01-01", whole] : whole.split(/[ T]/, 2);
  const at = Date.parse(`${day}T${time ?? "00:00:00"}Z`);
  // A Date converts the 30th of February to the 1st of March.
  if (!(Math.abs(at) <= LAST_DAY) || !new Date(at).toISOString().startsWith(`${day}T`) || (column.kind === "date" && time)) {
    const example = {date: "2024-01-31", timestamp: "2024-01-31 12:00:00", time: "12:00:00"}[column.kind];
    throw new Error(`“${text}” is not a ${column.kind} such as ${example}`);
  }
  if (column.kind === "date") return Math.round(at * column.scale);
  const decimals = decimalsOf(column);
  if ((fraction ?? "").length > decimals) throw new Error(`the column has ${decimals} decimals of a second`);
  return Math.round((at - 60_000 * minutes) * column.scale) + Number((fraction ?? "").padEnd(decimals, "0"));
}

function quantity(number, unit) {
  return `${number.toLocaleString("en")} ${unit}${number === 1 ? "" : "s"}`;
}

function percent(part, whole) {
  return whole ? `${(100 * part / whole).toFixed(1)} %` : "–";
}

function cell(row, text, tag = "td") {
  const element = document.createElement(tag);
  element.textContent = text;
  row.append(element);
  return element;
}

function start(page) {
  const documents = Bokeh.documents[0];
  const model = (name) => documents.get_model_by_name(name);
  const files = page.levels[0].units;
  const paths = page.drawn;
  const picture = new View(page, "picture"), strips = paths.map((path) => new View(page, `strip:${path}`));
  page.colors = colorsOf(page.colors.read, page.colors.file, page.colors.alpha);
  for (const [id, wanted] of [["across", 0], ["up", Math.min(1, paths.length - 1)]]) {
    for (const path of paths) $(id).add(new Option(path, path));
    $(id).value = paths[wanted];
    $(id).onchange = () => { place(); };
  }
  $("by-rank").onchange = () => {
    page.byRank = $("by-rank").checked;
    place();
    drawStrips();
  };

  function place() {
    const across = drawn(page, $("across").value), up = drawn(page, $("up").value);
    showColumn(picture.figure.below[0], page, $("across").value);
    showColumn(picture.figure.left[0], page, $("up").value);
    const boxless = across.lower.filter((left, file) => Number.isNaN(left + up.lower[file])).length;
    $("boxless").hidden = !boxless;
    $("boxless").textContent = `${quantity(boxless, "file")} without known values in these two columns `
      + `${boxless === 1 ? "has" : "have"} no box.`;
    picture.show({left: across.lower, right: across.upper, bottom: up.lower, top: up.upper});
    mark();
  }

  // The positions of the predicate's constants on the two axes.
  function mark() {
    const lines = {across: [], up: []};
    for (const [id, path] of [["across", $("across").value], ["up", $("up").value]]) {
      const at = placing(page, path);
      for (const constant of page.editable) if (constant.path === path) lines[id].push(at(constant.constant.place));
    }
    model("across-constants").data = {at: Float64Array.from(lines.across)};
    model("up-constants").data = {at: Float64Array.from(lines.up)};
  }

  function drawStrips() {
    const number = Float64Array.from({length: files}, (_, file) => file), next = number.map((file) => file + 0.9);
    paths.forEach((path, place) => {
      const own = drawn(page, path);
      showColumn(strips[place].figure.below[0], page, path);
      strips[place].show({left: own.lower, right: own.upper, bottom: number, top: next});
    });
  }

  function prove() {
    const kept = page.tree ? survivors(page.tree, page) : new Uint8Array(files).fill(1);
    page.kept = kept;
    let count = 0, rows = 0, all = 0, bytes = 0, allBytes = 0;
    for (let file = 0; file < files; file++) {
      all += page.rows[file]; allBytes += page.bytes[file];
      if (kept[file]) { count++; rows += page.rows[file]; bytes += page.bytes[file]; }
    }
    for (const view of [picture, ...strips]) view.request();
    $("result").textContent = `${count.toLocaleString("en")} of ${quantity(files, "file")} ${count === 1 ? "is" : "are"} read, `
      + `${percent(rows, all)} of the rows, ${percent(bytes, allBytes)} of the bytes`;
    const body = $("conditions");
    body.replaceChildren();
    for (const part of page.conjuncts) {
      const masks = masksOf(part.tree, 0, page), row = document.createElement("tr");
      let skipped = 0, whole = 0;
      for (const mask of masks) { skipped += !(mask & TRUE); whole += mask === TRUE; }
      cell(row, part.note ? `${part.text} (${part.note})` : part.text);
      cell(row, skipped.toLocaleString("en"));
      cell(row, percent(skipped, files));
      cell(row, whole.toLocaleString("en"));
      body.append(row);
    }
    document.body.dataset.kept = String(count);
    if (page.chosen !== undefined) tell(page.chosen);
  }

  // Why one file is read or skipped.
  function tell(file) {
    page.chosen = file;
    $("number").value = file;
    picture.request();
    const element = $("file");
    element.replaceChildren();
    const title = document.createElement("h3");
    title.textContent = `${page.paths ? page.paths[file] : `file ${file}`}: ${page.kept[file] ? "read" : "skipped"}, `
      + quantity(page.rows[file], "row");
    element.append(title);
    const table = document.createElement("table");
    for (const part of page.conjuncts) {
      const mask = masksOf(part.tree, 0, page)[file], row = document.createElement("tr");
      cell(row, part.text);
      cell(row, mask === TRUE ? "every row matches" : mask & TRUE ? "some rows may match" : "no row can match");
      table.append(row);
    }
    for (const column of page.columns) {
      const row = document.createElement("tr");
      cell(row, column.path);
      cell(row, rangeOf(column, page.levels[0].bounds[column.path], file));
      table.append(row);
    }
    element.append(table);
    if (page.levels.length > 1) {
      const groups = page.tree ? masksOf(page.tree, 1, page) : null;
      const list = document.createElement("ol");
      list.start = 0;
      for (let group = 0; group < page.fileOfGroup.length; group++) {
        if (page.fileOfGroup[group] !== file) continue;
        const item = document.createElement("li");
        const alive = page.kept[file] && (!groups || groups[group] & TRUE);
        item.textContent = `row group ${alive ? "read" : "skipped"}: ` + page.columns.map((column) =>
          `${column.path} ${rangeOf(column, page.levels[1].bounds[column.path], group)}`).join("; ");
        list.append(item);
      }
      element.append(list);
    }
  }

  // A field for each constant, and a slider if the column's values have distances.
  function fields() {
    for (const one of page.editable) {
      const column = page.column[one.path], constant = one.constant, row = document.createElement("div");
      const label = document.createElement("label"), field = document.createElement("input");
      const wrong = document.createElement("span");
      wrong.className = "wrong";
      wrong.setAttribute("role", "alert");
      label.textContent = `${one.path} ${one.op} `;
      field.value = column.kind === "text" ? constant.text : shown(column, constant.key);
      field.name = `constant${one.number}`;
      one.first = one.now = field.value;
      label.append(field);
      row.append(label);
      let slider = null;
      const changed = (text) => {
        let key;
        try {
          key = column.kind === "text" ? null : keyOf(column, text);
        } catch (error) {
          field.setCustomValidity(error.message);
          wrong.textContent = `${error.message}; the plan still has ${shown(column, constant.key)}`;
          return;
        }
        field.setCustomValidity("");
        wrong.textContent = "";
        if (column.kind === "text") constant.text = text; else constant.key = key;
        one.now = column.kind === "text" ? text : shown(column, key);
        const changes = page.editable.filter((each) => each.now !== each.first);
        $("changed").textContent = changes.length
          ? `but with ${changes.map((each) => `${each.path} ${each.op} ${each.now}`).join(", ")}` : "";
        prove();
        mark();
      };
      if (column.kind !== "text" && column.kind !== "boolean" && paths.includes(one.path)) {
        const known = ranked(page, one.path);
        slider = document.createElement("input");
        slider.type = "range";
        slider.setAttribute("aria-label", label.textContent);
        slider.min = known[0];
        slider.max = known.at(-1);
        slider.step = column.discrete ? 1 : "any";
        slider.value = constant.key;
        slider.oninput = () => {
          field.value = shown(column, column.discrete ? Math.round(Number(slider.value)) : Number(slider.value));
          changed(field.value);
        };
        row.append(slider);
      }
      field.onchange = () => {
        changed(field.value);
        if (slider && !field.validationMessage) slider.value = constant.key;
      };
      row.append(wrong);
      $("constants").append(row);
    }
  }

  page.editable = [];
  const NEGATED = {"=": "<>", "<": ">=", "<=": ">", ">": "<=", ">=": "<", in: "not in"};
  const gather = (node, negated) => {
    const shown = (op) => negated ? NEGATED[op] : op;
    if (node.is === "compare") page.editable.push({path: node.column, op: shown(node.op), constant: node.constant});
    if (node.is === "in") for (const constant of node.constants) page.editable.push({path: node.column, op: shown("in"), constant});
    for (const part of node.parts ?? (node.part ? [node.part] : [])) gather(part, negated !== (node.is === "not"));
  };
  if (page.tree) gather(page.tree, false);
  page.editable.forEach((one, number) => { one.number = number; });
  window.zskipPage = page;
  fields();
  prove();
  drawStrips();
  place();
  const ink = () => {
    const color = getComputedStyle(document.body).color;
    for (const each of picture.figure.renderers) if (each.name === "mark") each.glyph.line_color = color;
    for (const view of [picture, ...strips]) view.figure.change.emit();
  };
  ink();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ink);
  window.zskipTap = (across, up) => {
    const file = picture.fileAt(across, up);
    if (file !== undefined) tell(file);
  };
  $("number").max = files - 1;
  $("number").onchange = () => { if ($("number").checkValidity() && $("number").value) tell(Number($("number").value)); };
  // The reader sees at once why a file is read; without one, why a file is skipped.
  if (files) tell(Math.max(0, page.kept.indexOf(1)));
  for (const one of page.workload) {
    const row = document.createElement("tr");
    cell(row, one.text);
    cell(row, one.files.toLocaleString("en"));
    cell(row, percent(one.files, files));
    cell(row, percent(one.rows, page.rows.reduce((a, b) => a + b, 0)));
    cell(row, percent(one.bytes, page.bytes.reduce((a, b) => a + b, 0)));
    $("workload").append(row);
  }
  const name = (id, paths, sentence) => {
    $(id).hidden = !paths.length;
    $(id).textContent = sentence(paths.slice(0, 20).join(", ") + (paths.length > 20 ? ", …" : ""));
  };
  name("undrawn", page.undrawn, (some) => `Not drawn: ${some}. Choose the columns by columns=, or in a shell by --columns.`);
  name("left-out", page.left_out, (some) => `Left out, since the page would exceed 5 MB: ${some}.`);
  name("without-ranges", page.without_ranges, (some) => `${quantity(page.without_ranges.length, "column")} `
    + `${page.without_ranges.length === 1 ? "has no ranges and is" : "have no ranges and are"} not drawn: ${some}.`);
  $("conditions-section").hidden = !page.conjuncts.length;
  $("workload-section").hidden = !page.workload.length;
  for (const one of page.alternatives) {
    const row = document.createElement("tr");
    cell(row, one.layout, one.today ? "th" : "td");
    cell(row, one.by.join(", "));
    cell(row, one.files.toLocaleString("en"));
    for (const share of [one.share_of_files, one.rows, one.bytes]) cell(row, percent(share, 1));
    $("alternatives").append(row);
  }
  $("alternatives-section").hidden = !page.alternatives.length;
  window.zskipTell = tell;
  document.body.dataset.ready = "yes";
}

function whenDrawn() {
  return new Promise((then) => {
    const look = () => { if (window.Bokeh && Bokeh.documents.length) then(); else setTimeout(look, 20); };
    look();
  });
}

loaded().then(async (page) => { await whenDrawn(); start(page); }).catch((error) => {
  document.body.dataset.ready = "failed";
  $("result").textContent = String(error.stack ?? error);
});
