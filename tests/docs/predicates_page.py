"""`predicates_page`: the text of docs/predicates.md, generated from the tables that the code uses."""

from __future__ import annotations

from zskip.core import types
from zskip.language.functions import COMPUTED, FUNCTIONS

LANGUAGE: dict[str, str] = {
    "`=` `<>` `!=` `<` `<=` `>` `>=`, either way round": "exact, for constants that fit the column's type",
    "`BETWEEN`, `IN (…)`, `NOT IN (…)`": "exact; gaps between values prune too; ten thousand cost no more than ten",
    "`IS [NOT] NULL`, `IS [NOT] TRUE`, `FALSE`, `UNKNOWN`": "exact, by the counts of NULLs",
    "`IS [NOT] DISTINCT FROM`, `<=>`": "exact",
    "`AND`, `OR`, `NOT`": "three-valued; exact over one column; over several, each column is considered alone",
    "boolean columns, alone": "exact",
    "`LIKE 'abc'`, `LIKE 'abc%'`, `starts_with`, `^@`, `prefix`": "exact: a range",
    "regular expressions `^abc`, `^abc.*`, `^abc$`; `SIMILAR TO 'abc'`": "exact: a range, or equality",
    "`LIKE 'abc_%d'`, `ILIKE`, `SIMILAR TO`, `GLOB`, other expressions with `^`": "a range, by the literal beginning",
    "`LIKE '%abc'`, `contains`, `suffix`": "NULL gives NULL; files and row groups of a single value",
    "column against column": "by their ranges, in the type in which the dialect compares them",
    "`CASE`, `IF`, `COALESCE`, `IFNULL`, `NULLIF`": "a choice of predicates",
    "`(a, b) = (1, 2)`, `(a, b) IN (…)`": (
        "by the box of all columns' ranges together; of more than 250 rows, each column's values alone"
    ),
    "`(a, b) < (1, 2)`, `<=`, `>`, `>=`": (
        "as `a < 1 OR a = 1 AND b < 2`; engines differ on NULL, so a file with NULL never matches as a whole"
    ),
    "`isnan(x)`": "exact, if NaN is counted",
    **dict(entry.docs for entry in types.ENTRIES if entry.docs is not None),
    "parameters `?`, `$1`, `$name`, `:name`; `now()`, `current_date`": "constants, the same in proof and engine",
}
"""The language elements that are proved, and how."""


def predicates_page() -> str:
    """The text of docs/predicates.md."""
    language = "\n".join(f"| {spelled} | {rule} |" for spelled, rule in LANGUAGE.items())
    functions = "\n".join(
        "| " + " | ".join([f"`{each.spelled}`", each.types, " ".join(each.dialects), each.rule]) + " |"
        for each in FUNCTIONS.values()
    )
    own = [name for each in FUNCTIONS.values() for name in each.duckdb]
    subjects = {"of the table above": own, **COMPUTED}
    computed = "\n".join(
        f"| {subject} | {' '.join(f'`{_escaped(name)}`' for name in names)} |" for subject, names in subjects.items()
    )
    return _PAGE.format(language=language, functions=functions, computed=computed)


def _escaped(name: str) -> str:
    return name.replace("|", "\\|")


_PAGE = """# What prunes

zskip skips a file or a row group only if its ranges prove that no row makes the predicate TRUE. Otherwise it is read:
a predicate may contain anything that its engine accepts, and `plan.explain()` shows which parts could not skip
anything. A predicate is about one table: a name before a column, as in `t.a = 1`, is passed over. This page is
generated from the tables that the planner uses.

## The language

| in the predicate | what is proved |
| --- | --- |
{language}

## Functions

A function may be applied to a column, or to the result of another function. Each row gives the types and dialects
that are supported, and how the bounds of the result follow from those of the argument: a function that *rises* maps
the least value to the least result.

| function | over | dialects | rule |
| --- | --- | --- | --- |
{functions}

## Few values

Where a file or row group holds few values of each column of a condition with a function, DuckDB computes the condition
for these, and for NULL: at most 1,024 integers or days, or one value of any other type, as in a folder of one country.
So `upper(country) = 'DE'` is exact over files of one country each, `strftime(d, '%A') = 'Sunday'` over files of a week,
and `a || '-' || b = 'x-y'` prunes if each file has one `a` and one `b`. A condition reads up to eight columns. This
works in the dialect `duckdb`, for conditions of at most 4,096 characters
that contain only constants, comparisons, casts, CASE, COALESCE and these functions, whose results are about as long as
their arguments:

| subject | functions |
| --- | --- |
{computed}

In the dialect `spark`, DuckDB computes nothing, since most functions of the two engines differ in details. There,
files are read if the first table lacks a function; on tables that a Spark session reads, Spark computes it.

DuckDB computes in a private database in memory, which opens no file and loads no extension, with locked settings. The
condition is first parsed as data by DuckDB's own parser, and refused if it contains anything else. If a value raises
an error, its file is read. The work of trying values is counted before they are tried, and bounded to about a tenth of
a second for each plan: some thousand values of a short condition. Files are read if that does not suffice, if a string
has more than 4,096 bytes, and if one value could take too long, as with a regular expression that repeats thousands of
times.

Binary columns, and times and timestamps in units other than microseconds, are not computed, since their type in a
file may differ from that of the table.

## Constants

A constant is converted to the column's type exactly. `int_col = 5.5` is never true, `int_col > 5.5` becomes `int_col
>= 6`, and a constant outside the type's range becomes an end of the range. A string compared with a date is cast as
in the dialect. If a cast would round, or its rule is not known, the comparison skips nothing.

## NULL, NaN and errors

NULL follows three-valued logic throughout. NaN is greater than every number and equals itself; unless a column is
known to hold no NaN, its upper bound does not prune. A condition that may raise an error is never taken as proved, so
the filter is applied. A skipped file is not read, so errors that its rows would have raised do not appear.

## Time zones

Columns with a zone are read in the session's zone (`timezone=`). When its clocks go back, local times repeat, so
parts and truncations of such columns prune with a margin of 16 hours.

DuckDB itself has no such margin. Where clocks go back over midnight, as in Tehran until 2022 and in Gaza in 2008,
DuckDB 2.0.1 skips row groups of the repeated hour under `CAST(ts AS DATE) = …` and `<= …`, and their rows are missing:
in zskip as in plain `read_parquet`. Conditions on `ts` itself lose none.

## Conditions that DuckDB decides wrongly

DuckDB 2.0.1 decides some conditions by what its optimizer derives, without computing them, and wrongly: parts of
timestamps of nanoseconds as in `extract(year FROM ts)`, casts of these to TIME_NS, `date_trunc('hour', d)` of a date,
and `TRY_CAST(x AS …) IS DISTINCT FROM NULL`. Reads by DuckDB have the rows that `read_parquet` has then. Plans are
right for parts of a column of nanoseconds, and `delete` is right for all of these: it has DuckDB compute conditions
with functions and casts row by row.
"""
