"""Explain why a plan skips files: the facts as plain values, and as text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import InvalidOption, UnreadableFile, amount, nearest
from zskip.language import Predicate
from zskip.plan.survivors import Share, Survivors
from zskip.pruning import Outcomes, outcomes, reasons
from zskip.stats import ColumnStatistics, FileStatistics, Statistics
from zskip.tablelog.freshness import dropped_files, dropped_text
from zskip.tablelog.sketch_evidence import sketches_of

_SHOWN_PATHS = 5
_SHOWN_GROUPS = 20
_ANY_ROW = Statistics(pa.array([1]), {})
"""A row of which nothing is known."""


def facts(survivors: Survivors, file: str | None = None) -> Mapping[str, Any]:
    """The content of `explain` as plain values. Raises `UnreadableFile` for a file that the table lacks."""
    return _facts_of_plan(survivors) if file is None else _facts_of_file(survivors, file)


def explain(survivors: Survivors, file: str | None = None) -> str:
    """The facts as text: about the whole plan, or about one file, with its ranges."""
    found = facts(survivors, file)
    return _text_of_plan(found) if file is None else _text_of_file(found)


# --- the whole plan ---


def _facts_of_plan(survivors: Survivors) -> dict[str, Any]:
    skipped = survivors.skipped
    predicate = survivors.predicate
    found: dict[str, Any] = {
        "table": survivors.index.storage.uri,
        "version": survivors.index.version,
        "predicate": None if predicate is None else predicate.text,
        "values": None if predicate is None else _with_values(predicate),
        "dialect": None if predicate is None else predicate.dialect.name,
        "timezone": None if predicate is None else predicate.dialect.timezone,
        "skipped": {name: _share(getattr(skipped, name)) for name in skipped._fields},
        "files_without_residual": int(survivors.all_match.sum()),
        "conjuncts": [] if predicate is None else _conjuncts(survivors, predicate),
    }
    found["unreadable_sketches"] = {
        f"{name.kind} of {name.column}": why for name, why in sketches_of(survivors.index).unreadable.items()
    }
    index = survivors.index
    found["dropped"] = [] if index.source else dropped_files(index.storage, index.snapshot).path.to_pylist()
    if survivors.changes is not None:
        found["counted_files"] = survivors.counted_files
        differs = survivors.changes
        paths = {"new": differs.added.path, "changed": differs.changed.path, "gone": differs.removed}
        found["changes"] = {name: each.to_pylist() for name, each in paths.items()}
    return found


def _conjuncts(survivors: Survivors, predicate: Predicate) -> list[dict[str, Any]]:
    index = survivors.index
    columns = sorted(predicate.columns)
    files = index.files(None, columns)
    sketches = sketches_of(index)
    by_file = reasons(predicate, files.statistics, sketches.evidence(files.numbers, columns))
    by_group = by_file
    if index.has_row_groups:
        groups = index.row_groups(files.numbers, columns)
        by_group = reasons(predicate, groups.statistics, sketches.evidence(groups.file, columns))
    return [
        {
            "text": alone.text,
            "values": _with_values(conjunct),
            "files": {"removed": alone.removed, "proved": alone.proved, "total": alone.units},
            "row_groups": {"removed": group.removed, "proved": group.proved, "total": group.units},
            "opaque": [{"sql": sql, "why": why.text, "cause": why.cause.value} for sql, why in alone.opaque],
            "rewrite": alone.rewrite,
            "computed": {"files": alone.computed, "row_groups": group.computed},
            "by_sketches": {"files": alone.by_evidence, "row_groups": group.by_evidence},
            "never_true": not outcomes(conjunct, _ANY_ROW, use_duckdb=False).may_match[0],
        }
        for conjunct, alone, group in zip(predicate.conjuncts, by_file, by_group, strict=True)
    ]


def _with_values(predicate: Predicate) -> str | None:
    """A written predicate with the values of its parameters and of the clock; None if it has neither."""
    template = None if predicate.written is None else predicate.as_template()
    return None if template is None else template.shown()


def _share(share: Share) -> dict[str, int | None]:
    return {"skipped": share.part, "total": share.whole}


def _text_of_plan(found: Mapping[str, Any]) -> str:
    predicate = found["values"] or found["predicate"] or "every row"
    lines = [f"{found['table']} (version {found['version']})", f"  WHERE {predicate}", "skipped"]
    lines += [f"  {name.replace('_', ' '):<11}{_of(share)}" for name, share in found["skipped"].items()]
    total = found["skipped"]["files"]["total"]
    counted, changes = found.get("counted_files", total), found.get("changes", {})
    if total and not counted:
        lines.append("  all files have changed since the index was made: every one is read in full")
    elif counted != total:
        known = f"{counted:,} of {total:,} files are as they were indexed"
        lines.append(f"  {known}: row groups, rows and bytes are theirs")
    if found["skipped"]["files"]["total"] == 1 and found["skipped"]["row_groups"]["total"] in (1, None):
        lines.append("  the table is one file of one row group: it is read as a whole or not at all")
    if found["files_without_residual"]:
        lines.append(f"  in {found['files_without_residual']:,} of the files that are read, every row matches")
    if found["conjuncts"]:
        lines.append(
            f"each condition alone removes{', of the files as they were indexed' if any(changes.values()) else ''}"
        )
    for conjunct in found["conjuncts"]:
        files, groups, text = conjunct["files"], conjunct["row_groups"], conjunct["values"] or conjunct["text"]
        lines.append(
            f"  {amount(files['removed'], 'file'):>15} {amount(groups['removed'], 'row group'):>20}   {_short(text)}"
        )
        if conjunct["never_true"]:
            advice = (
                ": a comparison with NULL is NULL; IS NULL is the test for it"
                if re.search(r"\bnull\b", text, re.IGNORECASE)
                else ""
            )
            lines.append(f"{'':33}never TRUE, whatever a row holds{advice}")
        if conjunct["by_sketches"]["files"]:
            lines.append(f"{'':33}{conjunct['by_sketches']['files']:,} of these files by sketches")
        computed = conjunct["computed"]
        if computed["files"] or computed["row_groups"]:
            of = f"{amount(computed['files'], 'file')}, {amount(computed['row_groups'], 'row group')}"
            lines.append(f"{'':33}computed by DuckDB for the few values of {of}")
            if computed["files"] == files["total"]:
                continue
        lines += [f"{'':33}not used: {_short(part['sql'])}: {part['why']}" for part in conjunct["opaque"]]
        if conjunct["rewrite"]:
            lines.append(f"{'':33}would prune: {conjunct['rewrite']}")
    for name, why in found["unreadable_sketches"].items():
        lines.append(f"the sketch {name} cannot be read, and skips nothing of what it does not know: {why}")
    if found["dropped"]:
        lines.append(f"{dropped_text(len(found['dropped']))}: {found['dropped'][0]}")
    for kind, paths in changes.items():
        if paths:
            shown = ", ".join(paths[:_SHOWN_PATHS]) + (", …" if len(paths) > _SHOWN_PATHS else "")
            what = "left out" if kind == "gone" else "read in full"
            lines.append(f"{amount(len(paths), 'file')} {kind} since the index was made, {what}: {shown}")
    if any(changes.values()):
        lines.append("zskip index --refresh, or refresh() of the table, takes what changed into the index")
    return "\n".join(lines)


def _of(share: Mapping[str, int | None]) -> str:
    return str(Share(share["skipped"], share["total"]))


def _short(text: str, width: int = 90) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"


# --- one file ---


def _facts_of_file(survivors: Survivors, file: str) -> dict[str, Any]:
    number = _number_of(survivors, file)
    chosen = np.array([number])
    predicate = survivors.predicate
    path = survivors.index.paths(chosen)[0].as_py()
    found: dict[str, Any] = {
        "file": path,
        "rows": survivors.index.row_counts(chosen)[0].as_py(),
        "bytes": survivors.index.sizes(chosen)[0].as_py(),
        "predicate": None if predicate is None else predicate.text,
        "conjuncts": [],
        "row_groups": [],
        "verdict": "kept",
        "all_rows_match": predicate is None,
    }
    if survivors.changes is not None and path in survivors.changes.changed.path.to_pylist():
        return {**found, "verdict": "kept", "reason": "the file has changed since the index was made"}
    if survivors.changes is not None and path in survivors.changes.removed.to_pylist():
        return {**found, "verdict": "skipped", "reason": "the file is gone"}
    if predicate is None:
        return found
    columns = sorted(predicate.columns)
    statistics = survivors.index.file_statistics(chosen, columns)
    sketches = sketches_of(survivors.index)
    evidence = sketches.evidence(chosen, columns)
    for conjunct in predicate.conjuncts:
        outcome = outcomes(conjunct, statistics.statistics(sorted(conjunct.columns)), evidence)
        found["conjuncts"].append(
            {
                "text": conjunct.text,
                "values": _with_values(conjunct),
                "verdict": _verdict(outcome, 0),
                "ranges": {column: _range(statistics, column) for column in sorted(conjunct.columns)},
            }
        )
    by_file = outcomes(predicate, statistics.statistics(columns), evidence)
    groups = survivors.index.row_groups(chosen, columns)
    by_group = outcomes(predicate, groups.statistics, sketches.evidence(groups.file, columns))
    found["row_groups"] = [
        {"row_group": int(group), "verdict": _verdict(by_group, position)}
        for position, group in enumerate(groups.row_group)
    ]
    kept = bool(by_file.may_match[0] and (by_group.may_match.any() or not len(groups)))
    found |= {"verdict": "kept" if kept else "skipped", "all_rows_match": bool(kept and by_file.all_match[0])}
    return found


def _number_of(survivors: Survivors, file: str) -> int:
    """The number of the file with this path, in the table or as `Plan.paths` has it."""
    if not isinstance(file, str):
        raise InvalidOption(f"file= is the path of one of the table's files, not {file!r}.")
    uri = survivors.index.storage.uri
    inner = file.removeprefix(uri).lstrip("/") if file.startswith(uri) else file
    paths: list[str] = []
    for shard in range(len(survivors.index.snapshot.shards)):
        names = survivors.index.shard_paths(shard)
        position = pc.index(names, pa.scalar(inner)).as_py()
        if position >= 0:
            return int(survivors.index.first_file[shard]) + int(position)
        paths += names[: max(0, 1000 - len(paths))].to_pylist()
    if survivors.changes is not None and inner in survivors.changes.added.path.to_pylist():
        raise InvalidOption(
            f'The file "{file}" is newer than the index, which knows nothing of it: it is read in full.'
        )
    raise UnreadableFile(f'The table has no file "{file}".{nearest(inner, paths)}')


def _verdict(outcome: Outcomes, position: int) -> str:
    if not outcome.may_match[position]:
        return "no row matches"
    return "every row matches" if outcome.all_match[position] else "some row may match"


def _range(statistics: FileStatistics, column: str) -> dict[str, Any]:
    found = statistics.columns.get(column)
    if found is None:
        return dict.fromkeys(("lower", "upper", "null_count", "nan_count", "lower_exact", "upper_exact"))
    return {name: _plain(found, name) for name in ColumnStatistics.__slots__}


def _plain(found: ColumnStatistics, name: str) -> Any:
    """A value in JSON; text if JSON has no form for it."""
    scalar = getattr(found, name)[0]
    value = scalar.as_py()
    plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else str(value)


def _text_of_file(found: Mapping[str, Any]) -> str:
    known = (amount(found[f"{unit}s"], unit) for unit in ("row", "byte") if found[f"{unit}s"] is not None)
    lines = [f"{found['file']}: {', '.join(known) or 'unknown'}: {found['verdict']}"]
    if "reason" in found:
        lines.append(f"  {found['reason']}")
    for conjunct in found["conjuncts"]:
        lines.append(f"  {_short(conjunct['values'] or conjunct['text'])}: {conjunct['verdict']}")
        lines += [f"    {column} {_range_text(of)}" for column, of in conjunct["ranges"].items()]
    groups: Sequence[Mapping[str, Any]] = found["row_groups"]
    if len(groups) > 1:
        kept = sum(group["verdict"] != "no row matches" for group in groups)
        lines.append(f"  row groups: {kept:,} of {len(groups):,} are read")
        lines += [f"    {group['row_group']}: {group['verdict']}" for group in groups[:_SHOWN_GROUPS]]
        if len(groups) > _SHOWN_GROUPS:
            lines.append(f"    … {len(groups) - _SHOWN_GROUPS:,} more")
    return "\n".join(lines)


def _range_text(of: Mapping[str, Any]) -> str:
    if of["lower"] is None and of["upper"] is None:
        between = "holds no known value"
    else:
        between = f"from {_shown(of['lower'])} to {_shown(of['upper'])}"
    nulls = "an unknown number of NULLs" if of["null_count"] is None else f"{of['null_count']:,} NULLs"
    nans = f", {of['nan_count']:,} NaNs" if of["nan_count"] else ""
    return f"{between}, {nulls}{nans}"


def _shown(value: Any) -> str:
    return "unknown" if value is None else _short(repr(value) if isinstance(value, str) else str(value), 40)
