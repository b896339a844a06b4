"""Which conditions of a statement every row of a table must meet to contribute to its result.

A row of a table that stands in FROM contributes nothing where a condition on it alone is not TRUE and

| the condition stands in         | and the table is                                           |
| ------------------------------- | ---------------------------------------------------------- |
| WHERE                           | in FROM, or joined; see below for outer joins              |
| ON of an inner or a SEMI join   | either side                                                |
| ON of a LEFT or an ANTI join    | the right side: rows that match nothing change nothing     |
| ON of a RIGHT join              | on the left of it                                          |
| ON of a FULL or an ASOF join    | neither                                                    |

A table whose rows an outer join may replace by NULLs loses a match where rows are left out, and an all-NULL row may
come in its place; so there the condition must also refuse that row, which is marked ``rejects_null``.
A condition on a derived table or CTE goes down to the columns that it passes through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

__all__ = ["Conjunct", "Scopes"]

ColumnType = str


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A condition on one table alone. ``rejects_null``: it counts only if it is not TRUE for a row of NULLs."""

    condition: exp.Expr
    rejects_null: bool = False


@dataclass(frozen=True, slots=True)
class _Source:
    """One item of FROM. ``extended``: an outer join may make its rows NULL; ``closed``: nothing is known of it;
    ``hidden``: only its own join's ON may name it."""

    node: exp.Expr
    alias: str
    extended: bool = False
    closed: bool = False
    hidden: bool = False


