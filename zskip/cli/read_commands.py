"""Commands that read a table: plan, query, info, history."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zskip.cli.command_options import (
    PREDICATE,
    VERSION,
    Commands,
    add_command,
    given_options,
    opened,
    predicate_options,
)
from zskip.cli.terminal import fact_text, grid, is_unicode, out, print_facts, print_json, working
from zskip.core.option_checks import size_text
from zskip.errors import InvalidOption, TableNotFound, UnsupportedSql

STATEMENT = re.compile(r"\s*(SELECT|WITH|FROM|SUMMARIZE|DESCRIBE|EXPLAIN|PIVOT|UNPIVOT)\s", re.IGNORECASE)

_WORD_ENDS = re.compile("[_-]")
ASCII_BOX = str.maketrans("─│┌┐└┘├┤┬┴┼·…", "-|+++++++++.~")


def add_commands(commands: Commands) -> None:
    add_command(
        commands,
        "plan",
        plan,
        "show which files a predicate needs, and why",
        f"path predicate --explain --file --paths {PREDICATE} {VERSION}",
        "zskip plan lake/conn \"src_ip = '10.47.1.100'\" --explain\n"
        "zskip plan lake/conn \"src_ip = '10.47.1.100'\" --paths | xargs ls -l",
    )
    add_command(
        commands,
        "query",
        query,
        "answer a query, reading only the files that it needs",
        f"path [predicate] --columns --limit --explain {PREDICATE} {VERSION} --csv|--json",
        "zskip query lake/conn \"src_ip = '10.47.1.100'\" --columns ts,dst_ip\n"
        "zskip query \"SELECT dst_ip FROM 'lake/conn' WHERE src_ip = '10.47.1.100'\"",
        common="--storage-option --traceback",
        path={"metavar": "PATH_OR_SQL", "help": "a table, or a whole SELECT over tables"},
        predicate="what stands after WHERE, if a table is given",
        explain="show what is skipped, and why, instead of the rows",
    )
    add_command(
        commands,
        "info",
        info,
        "show what a table holds, and how well its layout works",
        f"path --clustering {VERSION}",
        "zskip info lake/conn --clustering",
    )
    add_command(
        commands,
        "history",
        history,
        "list the versions of a table",
        "path --limit",
        "zskip history lake/conn --limit 10",
        limit="the newest N versions (default: all)",
    )


def plan(given: argparse.Namespace) -> None:
    table = opened(given)
    start = time.perf_counter()
    planned = table.plan(given.predicate, **predicate_options(given))
    seconds = time.perf_counter() - start
    if given.json:
        print_json({**planned.as_dict(given.file), "paths": planned.paths, "seconds": seconds})
    elif given.paths:
        out().print("\n".join(planned.paths))
    elif given.file:
        out().print(planned.explain(file=given.file))
    elif given.explain:
        out().print(planned.explain())
    else:
        skipped = {f"{name}_skipped": str(share) for name, share in planned.skipped._asdict().items()}
        print_facts({**skipped, "paths": planned.paths, "seconds": seconds})


def query(given: argparse.Namespace) -> None:
    import duckdb

    if given.limit is not None and not 0 <= given.limit < 1 << 63:
        raise InvalidOption(f"--limit is a number of rows, not {given.limit}.")
    from zskip.engines.missing_files import naming_bad_files, pointing_at

    # The statement that runs is rewritten, but errors point into the text that the user typed.
    typed = given.path if is_statement(given.path) else given.predicate or "TRUE"
    with duckdb.connect() as connection, pointing_at(typed, ""):
        connection.execute("SET TimeZone = ?", [given.timezone])
        if given.explain:
            found = explained(given, connection)
            print_json(found) if given.json else out().print(found)
            return
        with working("reading"):
            relation = answer(given, connection)
            if given.limit is not None:
                relation = relation.limit(given.limit)
        try:
            if given.json:
                with working("reading"):
                    rows = relation.to_arrow_table()
                print_json_rows(rows)
            elif given.csv:
                print_csv(relation)
            else:
                show(relation)
        except duckdb.Error:  # not of the system: that is one of printing
            with naming_bad_files(scans(given, connection)):
                raise


@lru_cache(maxsize=1)
def is_statement(text: str) -> bool:
    """Whether a text is a query and not a table's path. Raises `UnsupportedSql` for other statements."""
    if STATEMENT.match(text):
        return True
    if not re.search(r"\s", text.strip()) or "://" in text or Path(text).exists():
        return False
    import duckdb

    try:
        kinds = {one.type.name for one in duckdb.extract_statements(text)}
    except duckdb.ParserException as error:
        reason = str(error).partition("\n")[0]
        raise TableNotFound(f'There is no zskip table at "{text}", and as SQL it does not parse: {reason}.') from error
    if kinds != {"SELECT"}:
        raise UnsupportedSql(
            "zskip query runs queries, and this is none. zskip append, zskip write and zskip delete change a table.",
            text,
        )
    return True


