"""What a statement reads, as DuckDB's own parser tells it: its tables and where they stand, its functions, its files.

DuckDB serializes a query as JSON, with the position of each table. It refuses any other statement, so the query in one
is cut out: everything else becomes spaces, which leaves every position as it is. So it is in a query with one of the
keywords below, of which the JSON tells no position.

| statement                            | parsed as                                   |
| ------------------------------------ | ------------------------------------------- |
| ``EXPLAIN …``, ``PREPARE … AS …``    | the statement in it                         |
| ``CREATE TABLE … AS q``, a view      | ``q``                                       |
| ``INSERT``, ``UPDATE``, ``COPY (q)`` | a CTE: ``WITH zskip AS (INSERT …) SELECT 1``|
| ``PIVOT t ON a USING sum(b)``        | ``FROM  t``                                 |
| ``SUMMARIZE t``, ``TABLE t``         | ``FROM      t``                             |
| ``CALL f(x)``, ``SET VARIABLE a = x``| ``SELECT f(x)``, ``SELECT x``               |

A name in FROM is that of a common table expression wherever DuckDB's scopes make it so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache, cached

from zskip.core.schema import identifier

if TYPE_CHECKING:
    import duckdb

_QUERY_STARTS = {
    "SELECT",
    "FROM",
    "WITH",
    "VALUES",
    "PIVOT",
    "UNPIVOT",
    "DESCRIBE",
    "DESC",
    "SUMMARIZE",
    "SHOW",
    "TABLE",
}
# Keywords before the name of a table that stands for all its rows.
_BEFORE_NAMES = {"SUMMARIZE", "DESCRIBE", "DESC", "TABLE"}
_PIVOTS = {"PIVOT", "PIVOT_WIDER"}
_SHELLS = {"INSERT", "UPDATE", "DELETE", "COPY", "WITH"}
# Nodes and functions by which a statement reads the names of columns as values, or gives them to other columns.
_READS_NAMES = frozenset({"alias", "query", "query_table", "typeof", "pg_typeof", "struct_keys", "get_type"})
# Functions that name the fields of a struct after the columns that they take.
_PACKS_NAMES = frozenset({"struct_pack", "struct_insert", "struct_update", "struct_concat"})


class Word(NamedTuple):
    """A token: its text, DuckDB's token kind, and its half-open range of characters in the statement."""

    text: str
    kind: str
    start: int
    end: int


class Place(NamedTuple):
    """A table in FROM: its name without quotes, the quotation mark or "", and its range in the text.

    ``aliased``: it has an alias · ``bare``: it stands for its rows, as in ``SUMMARIZE 'lake'`` and ``TABLE 'lake'``.
    """

    name: str
    quote: str
    start: int
    end: int
    aliased: bool
    bare: bool


@dataclass(slots=True)
class Places:
    """What a statement reads.

    ``tables``: tables without a schema, in textual order, without common table expressions · ``others``: whether it
    reads tables with a schema · ``functions``: the functions that it calls, in lower case · ``table_functions``: those
    in FROM · ``arguments``: the range of each argument of these in the text · ``only_named``: it reaches
    columns only by their names · ``reads_names``: the names of columns may be read as values, or given to other columns
    · ``grouping_sets``: the key of a group may be NULL where the column is not · ``searched``: the columns named
    outside its result, without case · ``joined``: those of USING · ``renames``: it may reach a column there by its
    position, or by another name · ``only_filters``: it reads one table, and all rows that its conditions select ·
    ``only_compares``: it has no condition but comparisons of columns with constants, and of the columns of several
    relations, and reads all rows that they select · ``parsed``: False if DuckDB's parser told nothing of all this.
    """

    tables: list[Place] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    table_functions: set[str] = field(default_factory=set)
    others: bool = False
    arguments: list[tuple[str, slice]] = field(default_factory=list)
    only_named: bool = True
    reads_names: bool = False
    grouping_sets: bool = False
    searched: set[str] = field(default_factory=set)
    joined: set[str] = field(default_factory=set)
    renames: bool = False
    only_filters: bool = False
    only_compares: bool = False
    parsed: bool = True