class Scopes:
    """The conjuncts on each known table of a statement, found in one walk.

    ``columns``: a known table node → its top-level columns by lower-case name, with their types as text; None for any
    other table.
    """

    def __init__(self, statement: exp.Expr, columns: Callable[[exp.Table], Mapping[str, ColumnType] | None]) -> None:
        self._columns = columns
        self._references = _cte_references(statement)
        self.conjuncts: dict[int, list[Conjunct]] = {}
        self._visited: set[int] = set()
        for query in _outermost_queries(statement):
            self._visit(query, [])

    def of(self, table: exp.Table) -> Sequence[Conjunct]:
        """The conjuncts on this table."""
        return self.conjuncts.get(id(table), ())

    def is_cte(self, table: exp.Table) -> bool:
        """Whether this table is a CTE of the statement, which stands before any other table of its name."""
        return id(table) in self._references

    def _visit(self, query: exp.Expr, pushed: Sequence[Conjunct]) -> None:
        """Walk one query; ``pushed`` are conditions on its output columns, by name and without qualifier."""
        if id(query) in self._visited:
            return
        self._visited.add(id(query))
        if isinstance(query, exp.Subquery):
            whole = not any(query.args.get(part) for part in ("limit", "offset", "sample", "pivots", "joins"))
            self._visit(query.this, pushed if whole else ())
        elif isinstance(query, exp.SetOperation):
            self._visit_set_operation(query, pushed)
        elif isinstance(query, exp.Select):
            self._visit_select(query, pushed)
        for inner in _inner_queries(query):
            self._visit(inner, ())

    def _visit_set_operation(self, query: exp.SetOperation, pushed: Sequence[Conjunct]) -> None:
        left, right = query.left, query.right
        plain = isinstance(query, exp.Union) and not any(
            query.args.get(part) for part in ("limit", "offset", "by_name")
        )
        mapped: list[Conjunct] = []
        if plain and pushed:
            names, others = self._output(left), self._output(right)
            if names is not None and others is not None and len(names) == len(others):
                # A union casts its sides to one type, after which a condition may mean something else.
                pairs = {
                    name: other
                    for (name, type), (other, other_type) in zip(names, others, strict=True)
                    if type is not None and type == other_type
                }
                usable = [c for c in pushed if all(column.name.lower() in pairs for column in _columns(c.condition))]
                self._visit(left, usable)
                mapped = [_renamed(c, pairs) for c in usable]
        self._visit(left, ())
        self._visit(right, mapped)

    def _visit_select(self, query: exp.Select, pushed: Sequence[Conjunct]) -> None:
        sources = _sources(query)
        found: list[Conjunct] = []
        if not query.args.get("sample") and not query.args.get("match"):
            found += [Conjunct(part) for part in _flat(query.args.get("where"))]
            found += [inward for c in pushed if (inward := self._inward(query, sources, c)) is not None]
        for index, source in enumerate(sources):
            if source.closed:
                self._enter(source, ())
                continue
            after = [] if source.hidden else [(c.condition, source.extended or c.rejects_null) for c in found]
            mine = [
                Conjunct(_unqualified(condition, source.alias), rejects_null)
                for condition, rejects_null in [*after, *_join_conditions(query, index, source)]
                if self._is_on(condition, index, sources, query)
            ]
            self._enter(source, mine)

    def _enter(self, source: _Source, conjuncts: Sequence[Conjunct]) -> None:
        node = source.node
        if isinstance(node, exp.Table):
            definition = self._references.get(id(node))
            if definition is not None:
                cte, count = definition
                # A CTE that is read twice serves both readers: neither may narrow it.
                if count == 1 and not cte.args["alias"].columns:
                    self._visit(cte.this, conjuncts)
            elif self._columns(node) is not None:
                self.conjuncts.setdefault(id(node), []).extend(conjuncts)
        elif isinstance(node, exp.Subquery):
            alias = node.args.get("alias")
            self._visit(node, () if alias is not None and alias.columns else conjuncts)

    def _inward(self, query: exp.Select, sources: Sequence[_Source], conjunct: Conjunct) -> Conjunct | None:
        """A condition on output columns as one on the columns behind them; None where it does not pass."""
        if any(query.args.get(part) for part in ("limit", "offset", "qualify", "windows", "having")):
            return None
        distinct, group = query.args.get("distinct"), query.args.get("group")
        if distinct is not None and distinct.args.get("on"):
            return None
        if any(_belongs_to(node, query) for node in query.find_all(exp.Window)):
            return None
        behind = {}
        for column in _columns(conjunct.condition):
            expression = _projected(query, column.name)
            if expression is None:
                return None
            behind[column.name.lower()] = expression
        if group is not None:
            if set(group.args) - {"expressions"} and any(
                group.args[part] for part in group.args if part != "expressions"
            ):
                return None
            keys = {key.sql("duckdb", normalize=True) for key in group.expressions}
            if not all(expression.sql("duckdb", normalize=True) in keys for expression in behind.values()):
                return None
        elif any(_belongs_to(node, query) for node in query.find_all(exp.AggFunc)) or not _plain_projections(query):
            return None

        def swap(node: exp.Expr) -> exp.Expr:
            return _extended(behind[node.name.lower()], node) if isinstance(node, exp.Column) else node

        return replace(conjunct, condition=conjunct.condition.transform(swap))

    def _is_on(self, condition: exp.Expr, index: int, sources: Sequence[_Source], query: exp.Select) -> bool:
        """Whether a condition reads this source alone. A source whose columns are not known claims no bare name."""
        columns = list(_columns(condition))
        if not columns or condition.find(exp.Query, exp.Window, exp.AggFunc, exp.Star, exp.Lambda):
            return False
        return all(self._belongs(column, index, sources, query) for column in columns)

    def _belongs(self, column: exp.Column, index: int, sources: Sequence[_Source], query: exp.Select) -> bool:
        first = column.parts[0].name.lower()
        if len(column.parts) > 1:
            named = [number for number, source in enumerate(sources) if source.alias == first]
            if named:
                return named == [index]
        names = self._names(sources[index])
        if names is None or first not in names:
            return False
        joins = query.args.get("joins") or ()
        # USING makes one column of two: the leftmost one's, unless the other side is the preserved one.
        return not any(_merges(join, first) for join in joins) or (index == 0 and not any(map(_preserves_right, joins)))

    def _names(self, source: _Source) -> Mapping[str, object] | None:
        node = source.node
        if isinstance(node, exp.Table):
            definition = self._references.get(id(node))
            if definition is None:
                return self._columns(node)
            node = definition[0].this
        output = self._output(node)
        return None if output is None else dict(output)

    def _output(self, query: exp.Expr) -> list[tuple[str, ColumnType | None]] | None:
        """A query's output columns, lower-case, with their types where they are a known table's; None if unknown."""
        if isinstance(query, exp.Subquery):
            return self._output(query.this)
        if isinstance(query, exp.SetOperation):
            left, right = self._output(query.left), self._output(query.right)
            if left is None or right is None or len(left) != len(right) or query.args.get("by_name"):
                return None
            return [
                (name, type if type == other else None) for (name, type), (_, other) in zip(left, right, strict=True)
            ]
        if not isinstance(query, exp.Select):
            return None
        sources = _sources(query)
        output: list[tuple[str, ColumnType | None]] = []
        for projection in query.expressions:
            if isinstance(projection, exp.Star):
                only = self._names(sources[0]) if len(sources) == 1 else None
                if only is None or any(projection.args.values()):
                    return None
                output += [(name, type if isinstance(type, str) else None) for name, type in only.items()]
                continue
            name = projection.alias_or_name.lower()
            expression = projection.unalias()
            if not name or expression.find(exp.Star, exp.Columns, exp.Explode, exp.Unnest, exp.Anonymous):
                return None
            type = None
            if isinstance(expression, exp.Column):
                owners = [i for i in range(len(sources)) if self._belongs(expression, i, sources, query)]
                names = self._names(sources[owners[0]]) if len(owners) == 1 else None
                known = (names or {}).get(expression.parts[-1].name.lower())
                type = known if isinstance(known, str) and len(expression.parts) <= 2 else None
            output.append((name, type))
        return output if len({name for name, _ in output}) == len(output) else None


