// Draws the files with Bokeh: as boxes if few of them are visible, else as one image.
"use strict";

// The distinct bounds of a column in order. Its axis by rank has them at 0, 1, 2, …
function ranked(page, path) {
  const {lower, upper} = page.levels[0].bounds[path];
  return page.column[path].ranked ??= Float64Array.from(new Set([...lower, ...upper].filter(Number.isFinite))).sort();
}

// The rank of a key: a fraction between two bounds, and half a rank beyond the first or the last.
function rankOf(bounds, key) {
  let low = 0, high = bounds.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bounds[middle] < key) low = middle + 1; else high = middle;
  }
  if (bounds[low] === key) return low;
  if (low === 0 || low === bounds.length) return low - 0.5;
  return low - 1 + (key - bounds[low - 1]) / (bounds[low] - bounds[low - 1]);
}

// The places on a column's axis, from those of its keys: numbers as they are shown, times in milliseconds. Texts have
// odd ranks as keys, and stand at 0, 1, 2, …
function placing(page, path) {
  const column = page.column[path];
  if (page.byRank && column.kind !== "text") {
    const bounds = ranked(page, path);
    return (key) => rankOf(bounds, key);
  }
  if (column.kind === "text") return (key) => (key - 1) / 2;
  return (key) => key / column.scale;
}

function drawn(page, path) {
  // An unknown end is drawn at the edge of the known bounds. A file both of whose ends are unknown has no box.
  const {lower, upper} = page.levels[0].bounds[path], known = ranked(page, path);
  const at = placing(page, path), column = page.column[path];
  // The box of a single value is to be seen; neighbours among texts need not touch.
  const around = column.kind === "text" ? 0.4 : page.byRank ? 0.5 : column.discrete ? 0.5 / column.scale : 0;
  const place = (values, edge, aside) => Float64Array.from(values, (value, file) =>
    Number.isFinite(lower[file]) || Number.isFinite(upper[file]) ? at(Number.isFinite(value) ? value : edge) + aside : NaN);
  return {lower: place(lower, known[0], -around), upper: place(upper, known.at(-1), around)};
}

function fit(range, lower, upper) {
  const least = lower.reduce((a, b) => (b < a ? b : a), Infinity), greatest = upper.reduce((a, b) => (b > a ? b : a), -Infinity);
  const margin = (greatest - least || 1) * 0.02;
  const [start, end] = [least - margin, greatest + margin];
  range.setv({start, end, reset_start: start, reset_end: end});
}

// Labels of times show the hour; the first label also shows the day or the year below it, except for times of day.
function timeLabels(model, column) {
  const clock = ["seconds", "minsec", "minutes", "hourmin", "hours"], fine = ["microseconds", "milliseconds"];
  const each = (names, text) => Object.fromEntries(names.map((name) => [name, text]));
  const context = model("DatetimeTickFormatter",
    {...each([...fine, ...clock], "%Y-%m-%d"), days: "%Y", months: "", years: "", strip_leading_zeros: false});
  return {microseconds: "%H:%M:%S.%6N", milliseconds: "%H:%M:%S.%3N", ...each(["seconds", "minsec"], "%H:%M:%S"),
    ...each(["minutes", "hourmin", "hours"], "%H:%M"), months: "%b %Y",
    ...(column.kind === "time" ? {days: "%H:%M"} : {days: "%d %b", context, context_which: "start"})};
}

// Makes an axis show a column: its name as the label, and its values as times, numbers or texts.
function showColumn(axis, page, path) {
  const column = page.column[path], model = (name, values) => new (Bokeh.Models.get(name))(values ?? {});
  const named = page.byRank || column.kind === "text" || column.kind === "boolean", time = !named && column.kind !== "number";
  axis.axis_label = path;
  axis.ticker = time ? model("DatetimeTicker")
    : model("BasicTicker", {min_interval: named ? 1 : column.discrete ? 1 / column.scale : 0});
  axis.formatter = time ? model("DatetimeTickFormatter", timeLabels(model, column))
    : model("CustomJSTickFormatter", {code: `return axisLabel(window.zskipPage, ${JSON.stringify(path)}, tick);`});
}

// A label of an axis: short, so for texts without that with which all of the column begin.
function axisLabel(page, path, tick) {
  const column = page.column[path], isText = column.kind === "text";
  if (column.kind === "number" && !page.byRank) {
    const number = Number(tick.toPrecision(15)); // three times 0.1 is 0.30000000000000004
    const plain = String(number), power = number.toExponential().replace("+", "");
    return plain.length > 6 && power.length < plain.length ? power : plain;
  }
  if (column.kind === "boolean" && !page.byRank) return tick === 0 || tick === 1 ? shown(column, tick) : "";
  const every = isText ? column.texts : ranked(page, path);
  if (every[tick] === undefined) return "";
  if (!isText) return clipped(shown(column, every[tick]), 16);
  const [first, text, last] = [0, tick, every.length - 1].map((rank) => shown(column, 2 * rank + 1));
  let same = 0;
  while (same < first.length && first[same] === last[same]) same++;
  return clipped(same > 6 && every.length > 1 ? `…${text.slice(same)}` : text, 15);
}

// A browser takes some microseconds per box. More boxes than this are drawn as one image, whose cost is constant.
const MOST_BOXES = 4_000;
const SIDES = ["left", "right", "bottom", "top"];
const NO_BOXES = Object.fromEntries(SIDES.map((side) => [side, []]));
const NO_IMAGE = {image: [], x: [], y: [], dw: [], dh: []};

