"""`predicates_page`: the text of docs/predicates.md, generated from the tables that the code uses."""

from __future__ import annotations

from zskip import types
from zskip.functions import FUNCTIONS
from zskip.functions.evaluated import COMPUTED

__all__ = ["predicates_page"]

LANGUAGE: dict[str, str] = {
    "`=` `<>` `!=` `<` `<=` `>` `>=`, either way round": "exact, for constants that fit the column's type",
    "`BETWEEN`, `IN (…)`, `NOT IN (…)`": "exact; gaps between the values prune too, and ten thousand cost as ten",
    "`IS [NOT] NULL`, `IS [NOT] TRUE`, `FALSE`, `UNKNOWN`": "exact, by the counts of NULLs",
    "`IS [NOT] DISTINCT FROM`, `<=>`": "exact",
    "`AND`, `OR`, `NOT`": "three-valued; exact over one column, and over several as far as each alone can tell",
    "boolean columns, alone": "exact",
    "`LIKE 'abc'`, `LIKE 'abc%'`, `starts_with`, `^@`, `prefix`": "exact: a range",
    "regular expressions `^abc`, `^abc.*`, `^abc$`; `SIMILAR TO 'abc'`": "exact: a range, or equality",
    "`LIKE 'abc_%d'`, `ILIKE`, `SIMILAR TO`, `GLOB`, other expressions with `^`": "the literal beginning is a range",
    "`LIKE '%abc'`, `contains`, `suffix`": "that NULL gives NULL, and units of one value each",
    "column against column": "by their ranges, in the type in which the dialect compares them",
    "`CASE`, `IF`, `COALESCE`, `IFNULL`, `NULLIF`": "a choice of predicates",
    "`(a, b) = (1, 2)`, `(a, b) IN (…)`, `a = 1 AND b = 2 OR a = 3 AND b = 4 OR …`": (
        "by the box of all columns' ranges together; two thousand take some tenths of a second"
    ),
    "`(a, b) < (1, 2)`, `<=`, `>`, `>=`": (
        "as `a < 1 OR a = 1 AND b < 2`; beside NULL engines differ, so that such units never match wholly"
    ),
    "`isnan(x)`": "exact, where NaN is counted",
    **dict(entry.docs for entry in types.entries() if entry.docs is not None),
    "parameters `?`, `$1`, `$name`, `:name`; `now()`, `current_date`": "constants, the same in proof and engine",
}
"""What of the language is proved, and how."""


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

A file or a row group is skipped only where its ranges prove that no row makes the predicate TRUE. What cannot be
proved keeps: a predicate may hold anything that its engine accepts, and `plan.explain()` says what could not help.
This page is made from the tables that the planner itself reads.

## The language

| what stands in the predicate | what is proved |
| --- | --- |
{language}

## Functions

A function may stand around a column, or around another function. A row says over which types and in which dialects it
is followed, and how its bounds follow from its argument's.

| function | over | dialects | rule |
| --- | --- | --- | --- |
{functions}

## Few values

Where a unit's range of an integer or a date holds at most 1,024 values, a predicate over that column alone is decided
by trying them all, and NULL beside them, so that `month(d) = 7 AND day(d) = 4` is exact over a year of dates. The same
holds for a column of any type where both bounds are one value, as in a folder of one country or a file of one day.

What none of the rules above knows, DuckDB computes then, value by value: `upper(country) = 'DE'` is exact over files of
one country each, and `strftime(d, '%A') = 'Sunday'` over files of a week. A condition over up to eight columns is
computed for every combination of their values, NULL among them, where a unit has at most 1,024 of them: so
`a || '-' || b = 'x-y'` prunes in a folder of one `a` and one `b` a file. It is asked in the dialect `duckdb` alone, of
one condition, of at most 4,096 characters, that holds nothing but constants, comparisons, casts, CASE, COALESCE and
these functions:

| subject | functions |
| --- | --- |
{computed}

In the dialect `spark` nothing is computed by DuckDB, for the two engines differ in more functions than they share:
there, single values decide conditions over the functions of the table above, and all others keep.

It computes in a private database in memory that opens no file, loads no extension and whose settings are locked; the
condition is first read by DuckDB's own parser, as data, and refused where it holds anything else. A value for which it
raises an error is kept. Trying values takes at most a tenth of a second of a plan's processor time, in batches whose
cost is bounded before they run; values that this does not reach, strings of more than 4,096 bytes, and expressions of
which one value could take too long, as a regular expression that repeats thousands of times, are kept.

Binary columns, times and timestamps of other units than microseconds are not computed, for
their type in a file may be another one.

## Constants

A constant is fitted to the column's type exactly. `int_col = 5.5` is never true, `int_col > 5.5` is `int_col >= 6`,
and a constant outside of the type's range stands for an end of it. A text beside a date is cast as the dialect casts
it. A comparison whose cast would round, or whose rule is not known, is left to the engine.

## NULL, NaN and errors

NULL is three-valued logic throughout. NaN is above every number and equals itself; where it is not known that a column
holds none, its upper bound does not prune. What may raise an error in the engine is never taken for proved: the filter
stays. A file that is skipped is not read, so an error that its rows would have raised does not show.

## Time zones

Columns with a zone are read in the session's zone (`timezone=`). Where its clocks change, local time does not rise
with the moment: parts and truncations of such columns prune with a margin of 16 hours.
"""