def show(relation: Any) -> None:
    """Print rows as a box, in ASCII if stdout cannot encode other characters."""
    if is_unicode(sys.stdout):
        relation.show(max_rows=40)
        return
    box = io.StringIO()
    with contextlib.redirect_stdout(box):
        relation.show(max_rows=40)
    print(box.getvalue().translate(ASCII_BOX))


def explained(given: argparse.Namespace, connection: Any) -> Any:
    """The files that the query skips, and why: facts for JSON, or text."""
    if not is_statement(given.path):
        planned = opened(given).plan(given.predicate, **predicate_options(given))
        return planned.as_dict() if given.json else planned.explain()
    from zskip.statements.duckdb import explain, explain_facts

    explaining = explain_facts if given.json else explain
    return explaining(given.path, connection, **given_options(given, "params", "storage_options"))


def answer(given: argparse.Namespace, connection: Any) -> Any:
    """The rows of the query, as a DuckDB relation."""
    if is_statement(given.path):
        from zskip.statements.duckdb import sql

        for option in ("predicate", "columns", "version", "as_of"):
            if getattr(given, option) is not None:
                raise InvalidOption(f"{option.replace('_', '-')} goes with a table's path: a statement says it itself.")
        return sql(given.path, connection, **given_options(given, "params", "storage_options"))
    planned = opened(given).plan(given.predicate, **predicate_options(given))
    return planned.to_duckdb(connection, columns=given.columns)


def scans(given: argparse.Namespace, connection: Any) -> Iterator[Any]:
    """The scans of the query, which is planned again for them: DuckDB's relations do not know theirs."""
    if not is_statement(given.path):
        yield opened(given).plan(given.predicate, **predicate_options(given)).scan
        return
    from zskip.statements.duckdb.statement import rewrite

    with contextlib.suppress(UnsupportedSql):  # several statements
        for _, planned in rewrite(given.path, connection, **given_options(given, "params", "storage_options")).plans:
            yield planned.scan