def _sources(query: exp.Select) -> list[_Source]:
    """The items of FROM and of its joins, in order, with what the joins make of them."""
    first = query.args.get("from_")
    if first is None:
        return []
    sources = [_source(first.this)]
    for join in query.args.get("joins") or ():
        side, kind, method = (str(join.args.get(part) or "").upper() for part in ("side", "kind", "method"))
        right = _source(join.this)
        if method not in ("", "NATURAL", "ASOF") or kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
            sources = [replace(source, closed=True) for source in [*sources, right]]
            continue
        if method == "ASOF":
            # The nearest row is chosen among all of the right side's.
            right = replace(right, closed=True)
            if side in ("RIGHT", "FULL"):
                sources = [replace(source, closed=True) for source in sources]
        if side in ("RIGHT", "FULL"):
            sources = [replace(source, extended=True) for source in sources]
        hidden = kind in ("SEMI", "ANTI")
        sources.append(replace(right, extended=side in ("LEFT", "FULL"), hidden=hidden))
    return sources


def _source(node: exp.Expr) -> _Source:
    parts = ("pivots", "sample", "joins", "laterals", "when", "version", "ordinality")
    alias = node.args.get("alias")
    closed = any(node.args.get(part) for part in parts) or bool(alias is not None and alias.columns)
    if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query):
        closed = True
    name = node.alias_or_name
    if isinstance(node, exp.Table) and alias is None:
        name = default_alias(name)
    return _Source(node, name.lower(), closed=closed)


def default_alias(path: str) -> str:
    """The name under which a path in FROM is known: its last part, up to a dot that does not begin it.

    >>> default_alias("lake/conn"), default_alias("lake/conn.v2/"), default_alias("lake/.conn")
    ('conn', 'conn', '.conn')
    """
    last = path.rstrip("/").rsplit("/", 1)[-1]
    return last.split(".", 1)[0] or last or path if "/" in path or "." in path else path


def _join_conditions(query: exp.Select, index: int, source: _Source) -> Iterator[tuple[exp.Expr, bool]]:
    """ON conditions that a source's rows must meet, by the table at the top; with whether NULLs must be refused."""
    joins = query.args.get("joins") or ()
    if query.args.get("sample"):
        return
    for number, join in enumerate(joins, start=1):
        side, kind, method = (str(join.args.get(part) or "").upper() for part in ("side", "kind", "method"))
        if method == "ASOF" or side == "FULL":
            continue
        right = number == index
        if number < index:
            continue
        if side == "LEFT" or kind == "ANTI":
            usable = right
        elif side == "RIGHT":
            usable = not right
        else:
            usable = True
        if usable:
            for part in _flat(join.args.get("on")):
                yield part, source.extended and not right


def _flat(clause: exp.Expr | None) -> list[exp.Expr]:
    """The terms of a conjunction, parentheses taken off."""
    if clause is None:
        return []
    pending, terms = [clause.this if isinstance(clause, exp.Where) else clause], []
    while pending:
        term = pending.pop().unnest()
        if isinstance(term, exp.And):
            pending += [term.expression, term.this]
        else:
            terms.append(term)
    return terms


