"""Explain which files a statement skips, for each table and by which rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zskip.engines.duckdb.relation import opened
from zskip.statements.duckdb.statement import rewrite

if TYPE_CHECKING:
    import duckdb


def explain(
    statement: str,
    con: duckdb.DuckDBPyConnection | None = None,
    *,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    freshness: str = "list",
) -> str:
    """The files that `zskip.sql` skips in each table of one statement, and by which rule; the statement does not run.

    Takes the parameters of `zskip.sql` and raises the same errors, and `UnsupportedSql` for several statements.
    """
    rewritten = rewrite(
        statement,
        opened(con),
        params=params,
        tables=tables,
        storage_options=storage_options,
        freshness=freshness,
    )
    lines = []
    for (name, planned), reasons in zip(rewritten.plans, rewritten.reasons, strict=True):
        lines.append(f"{name} reads {len(planned):,} files. Skipped: {planned.skipped}")
        lines += [f"  {reason}" for reason in reasons]
    return "\n".join(lines) or "No table of zskip stands in this statement."


def explain_facts(statement: str, con: duckdb.DuckDBPyConnection, **options: Any) -> list[dict[str, Any]]:
    """The content of `explain` as values for JSON: for each table in the statement, what is skipped and why."""
    rewritten = rewrite(statement, opened(con), **options)
    return [
        {
            "table": name,
            "files_read": len(planned),
            "skipped": {
                what: {"skipped": share.part, "total": share.whole} for what, share in planned.skipped._asdict().items()
            },
            "reasons": list(reasons),
        }
        for (name, planned), reasons in zip(rewritten.plans, rewritten.reasons, strict=True)
    ]