_LITERAL = r"(?:-?\d+(?:\.\d+)?|'(?:[^']|'')*')"
# A long list of constants; or a string, a quoted name or a comment, which may contain what looks like one.
_LONG_LIST = re.compile(
    rf"\((?P<first>\s*{_LITERAL})(?P<rest>(?:\s*,\s*{_LITERAL}){{31,}})\s*\)|'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*"
)
# A number, or a date or time in quotes that is compared: elsewhere, in FROM, it may be the name of a table.
_NUMBER = re.compile(
    r"(?P<number>(?<![\w.$#?])\d+(?:\.\d+)?(?![\w.])"
    r"|(?:[=<>]|\b(?:BETWEEN|AND)\s)\s*(?:DATE|TIMESTAMP)?\s*'[-:.\s\d]+'(?!'))"
    r"|'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"[0-9]")
_OTHER_QUOTES = re.compile(r"/\*|\$\w*\$|\be'", re.IGNORECASE)


@lru_cache(maxsize=64)
def without_long_lists(statement: str) -> str:
    """The statement with spaces in place of all but the first of the constants in long lists.

    Everything else keeps its place, and the parser and all passes over words need no time for them.

    >>> text = f"SELECT x IN ({', '.join(map(str, range(100)))})"
    >>> " ".join(without_long_lists(text).split()), len(without_long_lists(text)) == len(text)
    ('SELECT x IN (0 )', True)
    """
    if _OTHER_QUOTES.search(statement):
        return statement

    def shortened(match: re.Match[str]) -> str:
        first, rest = match["first"], match["rest"]
        if first is None or (first.strip()[0] == "'") != ("'" in rest) or rest.count("'") % 2:
            return match[0]
        return "(" + first + " " * (len(match[0]) - len(first) - 2) + ")"

    return _LONG_LIST.sub(shortened, statement)


@lru_cache(maxsize=64)
def shape(statement: str) -> str:
    """The statement without long lists, and with 1 for each digit of its numbers, and of dates that it compares.

    Statements that differ in these alone name the same tables and columns at the same places.

    >>> shape("SELECT t1.x, '20', $2 FROM 'lake/2024' t1 WHERE y = 34.5 AND d < DATE '2024-05-06' LIMIT 20")
    "SELECT t1.x, '20', $2 FROM 'lake/2024' t1 WHERE y = 11.1 AND d < DATE '1111-11-11' LIMIT 11"
    """
    if _OTHER_QUOTES.search(statement):
        return statement
    return _NUMBER.sub(
        lambda match: _DIGIT.sub("1", match[0]) if match["number"] else match[0], without_long_lists(statement)
    )


@lru_cache(maxsize=64)
def tokens(statement: str) -> tuple[Word, ...]:
    """The statement's tokens, without comments and without most of a long list of constants."""
    import duckdb

    statement = without_long_lists(statement)
    raw = statement.encode()
    ascii = len(raw) == len(statement)
    starts = [(offset, kind.name) for offset, kind in duckdb.tokenize(statement)]
    words: list[Word] = []
    for number, (start, kind) in enumerate(starts):
        end = starts[number + 1][0] if number + 1 < len(starts) else len(raw)
        text = raw[start:end].decode().rstrip()
        if kind != "comment":
            first = start if ascii else len(raw[:start].decode())
            words.append(Word(text, kind, first, first + len(text)))
    return tuple(words)


def table_places(statement: str, con: duckdb.DuckDBPyConnection) -> Places:
    """What one statement reads. ``con``: any connection; its parser is used, and nothing in it is read."""
    found = _table_places(shape(statement), con)
    # The parser may refuse some numbers, such as the same one twice in a PIVOT.
    return found if found.parsed else _table_places(statement, con)


@cached(LRUCache(64), key=lambda statement, con: statement, lock=Lock())
def _table_places(statement: str, con: duckdb.DuckDBPyConnection) -> Places:
    words, text = tokens(statement), without_long_lists(statement)
    of_keywords = any(word.text.upper() in _PIVOTS | _BEFORE_NAMES - {"DESC"} for word in words)
    is_cut = of_keywords or any(_stands_before_name(words, number) for number in range(len(words) - 1))
    prefix, tree = "", None if is_cut else _serialized(text, con)
    if tree is None:
        cut = _cut(text, words)
        if cut is None:
            return _copied_from(words)
        prefix, inner, suffix = cut
        text = prefix + inner + suffix
        tree = _serialized(text, con) or _serialized(prefix + _without_pivots(inner, words) + suffix, con)
    if tree is None:
        return Places(parsed=False)
    raw = text.encode()
    reader = _Reader(words, lambda at: len(raw[:at].decode()) - len(prefix))
    reader.visit(tree, _Scope())
    found = reader.found
    if len(tree) == 1 and _reads_all(tree[0]["node"]):
        found.only_filters = tree[0]["node"]["from_table"]["type"] == "BASE_TABLE"
        found.only_compares = _only_compares(tree[0]["node"])
    found.tables.sort(key=lambda place: place.start)
    if of_keywords:
        found.only_named, found.reads_names = False, True
    return found


def _copied_from(words: Sequence[Word]) -> Places:
    """The file of COPY … FROM; nothing for all other statements without a query."""
    texts = [word.text.upper() for word in words]
    at = _depth_zero(texts, {"FROM"})
    if texts[:1] != ["COPY"] or at is None or at + 1 == len(words):
        return Places(parsed=False)
    file = words[at + 1]
    return Places([Place(unquoted(file.text), file.text[0], file.start, file.end, False, False)], parsed=False)


def _serialized(query: str, con: duckdb.DuckDBPyConnection) -> Any:
    """The tree of a query; None if DuckDB cannot serialize it. Raises the error of a database that has failed."""
    import duckdb

    try:
        # A cursor has a transaction and settings of its own. The schema is named, since a user may have such a macro.
        with con.cursor() as own:
            ((text,),) = own.execute("SELECT system.main.json_serialize_sql(?)", [query]).fetchall()
    except duckdb.FatalException:
        raise
    except duckdb.Error:
        return None
    tree = json.loads(text)
    return None if tree["error"] else tree["statements"]


# --- the query in a statement ---


def _cut(statement: str, words: Sequence[Word]) -> tuple[str, str, str] | None:
    """The query in a statement: text before it, the statement with spaces in place of the rest, and text after it."""
    kept = _query_words(words)
    if kept is None:
        return None
    prefix, first, last, suffix = kept
    text = list(statement)
    start, end = words[first].start, words[last - 1].end
    text[:start] = " " * start
    text[end:] = " " * (len(text) - end)
    for number in range(first, last - 1):
        if _stands_before_name(words, number):
            begin, stop = words[number].start, words[number].end
            text[begin:stop] = "FROM".ljust(stop - begin)[: stop - begin]
    return prefix, "".join(text), suffix


def _stands_before_name(words: Sequence[Word], number: int) -> bool:
    """Whether a word is the keyword in ``SUMMARIZE t``, ``DESCRIBE t`` or ``TABLE t``."""
    word, after = words[number], words[number + 1]
    if word.text.upper() not in _BEFORE_NAMES or after.kind not in ("identifier", "string_const", "keyword"):
        return False
    before = words[number - 1].text.upper() if number else ""
    begins = before in ("", "(", "AS", "ANALYZE", "EXPLAIN")
    if word.text.upper() == "TABLE":
        begins |= before in (")", "ALL", "UNION", "EXCEPT", "INTERSECT", "NAME", "DISTINCT")
    return begins and after.text.upper() not in _QUERY_STARTS


def _query_words(words: Sequence[Word]) -> tuple[str, int, int, str] | None:
    """The words that are parsed, as a range, and the text around them; None if there is no query in the statement."""
    first, last = _inner(words)
    if last > first and words[last - 1].text == ";":
        last -= 1
    texts = [word.text.upper() for word in words[first:last]]
    if not texts:
        return None
    verb = texts[0]
    if verb in _QUERY_STARTS - {"WITH"} or verb == "(":
        return "", first, last, ""
    if verb in _SHELLS and not (verb == "COPY" and texts[1:2] != ["("]):
        changes = verb != "WITH" or _depth_zero(texts, {"INSERT", "UPDATE", "DELETE", "MERGE"}) is not None
        return ("WITH zskip AS (", first, last, ") SELECT 1") if changes else ("", first, last, "")
    if verb == "CREATE":
        at = _depth_zero(texts, {"AS"})
        if at is None:
            return None
        begin = at + 1 + (texts[at + 1 : at + 2] == ["ENUM"])
        if {"MACRO", "FUNCTION"} & set(texts[1:5]):
            if texts[begin] != "TABLE":
                return "SELECT ", first + begin, last, ""
            begin += 1
        end = len(texts)
        if texts[-1] == "DATA":
            end -= 3 if texts[-2] == "NO" else 2
        return "", first + begin, first + end, ""
    if verb == "MERGE":
        using = _depth_zero(texts, {"USING"}) or 0
        length = _depth_zero(texts[using + 1 :], {"ON", "USING"})
        return None if length is None else ("FROM ", first + using + 1, first + using + 1 + length, "")
    if verb == "CALL":
        return "SELECT ", first + 1, last, ""
    if verb == "SET" and "=" in texts:
        return "SELECT ", first + texts.index("=") + 1, last, ""
    return None


def _inner(words: Sequence[Word]) -> tuple[int, int]:
    """The range of the statement that EXPLAIN explains or PREPARE prepares; of any other statement all words."""
    texts = [word.text.upper() for word in words]
    first = 0
    if texts and texts[0] == "EXPLAIN":
        first = 1 + (texts[1:2] == ["ANALYZE"])
        if texts[first : first + 1] == ["("] and texts[first + 1 : first + 2] != ["("]:
            options = texts[first + 1 : first + 2]
            if options and options[0] not in _QUERY_STARTS:
                first = texts.index(")", first) + 1
    if texts[first : first + 1] == ["PREPARE"]:
        at = _depth_zero(texts[first:], {"AS"})
        first = len(texts) if at is None else first + at + 1
    return first, len(texts)


def explained_start(words: Sequence[Word]) -> int:
    """The offset of the statement that EXPLAIN explains; 0 for any other statement."""
    if words[0].text.upper() != "EXPLAIN":
        return 0
    return words[_inner(words)[0]].start


def stored_query(words: Sequence[Word]) -> range | None:
    """The words of the query in ``CREATE TABLE … AS query`` and ``COPY (query) TO``."""
    texts = [word.text.upper() for word in words]
    if texts[:2] == ["COPY", "("]:
        depths = accumulate((text == "(") - (text == ")") for text in texts)
        return range(2, next((number for number, depth in enumerate(depths) if number and not depth), 2))
    if texts[0] == "CREATE" and "TABLE" in texts[1:5]:
        kept = _query_words(words)
        return None if kept is None else range(kept[1], kept[2])
    return None


def written_path(words: Sequence[Word]) -> Word | None:
    """The word for the path to which ``COPY … TO`` or ``EXPORT DATABASE`` writes; None for other statements."""
    words = words[_inner(words)[0] :]
    texts = [word.text.upper() for word in words]
    before = {"COPY": {"TO"}, "EXPORT": {"DATABASE"}}.get(texts[0] if texts else "")
    at = None if before is None else _depth_zero(texts, before)
    if at is None:
        return None
    if texts[at + 2 : at + 3] == ["TO"]:
        at += 2  # EXPORT DATABASE name TO 'path'
    return words[at + 1] if at + 1 < len(words) else None


def _depth_zero(texts: Sequence[str], wanted: Collection[str]) -> int | None:
    """The first of some words that stands in no parentheses."""
    depth = 0
    for number, text in enumerate(texts):
        depth += (text in "([{" and len(text) == 1) - (text in ")]}" and len(text) == 1)
        if depth == 0 and text in wanted:
            return number
    return None


def has_pivot(words: Sequence[Word]) -> bool:
    """Whether a statement may contain a PIVOT whose columns depend on rows.

    DuckDB runs a part of such a PIVOT to plan it. Over empty tables that may fail, and abort the open transaction.
    """
    return any(word.text.upper() in _PIVOTS for word in words)


def _without_pivots(text: str, words: Sequence[Word]) -> str:
    """The text in which each ``PIVOT t ON …`` is ``FROM  t``, and all other characters keep their places."""
    texts = [word.text.upper() for word in words]
    for number, word in enumerate(words):
        if texts[number] not in _PIVOTS:
            continue
        rest = texts[number + 1 :]
        begin = _depth_zero(rest, {"ON", "USING", "GROUP"})
        if begin is None or (_depth_zero(rest, {")"}) is not None and rest[0] != "(" and ")" in rest[:begin]):
            continue  # FROM t PIVOT (sum(b) FOR a IN (…))
        depth, end = 0, len(rest)
        for at, each in enumerate(rest):
            depth += (each == "(") - (each == ")")
            if depth < 0:
                end = at
                break
        if begin >= end:
            continue
        start, stop = words[number + 1 + begin].start, words[number + end].end
        text = (
            text[: word.start]
            + "FROM".ljust(word.end - word.start)
            + text[word.end : start]
            + (" " * (stop - start))
            + text[stop:]
        )
    return text


# --- the tree ---


def _only_asks_for_rows(select: Mapping[str, Any]) -> bool:
    """Whether a query selects ``*``, on which the number of its rows does not depend."""
    if select["type"] != "SELECT_NODE" or select["modifiers"] or select["aggregate_handling"] != "STANDARD_HANDLING":
        return False
    return all(one["class"] == "STAR" and not one["columns"] and not one["expr"] for one in select["select_list"])


def _reads_all(query: Mapping[str, Any]) -> bool:
    """Whether a query reads all rows that its conditions select: a LIMIT only counts groups."""
    if query["type"] != "SELECT_NODE" or query["qualify"] is not None:
        return False
    return bool(query["group_expressions"]) or all(one["type"] == "ORDER_MODIFIER" for one in query["modifiers"])


def _only_compares(query: Mapping[str, Any]) -> bool:
    """Whether a query's conditions compare columns with constants, or relations with each other, and do nothing else.

    DuckDB skips by the first, and by the keys of a join that it has read, as soon as it reads the footers.
    """
    conditions = [] if query["where_clause"] is None else [query["where_clause"]]
    relations = [query["from_table"]]
    tables = 0
    while relations:
        relation = relations.pop()
        if relation["type"] == "JOIN":
            relations += [relation["left"], relation["right"]]
            conditions += [] if relation["condition"] is None else [relation["condition"]]
        elif relation["type"] == "BASE_TABLE":
            tables += 1
        else:
            return False
    while conditions:
        condition = conditions.pop()
        operands = condition.get("children") or [condition.get(name) for name in _OPERANDS]
        if condition["type"] == "CONJUNCTION_AND":
            conditions += operands
            continue
        kinds = [_constant_kind(operand) for operand in operands if operand is not None]
        with_constants = kinds.count("COLUMN_REF") == 1 and {*kinds} <= _COMPARED
        with_others = tables > 1 and "COLUMN_REF" in kinds and {*kinds} <= {"COLUMN_REF", "FUNCTION"}
        if condition["type"] not in _COMPARISONS or not (with_constants or with_others):
            return False
    return True


def _constant_kind(operand: Mapping[str, Any]) -> Any:
    """The class of an operand; of a cast of a constant, and of arithmetic with constants alone, that of a constant."""
    kind, inner = operand["class"], []
    if kind == "CAST":
        inner = [operand["child"]]
    elif kind == "FUNCTION" and operand["is_operator"]:
        inner = [argument["expression"] for argument in operand["arguments"]]
    return "CONSTANT" if inner and all(_constant_kind(each) == "CONSTANT" for each in inner) else kind


_OPERANDS = ("input", "lower", "upper", "left", "right")
_COMPARISONS = {f"COMPARE_{name}" for name in ("EQUAL", "LESSTHAN", "GREATERTHAN", "BETWEEN", "IN")}
_COMPARISONS |= {f"COMPARE_{name}" for name in ("NOTEQUAL", "LESSTHANOREQUALTO", "GREATERTHANOREQUALTO")}
_COMPARED = {"COLUMN_REF", "CONSTANT", "PARAMETER"}


# Expressions, relations and queries that this module knows. With any other, columns may be reached in any way.
_EXPRESSIONS = frozenset(
    {
        *("CONSTANT", "COLUMN_REF", "FUNCTION", "COMPARISON", "CONJUNCTION", "CAST", "CASE", "BETWEEN", "OPERATOR"),
        *("SUBQUERY", "WINDOW", "PARAMETER", "COLLATE", "STAR", "LAMBDA", "POSITIONAL_REFERENCE", "TYPE"),
    }
)
_RELATIONS = frozenset(
    {
        "BASE_TABLE",
        "TABLE_FUNCTION",
        "SUBQUERY",
        "JOIN",
        "EMPTY",
        "EXPRESSION_LIST",
        "SELECT_NODE",
        "SET_OPERATION_NODE",
    }
)
# The parts of a query that make its rows, and leave none out.
_OF_RESULT = frozenset({"select_list", "from_table", "group_expressions"})
_MODIFIERS = frozenset({"ORDER_MODIFIER", "LIMIT_MODIFIER", "DISTINCT_MODIFIER"})
_ORDERS = frozenset({"ORDER_DEFAULT", "ASCENDING", "DESCENDING"})


def default_alias(name: str) -> str:
    """The alias that DuckDB gives to a path in FROM: its last part, up to a dot after the first character.

    >>> default_alias("lake/conn.v2/")
    '"conn"'
    """
    last = name.rstrip("/").rsplit("/", 1)[-1]
    return identifier(last.split(".", 1)[0] or last or name if "/" in name or "." in name else name)


def unquoted(text: str) -> str:
    """A name as it stands in the text, without its quotes."""
    quote = text[:1]
    return text[1:-1].replace(quote * 2, quote) if quote in ("'", '"') else text


def edited(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The text with the ranges in ``edits``, each ``(start, end, replacement)``, replaced."""
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


class _Scope(NamedTuple):
    """What names mean at a node: the ``ctes``, and the relations whose ``rows`` have names there, without case.

    ``result``: whether the node makes a column of the result, and not under an alias.
    """

    ctes: frozenset[str] = frozenset()
    rows: frozenset[str] = frozenset()
    result: bool = True


def _relations(source: Mapping[str, Any]) -> Iterator[str]:
    """The names of the relations that a FROM clause joins, without those of their subqueries."""
    if source.get("alias"):
        yield source["alias"].casefold()
    elif source["type"] == "BASE_TABLE":
        yield unquoted(default_alias(source["qualified_name"]["path"][-1])).casefold()
    elif source["type"] == "TABLE_FUNCTION":
        yield source["function"]["function_name"].casefold()
    for value in source.values():
        if isinstance(value, dict) and value.get("type") in _RELATIONS and "class" not in value:
            yield from _relations(value)


class _Reader:
    """Collects `Places` from a tree.

    ``character``: the character at a byte of the parsed text.
    """

    def __init__(self, words: Sequence[Word], character: Callable[[int], int]) -> None:
        self.found = Places()
        self._words, self._character = words, character
        self._at = {word.start: number for number, word in enumerate(words)}

    def visit(self, node: Any, scope: _Scope, role: str = "") -> None:
        """Read a node and all below it. ``role``: its name in the node above."""
        if isinstance(node, list):
            for each in node:
                self.visit(each, scope, role)
            return
        if not isinstance(node, dict):
            return
        for entry in node.get("cte_map", {}).get("map", ()):
            self._cte(entry["value"], scope)
            scope = scope._replace(ctes=scope.ctes | {entry["key"].lower()})
        if isinstance(node.get("from_table"), dict):
            scope = scope._replace(rows=scope.rows | set(_relations(node["from_table"])))
        kind = node["type"] if isinstance(node.get("type"), str) else ""
        if node.get("subquery_type") == "EXISTS" and _only_asks_for_rows(select := node["subquery"]["node"]):
            # EXISTS (SELECT * …) reads none of the columns.
            node = {**node, "subquery": {**node["subquery"], "node": {**select, "select_list": []}}}
        if "class" in node:
            self._expression(node, role, scope)
        elif kind and kind not in _MODIFIERS | _ORDERS:
            self._relation(kind, node, scope.ctes)
        for key, value in node.items():
            # The table that DELETE or UPDATE changes is none that the statement reads.
            if key in ("cte_map", "qualified_name") or (key == "table" and isinstance(value, dict)):
                continue
            own = {node["cte_name"].lower()} if kind == "RECURSIVE_CTE_NODE" and key == "right" else set()
            result = scope.result and ("select_list" not in node or key in _OF_RESULT)
            result = result and key != "condition" and not ("class" in node and node["alias"])
            self.visit(value, scope._replace(ctes=scope.ctes | own, result=result), "order" if kind in _ORDERS else key)

    def _arguments(self, call: Mapping[str, Any]) -> Iterator[slice]:
        """The range of each argument of a call in FROM. The tree tells the range of the call alone for certain."""
        start = self._character(call["query_location"])
        end = self._character(call["query_location"] + call["query_location_length"])
        depth, begin = 0, start
        for word in self._words:
            if not start <= word.start < end:
                continue
            depth += (word.text in ("(", "[", "{")) - (word.text in (")", "]", "}"))
            if depth == 1 and word.text == "(":
                begin = word.end
            elif (depth == 1 and word.text == ",") or (depth == 0 and word.text == ")"):
                yield slice(begin, word.start)
                begin = word.end

    def _cte(self, definition: Mapping[str, Any], scope: _Scope) -> None:
        if definition["aliases"]:
            self.found.only_named, self.found.renames = False, True
        self.visit(definition, scope)

    def _relation(self, kind: str, node: Mapping[str, Any], ctes: frozenset[str]) -> None:
        found = self.found
        if kind not in _RELATIONS:
            found.only_named, found.reads_names = False, True
        if (
            node.get("column_name_alias")
            or node.get("ref_type") == "NATURAL"
            or node.get("setop_type") == "UNION_BY_NAME"
        ):
            found.only_named = False
        found.renames |= bool(node.get("column_name_alias")) or kind == "SET_OPERATION_NODE"
        found.renames |= node.get("ref_type") == "NATURAL"
        found.joined.update(map(str.casefold, node.get("using_columns", ())))
        found.grouping_sets |= len(node.get("group_sets", ())) > 1
        if kind == "TABLE_FUNCTION":
            function = node["function"]["function_name"].lower()
            found.table_functions.add(function)
            found.arguments += [(function, argument) for argument in self._arguments(node)]
        if kind == "BASE_TABLE":
            path = node["qualified_name"]["path"]
            if len(path) > 1:
                found.others = True
            elif path[0].lower() not in ctes and (place := self._place(node)) is not None:
                found.tables.append(place)

    def _place(self, node: Mapping[str, Any]) -> Place | None:
        number = self._at.get(self._character(node["query_location"]))
        if number is None:
            return None
        words = self._words
        if words[number + 1 : number + 2] and words[number + 1].text == ":":
            number += 2  # FROM alias : table
        word = words[number]
        bare = number > 0 and _stands_before_name(words, number - 1)
        # TABLE t is a query. The other keywords take one.
        start = words[number - 1].start if bare and words[number - 1].text.upper() == "TABLE" else word.start
        quote = word.text[0] if word.text[0] in "'\"" else ""
        return Place(node["table_name"], quote, start, word.end, bool(node["alias"]), bare)

    def _expression(self, node: Mapping[str, Any], role: str, scope: _Scope) -> None:
        found, kind = self.found, node["class"]
        name = node.get("function_name", "").lower()
        if name and not node.get("is_operator"):
            found.functions.add(name)
        if kind not in _EXPRESSIONS or name in _READS_NAMES:
            found.only_named, found.reads_names = False, True
        elif name in _PACKS_NAMES and not all(one["name"] for one in node["arguments"]):
            found.reads_names = True
        elif kind == "POSITIONAL_REFERENCE":
            found.only_named, found.renames = False, True
        elif kind == "STAR":
            found.only_named = False
            moves = node["replace_list"] or node["rename_list"] or node["expr"] is not None
            found.reads_names |= bool(moves or role != ("order" if node["columns"] else "select_list"))
        elif kind == "CONSTANT":
            found.renames |= role == "order"  # ORDER BY 1
        elif kind == "COLUMN_REF":
            name = node["column_names"][-1].casefold()
            if not scope.result or node["alias"]:  # an alias can be named in a condition
                found.searched.update(map(str.casefold, node["column_names"]))
            alone = len(node["column_names"]) == 1  # behind a qualifier, only a table of a schema would be a row
            if alone and (name in scope.rows or name.startswith("unnamed_subquery")):  # DuckDB's name of one without
                # A row as a value: a struct whose fields have the names of the columns.
                found.only_named, found.reads_names = False, True