def _columns(condition: exp.Expr) -> Iterator[exp.Column]:
    return condition.find_all(exp.Column)


def _merges(join: exp.Join, name: str) -> bool:
    using = join.args.get("using") or ()
    return join.args.get("method") == "NATURAL" or any(column.name.lower() == name for column in using)


def _preserves_right(join: exp.Join) -> bool:
    return str(join.args.get("side") or "").upper() in ("RIGHT", "FULL")


def _unqualified(condition: exp.Expr, alias: str) -> exp.Expr:
    """The condition with a source's own name taken off its columns."""

    def strip(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and len(node.parts) > 1 and node.parts[0].name.lower() == alias:
            return _column(node.parts[1:])
        return node

    return condition.transform(strip) if any(column.args.get("table") for column in _columns(condition)) else condition


def _column(parts: Sequence[exp.Expr]) -> exp.Expr:
    names = ("catalog", "db", "table", "this")[-len(parts) :]
    return exp.Column(**{name: part.copy() for name, part in zip(names, parts, strict=True)})


def _extended(behind: exp.Column, node: exp.Column) -> exp.Expr:
    """The column behind an output column; a field of the output stays a field of what is behind it."""
    return (
        behind.copy() if len(node.parts) == 1 else exp.Dot.build([behind.copy(), *(p.copy() for p in node.parts[1:])])
    )


def _renamed(conjunct: Conjunct, names: Mapping[str, str]) -> Conjunct:
    def rename(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            return exp.column(exp.to_identifier(names[node.name.lower()], quoted=True))
        return node

    return replace(conjunct, condition=conjunct.condition.copy().transform(rename))


def _projected(query: exp.Select, name: str) -> exp.Column | None:
    """The plain column that a query passes through under this name; None where there is none, or two."""
    named = [p for p in query.expressions if not isinstance(p, exp.Star) and p.alias_or_name.lower() == name.lower()]
    if len(named) == 1:
        expression = named[0].unalias()
        return expression if isinstance(expression, exp.Column) and not expression.find(exp.Star) else None
    stars = [p for p in query.expressions if isinstance(p, exp.Star)]
    if named or len(stars) != 1 or len(query.expressions) != 1 or any(stars[0].args.values()):
        return None
    return exp.column(exp.to_identifier(name, quoted=True))


def _plain_projections(query: exp.Select) -> bool:
    """Whether no projection folds rows: a function that is not known might be an aggregate."""
    return not any(
        _belongs_to(node, query) for p in query.expressions for node in p.find_all(exp.Anonymous, exp.Columns)
    )


def _belongs_to(node: exp.Expr, query: exp.Select) -> bool:
    return node.parent_select is query


def _outermost_queries(statement: exp.Expr) -> list[exp.Expr]:
    if isinstance(statement, exp.Query):
        return [statement]
    found = [node for node in statement.find_all(exp.Query) if node.find_ancestor(exp.Query) is None]
    return list(found)


def _inner_queries(query: exp.Expr) -> list[exp.Expr]:
    """Queries nested right below a query: subqueries of every place, and CTEs."""
    return [node for node in query.find_all(exp.Query) if node is not query and node.find_ancestor(exp.Query) is query]


def _cte_references(statement: exp.Expr) -> dict[int, tuple[exp.CTE, int]]:
    """Each table node that names a CTE, with that CTE and how often it is read."""
    found: dict[int, exp.CTE] = {}
    for table in statement.find_all(exp.Table):
        cte = None if table.args.get("db") else _definition(table)
        if cte is not None:
            found[id(table)] = cte
    counts = Counter(id(cte) for cte in found.values())
    return {table: (cte, counts[id(cte)]) for table, cte in found.items()}


def _definition(table: exp.Table) -> exp.CTE | None:
    """The CTE that a table's name stands for: the innermost that is in sight."""
    inside: exp.Expr = table
    scope = table.parent
    while scope is not None:
        with_ = scope.args.get("with_")
        ctes: list[exp.CTE] = with_.expressions if with_ is not None else []
        for cte in ctes:
            if cte is inside and not (with_ and with_.args.get("recursive")):
                break
            if cte.alias.lower() == table.name.lower():
                return cte
        if isinstance(scope, exp.CTE):
            inside = scope
        scope = scope.parent
    return None
