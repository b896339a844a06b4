// The outcomes that a predicate can have in each unit, proved from the units' ranges by the planner's own rules.
//
// A mask holds the possible outcomes for a unit's rows: TRUE 1, FALSE 2, NULL 4, and 8 if a row may raise an error.
// All conditions on one column are evaluated together, on the pieces into which their constants cut the values:
//
//     x > 5 AND x <> 8      pieces   …5)  5  (5…8)  8  (8…      a unit reaches some of them, and may hold NULL or NaN
"use strict";

const TRUE = 1, FALSE = 2, NULL = 4, FAIL = 8;

function conjunction(masks) {
  // NULL needs a part that is NULL and no part that is FALSE.
  let all = TRUE, any = 0, notFalse = true;
  for (const mask of masks) {
    all &= mask;
    any |= mask;
    notFalse = notFalse && (mask & (TRUE | NULL)) !== 0;
  }
  return (all & TRUE) | (any & (FALSE | FAIL)) | (notFalse ? any & NULL : 0);
}

function negation(mask) {
  return ((mask & TRUE) << 1) | ((mask & FALSE) >> 1) | (mask & (NULL | FAIL));
}

function tested(mask, outcome) {
  const wanted = outcome === null ? NULL : outcome ? TRUE : FALSE;
  return ((mask & wanted) ? TRUE : 0) | ((mask & (TRUE | FALSE | NULL) & ~wanted) ? FALSE : 0) | (mask & FAIL);
}

// --- one column: the outcome of a tree of conditions at one position among its constants ---

const OF_NULL = "null", OF_NAN = "nan";

function comparison(op, value, constant) {
  // NaN sorts above every number and equals no constant here.
  if (value === OF_NAN) return op === ">" || op === ">=" ? TRUE : FALSE;
  const holds = op === "<" ? value < constant : op === "<=" ? value <= constant
    : op === ">" ? value > constant : op === ">=" ? value >= constant : value === constant;
  return holds ? TRUE : FALSE;
}

function outcomeAt(node, value) {
  switch (node.is) {
    case "and": return conjunction(node.parts.map((part) => outcomeAt(part, value)));
    case "or": return negation(conjunction(node.parts.map((part) => negation(outcomeAt(part, value)))));
    case "not": return negation(outcomeAt(node.part, value));
    case "is": return tested(outcomeAt(node.part, value), node.outcome);
    case "null": return value === OF_NULL ? TRUE : FALSE;
    case "compare": return value === OF_NULL ? NULL : comparison(node.op, value, node.constant.place);
    case "in": {
      if (value === OF_NULL) return NULL;
      const among = value !== OF_NAN && node.constants.some((constant) => constant.place === value);
      return among ? TRUE : node.or_null ? NULL : FALSE;
    }
  }
  throw new Error(`no single column: ${node.is}`);
}

function constantsOf(node) {
  switch (node.is) {
    case "and": case "or": return node.parts.flatMap(constantsOf);
    case "not": case "is": return constantsOf(node.part);
    case "compare": return [node.constant];
    case "in": return node.constants;
  }
  return [];
}

function columnsOf(node) {
  switch (node.is) {
    case "and": case "or": return new Set(node.parts.flatMap((part) => [...columnsOf(part)]));
    case "not": case "is": return columnsOf(node.part);
    case "fixed": return new Set(["", "fixed"]);
  }
  return new Set([node.column]);
}

function bytesOf(text) {
  let bytes = "";
  for (const byte of new TextEncoder().encode(text)) bytes += String.fromCharCode(byte);
  return bytes;
}

// The positions of a column's constants among its bounds. Bounds of texts have odd positions; a constant between two of
// them gets a position in between, by the order of bytes.
function placeConstants(constants, column) {
  if (column.kind !== "text") {
    for (const constant of constants) constant.place = constant.key;
    return;
  }
  const between = new Map();
  for (const constant of constants) {
    const bytes = bytesOf(constant.text);
    let low = 0, high = column.texts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (column.texts[middle] < bytes) low = middle + 1; else high = middle;
    }
    if (column.texts[low] === bytes) {
      constant.place = 2 * low + 1;
    } else {
      if (!between.has(low)) between.set(low, new Set());
      between.get(low).add(bytes);
      constant.place = [low, bytes];
    }
  }
  for (const constant of constants) {
    if (!Array.isArray(constant.place)) continue;
    const [low, bytes] = constant.place;
    const others = [...between.get(low)].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
    constant.place = 2 * low - 0.5 + (others.indexOf(bytes) + 1) / (others.length + 1);
  }
}