def print_json_rows(rows: Any) -> None:
    """Print rows as JSON, one object per line, so a program can read them as they are printed."""
    from zskip.cli.terminal import plain

    ascii_only = not is_unicode(sys.stdout)
    rows = rows.rename_columns(distinct(rows.column_names))
    for batch in rows.to_batches():
        try:
            objects = batch.to_pylist()
        except OverflowError:
            columns = [[_python_value(scalar) for scalar in column] for column in batch.columns]
            objects = [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
        for row in objects:
            sys.stdout.write(json.dumps(_finite(row), default=plain, ensure_ascii=ascii_only, allow_nan=False) + "\n")


def distinct(names: Sequence[str]) -> list[str]:
    """Names in which no two are equal, as JSON objects need them: a repeated one gets a number.

    >>> distinct(["a", "b", "a", "a_1", "a"])
    ['a', 'b', 'a_2', 'a_1', 'a_3']
    """
    found: list[str] = []
    for name in names:
        others = (f"{name}_{number}" for number in range(2, len(names) + 2))
        found.append(next(one for one in others if one not in names and one not in found) if name in found else name)
    return found


def _python_value(scalar: Any) -> Any:
    """An Arrow scalar as a Python value; a date or time beyond Python's types becomes DuckDB's text for it."""
    import pyarrow as pa

    try:
        return scalar.as_py()
    except OverflowError:
        match scalar:
            case pa.UnionScalar():
                return _python_value(scalar.value)
            case pa.StructScalar():
                return {name: _python_value(one) for name, one in scalar.items()}
            case pa.MapScalar():
                return [[_python_value(one) for one in entry.values()] for entry in scalar.values]
            case pa.ListScalar():
                return [_python_value(one) for one in scalar.values]
        return _duckdb_text(scalar)


@lru_cache(10_000)  # each value costs a query of DuckDB, and most of them are infinity
def _duckdb_text(scalar: Any) -> str:
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = ?", [getattr(scalar.type, "tz", None) or "UTC"])
        rows = connection.from_arrow(pa.table({"value": pa.repeat(scalar, 1)}))
        return str(rows.project("value::VARCHAR").fetchall()[0][0])


def _finite(value: Any) -> Any:
    """The value, with floats that JSON lacks as strings: the names are those in the JSON of protocol buffers."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {name: _finite(one) for name, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
    return value


def print_csv(relation: Any) -> None:
    """Print rows as DuckDB writes CSV: Arrow has no text for infinite times, and for none of nested values."""
    sys.stdout.flush()
    with TemporaryDirectory() as folder:
        relation.to_csv(os.path.join(folder, "rows.csv"), header=True)
        with open(os.path.join(folder, "rows.csv"), "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def summary(table: Any) -> dict[str, Any]:
    """Facts about a table."""
    snapshot = table._index.snapshot
    layout = snapshot.layout
    return {
        "uri": table.uri,
        "version": table.version,
        "files": snapshot.totals.files,
        "row_groups": snapshot.totals.row_groups,
        "rows": snapshot.totals.rows,
        "bytes": snapshot.totals.bytes,
        "layout": layout.name if layout else None,
        "by": list(layout.columns) if layout else [],
        "partition_by": list(snapshot.partition_by),
        "managed": snapshot.managed,
        **dropped(table),
        **dimensions(table),
        "sketches": [
            {
                "column": sketch.name.column,
                "kind": sketch.name.kind,
                "bytes": sketch.bytes,
                "segments": len(sketch.segments),
                "entries": sum(segment.entries for segment in sketch.segments),
            }
            for sketch in snapshot.sketches
        ],
        "columns": {field.name: str(field.type) for field in table.schema},
    }


def dimensions(table: Any) -> dict[str, list[dict[str, Any]]]:
    """The dimensions whose attributes the index has, if there are any."""
    if not table._index.snapshot.dimensions:
        return {}
    from zskip.table_formats.locate import stale_by_dimension

    found = [
        {
            "name": each.name,
            "table": each.uri or None,
            "keys": dict(each.keys),
            "attributes": each.attributes.names,
            "stale_files": stale,
        }
        for each, stale in stale_by_dimension(table._index).items()
    ]
    return {"dimensions": found}


def dropped(table: Any) -> dict[str, str]:
    """A fact about files that other programs put into the table's folder, if there are any."""
    from zskip.tablelog import freshness

    if table._index.source is not None:
        return {}
    found = len(freshness.dropped_files(table._index.storage, table._index.snapshot))
    return {"not_in_the_table": freshness.dropped_text(found)} if found else {}


def info(given: argparse.Namespace) -> None:
    table = opened(given)
    facts: dict[str, Any] = summary(table)
    clustering = table.clustering() if given.clustering else None
    if given.json:
        print_json(facts if clustering is None else {**facts, "clustering": clustering})
        return
    print_facts(facts)
    if clustering is not None:
        out().print(f"\n{clustering}")


def history(given: argparse.Namespace) -> None:
    entries = opened(given).history(given.limit)
    if given.json:
        print_json(entries)
        return
    lines = [
        (
            str(entry.version),
            f"{entry.time:%Y-%m-%d %H:%M:%S}",
            entry.operation,
            ", ".join(f"{_WORD_ENDS.sub(' ', name)} {fact_text(name, value)}" for name, value in entry.details.items()),
            "–" if entry.files is None else f"{entry.files:,}",
            "–" if entry.rows is None else f"{entry.rows:,}",
            "–" if entry.bytes is None else size_text(entry.bytes),
        )
        for entry in entries
    ]
    grid(("version", "time (UTC)", "operation", "what it did", "files", "rows", "bytes"), lines, left=4)