// A figure and its boxes, one per file: `show` sets the boxes, `request` draws the visible ones in the next frame.
class View {
  constructor(page, name) {
    const model = (suffix) => Bokeh.documents[0].get_model_by_name(name + suffix);
    this.page = page;
    this.figure = model("");
    this.files = model(":files");
    this.read = model(":read");
    this.chosen = model(":chosen");
    this.image = model(":image");
    this.Pixels = this.image.data.image[0].constructor; // Bokeh's own class of arrays with a shape
    this.boxes = NO_BOXES;
    this.onScreen = false;
    for (const range of [this.figure.x_range, this.figure.y_range])
      for (const end of ["start", "end"]) range.properties[end].change.connect(() => this.request());
    this.figure.properties.inner_width.change.connect(() => this.request());
    new IntersectionObserver((entries) => {
      this.onScreen = entries.at(-1).isIntersecting;
      this.request();
    }).observe(document.getElementById(`view:${name}`));
  }

  show(boxes) {
    this.boxes = boxes;
    fit(this.figure.x_range, boxes.left, boxes.right);
    fit(this.figure.y_range, boxes.bottom, boxes.top);
    this.request();
  }

  request() {
    if (this.waiting || !this.onScreen) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.figure.inner_width) this.draw(); else this.request(); // Bokeh has not laid it out yet
    });
  }

  draw() {
    this.figure.below[0].ticker.desired_num_ticks = Math.max(2, Math.min(6, Math.floor(this.figure.inner_width / 70)));
    const seen = this.inSight(), {kept, chosen} = this.page, some = (files) => Object.fromEntries(
      SIDES.map((side) => [side, Float64Array.from(files, (file) => this.boxes[side][file])]));
    const few = seen.length <= MOST_BOXES;
    this.files.data = few ? some(seen) : NO_BOXES;
    this.read.data = few ? some(seen.filter((file) => kept[file])) : NO_BOXES;
    this.image.data = few ? NO_IMAGE : this.drawnAsImage(seen, kept);
    if (this.chosen) this.chosen.data = chosen === undefined ? NO_BOXES : some([chosen]);
  }

  inSight() {
    const {left, right, bottom, top} = this.boxes, {x_range: x, y_range: y} = this.figure, seen = [];
    for (let file = 0; file < left.length; file++)
      if (right[file] >= x.start && left[file] <= x.end && top[file] >= y.start && bottom[file] <= y.end) seen.push(file);
    return seen;
  }

  drawnAsImage(seen, kept) {
    const {x_range: x, y_range: y, inner_width: width, inner_height: height} = this.figure;
    const all = this.coverage(seen, width, height);
    const read = this.coverage(seen.filter((file) => kept[file]), width, height);
    const pixels = new Uint32Array(width * height), {shades, lit} = this.page.colors;
    for (let pixel = 0; pixel < pixels.length; pixel++)
      pixels[pixel] = read[pixel] ? lit : shades[Math.min(all[pixel], shades.length - 1)];
    const image = new this.Pixels(pixels, [height, width]);
    return {image: [image], x: [x.start], y: [y.start], dw: [x.end - x.start], dh: [y.end - y.start]};
  }

  // The number of boxes that cover each pixel. A box adds one at two of its corners and subtracts one at the others;
  // a pixel's number is the sum over all pixels before it. (F. C. Crow, Summed-area tables for texture mapping, 1984.)
  coverage(files, width, height) {
    const {left, right, bottom, top} = this.boxes, {x_range: x, y_range: y} = this.figure;
    const across = width / (x.end - x.start), up = height / (y.end - y.start), stride = width + 1;
    const pixel = (distance, scale, size) => Math.max(0, Math.min(size - 1, Math.floor(distance * scale)));
    const sums = new Int32Array(stride * (height + 1));
    for (const file of files) {
      const first = pixel(left[file] - x.start, across, width), last = pixel(right[file] - x.start, across, width) + 1;
      const low = stride * pixel(bottom[file] - y.start, up, height);
      const high = stride * (pixel(top[file] - y.start, up, height) + 1);
      sums[low + first]++; sums[low + last]--; sums[high + first]--; sums[high + last]++;
    }
    const covered = new Int32Array(width * height);
    for (let row = 0; row < height; row++) {
      for (let column = 0, before = 0; column < width; column++) {
        before += sums[stride * row + column];
        covered[width * row + column] = before + (row ? covered[width * (row - 1) + column] : 0);
      }
    }
    return covered;
  }

  // The file at a point of the figure: that of the smallest box around it, else of the nearest box within some pixels.
  fileAt(across, up) {
    const {left, right, bottom, top} = this.boxes, {x_range: x, y_range: y, inner_width, inner_height} = this.figure;
    const width = (x.end - x.start) / inner_width, height = (y.end - y.start) / inner_height;
    let found, least = Infinity;
    for (let file = 0; file < left.length; file++) {
      const aside = Math.max(left[file] - across, across - right[file], 0) / width;
      const above = Math.max(bottom[file] - up, up - top[file], 0) / height;
      const away = Math.hypot(aside, above), area = (right[file] - left[file]) * (top[file] - bottom[file]);
      const rank = away ? Number.MAX_VALUE * (away / 10) : area;
      if (away <= 3 && rank < least) { found = file; least = rank; }
    }
    return found;
  }
}

// The colors of an image's pixels: one for files that are read, and for others a shade by the number of boxes.
function colorsOf(read, file, alpha) {
  const pixel = (color, opacity) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
    return (Math.round(255 * opacity) * 2 ** 24 + (blue << 16) + (green << 8) + red) >>> 0;
  };
  return {lit: pixel(read, 0.9), shades: Array.from({length: 20}, (_, count) => pixel(file, 1 - (1 - alpha) ** count))};
}