function maskOfColumn(node, column, bounds) {
  const constants = constantsOf(node);
  placeConstants(constants, column);
  const cuts = [...new Set(constants.map((constant) => constant.place))].sort((a, b) => a - b);
  const pieces = []; // [above, below, outcome]: the values between, or one value where both are equal
  for (let i = 0; i <= cuts.length; i++) {
    const above = i ? cuts[i - 1] : -Infinity, below = i < cuts.length ? cuts[i] : Infinity;
    // A step of 1 beside 1e300 would not leave it, nor would the sum of two such be finite.
    const inside = i && i < cuts.length ? above / 2 + below / 2 : i ? Infinity : -Infinity;
    if (!column.discrete || below - above > 1) pieces.push([above, below, outcomeAt(node, inside)]);
    if (i < cuts.length) pieces.push([below, below, outcomeAt(node, below)]);
  }
  const ofNull = outcomeAt(node, OF_NULL), ofNan = outcomeAt(node, OF_NAN);
  const {lower, upper, flags} = bounds;
  // No text is less than the empty one.
  const empty = column.kind === "text" ? constants.find((constant) => constant.text === "") : undefined;
  const [least, greatest] = column.limits ?? [empty ? empty.place : -Infinity, Infinity];
  const masks = new Uint8Array(lower.length);
  for (let unit = 0; unit < masks.length; unit++) {
    let mask = 0;
    if (flags[unit] & 1) {
      const low = Math.max(lower[unit], least), high = Math.min(upper[unit], greatest);
      for (const [above, below, outcome] of pieces) {
        if (above === below) {
          if (low <= above && above <= high) mask |= outcome;
        } else if (column.discrete ? Math.max(low, above + 1) <= Math.min(high, below - 1)
                                   : low < below && high > above) {
          mask |= outcome;
        }
      }
    }
    if (flags[unit] & 2) mask |= ofNull;
    if (flags[unit] & 4) mask |= ofNan;
    masks[unit] = mask;
  }
  return masks;
}

// The mask of every unit at a level: 0 files, 1 row groups.
function masksOf(node, level, page) {
  const columns = columnsOf(node);
  if (columns.size === 1) {
    const [path] = columns;
    return maskOfColumn(node, page.column[path], page.levels[level].bounds[path]);
  }
  const units = page.levels[level].units, masks = new Uint8Array(units);
  switch (node.is) {
    case "fixed": return page.array(node.masks[level]);
    case "not": case "is": {
      const part = masksOf(node.part, level, page);
      for (let unit = 0; unit < units; unit++) {
        masks[unit] = node.is === "not" ? negation(part[unit]) : tested(part[unit], node.outcome);
      }
      return masks;
    }
  }
  // AND and OR: the parts that read the same single column are evaluated together
  const groups = new Map();
  node.parts.forEach((part, number) => {
    const own = columnsOf(part);
    const key = own.size === 1 ? [...own][0] : number;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(part);
  });
  const parts = [...groups.values()].map((some) => masksOf(
    some.length === 1 ? some[0] : {is: node.is, parts: some}, level, page));
  const one = new Array(parts.length);
  for (let unit = 0; unit < units; unit++) {
    for (let i = 0; i < parts.length; i++) one[i] = node.is === "and" ? parts[i][unit] : negation(parts[i][unit]);
    masks[unit] = node.is === "and" ? conjunction(one) : negation(conjunction(one));
  }
  return masks;
}

// Which files survive: those that may match. If a file does not match as a whole, one of its row groups must match too.
function survivors(node, page) {
  const files = masksOf(node, 0, page), kept = new Uint8Array(files.length);
  for (let file = 0; file < kept.length; file++) kept[file] = files[file] & TRUE;
  if (page.levels.length > 1 && page.levels[1].units) {
    const groups = masksOf(node, 1, page), some = new Uint8Array(kept.length), fileOf = page.fileOfGroup;
    for (let group = 0; group < groups.length; group++) if (groups[group] & TRUE) some[fileOf[group]] = 1;
    for (let file = 0; file < kept.length; file++) if (files[file] !== TRUE && !some[file]) kept[file] = 0;
  }
  return kept;
}
