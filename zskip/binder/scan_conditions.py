"""The conditions of a statement that apply to its scans of a table, derived from the statement's text.

They guide layouts and prove nothing: plans take their conditions from the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp


class Scans:
    """The scans of a table in a parsed statement.

    ``on_table``: rewrites a condition in terms of the table's columns, or returns None if it reads anything else ·
    ``is_table``: whether a relation may be the table.
    """

    def __init__(
        self, statement: exp.Expr, on_table: Callable[[exp.Expr], str | None], is_table: Callable[[exp.Table], bool]
    ) -> None:
        self._statement, self._on_table, self._is_table = statement, on_table, is_table
        self._ctes = {cte.alias.lower(): cte for cte in statement.find_all(exp.CTE)}
        self._aliases = {
            source.alias_or_name.lower()
            for source in statement.find_all(exp.Table, exp.Subquery)
            if source.alias_or_name
        }

    def __iter__(self) -> Iterator[tuple[exp.Select, list[str]]]:
        """Each scan with conditions on the table's columns, as its SELECT and these conditions.

        Conditions without a table's name apply to every scan of the SELECT that has a condition with its name. If no
        scan has one, they count as the conditions of a single scan.
        """
        for select in self._statement.find_all(exp.Select):
            scanned = [alias for alias, source in _sources(select).items() if self._is_scan(source)]
            if not scanned:
                continue
            qualified: dict[str, list[str]] = {}
            unqualified: list[str] = []
            for part in self._reaching(select):
                condition, qualifiers = self._on_table(part), self._qualifiers(part)
                if condition is None:
                    continue
                if not qualifiers:
                    unqualified.append(condition)
                elif len(qualifiers) == 1 and (alias := qualifiers.pop()) in scanned:
                    qualified.setdefault(alias, []).append(condition)
            for parts in qualified.values() or [[]]:
                if parts or unqualified:
                    yield select, list(dict.fromkeys([*parts, *unqualified]))

    def _is_scan(self, source: exp.Expr) -> bool:
        return isinstance(source, exp.Table) and not self._is_cte(source) and self._is_table(source)

    def _is_cte(self, table: exp.Table) -> bool:
        return not table.db and table.name.lower() in self._ctes

    def _reaching(self, select: exp.Select) -> list[exp.Expr]:
        """The conditions on the input rows of a SELECT: its own, and those of the SELECT that reads its result."""
        where = select.args.get("where")
        parts = [] if where is None else list(_conjuncts(where.this))
        if (reader := self._reader(select)) is not None:
            through = (self._through(select, part, reader[1]) for part in self._reaching(reader[0]))
            parts += [part for part in through if part is not None]
        # The caller joins them by AND, so an OR needs parentheses.
        return parts if len(parts) == 1 else [exp.paren(part) if isinstance(part, exp.Or) else part for part in parts]

    def _reader(self, select: exp.Select) -> tuple[exp.Select, str] | None:
        """The only SELECT that reads the result of a derived table or CTE, and its alias for the result."""
        query: exp.Expr = select
        while isinstance(query, exp.Query) and not _changes_rows(query):
            holder = query.parent
            if isinstance(holder, exp.CTE):
                uses = [
                    table
                    for table in self._statement.find_all(exp.Table)
                    if self._is_cte(table) and table.name.lower() == holder.alias.lower()
                ]
                if len(uses) != 1 or any(each is holder for each in _ancestors(uses[0])):
                    return None
                query = uses[0]
                break
            if holder is None or isinstance(holder, exp.From | exp.Join):
                break
            query = holder
        above = query.find_ancestor(exp.Select)
        if above is None or not isinstance(query.parent, exp.From | exp.Join) or _changes_rows(query):
            return None
        return above, query.alias_or_name.lower()

    def _through(self, select: exp.Select, part: exp.Expr, alias: str) -> exp.Expr | None:
        """A condition on the result of a SELECT, rewritten as a condition on its input; None if that is impossible."""
        if self._qualifiers(part) - {alias} or part.find(exp.Query) is not None:
            return None
        outputs = {each.alias_or_name.lower(): each.unalias() for each in select.expressions}
        star = any(each.is_star for each in select.expressions)
        found = part.copy()
        for column in list(found.find_all(exp.Column)):
            if column.table.lower() == alias:
                column.set("table", None)
            first = column.parts[0].name.lower()
            inner = outputs.get(first)
            if inner is None and star:
                continue
            if inner is None or len(column.parts) > 1 or inner.find(exp.AggFunc, exp.Window, exp.Query) is not None:
                return None
            inner = inner.copy() if isinstance(inner, exp.Column) else exp.Paren(this=inner.copy())
            if column is found:
                return inner
            column.replace(inner)
        return found

    def _qualifiers(self, part: exp.Expr) -> set[str]:
        """The table names that qualify a condition's columns. The name of a struct is not one."""
        first = (column.parts[0].name.lower() for column in part.find_all(exp.Column) if len(column.parts) > 1)
        return {name for name in first if name in self._aliases}


def _sources(select: exp.Select) -> dict[str, exp.Expr]:
    """The relations that a SELECT reads, by alias or name in lower case."""
    origin = select.args.get("from_")
    sources = [] if origin is None else [origin.this]
    sources += [join.this for join in select.args.get("joins") or ()]
    return {source.alias_or_name.lower(): source.unnest() for source in sources}


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    return condition.flatten() if isinstance(condition, exp.And) else iter([condition])


def _changes_rows(query: exp.Expr) -> bool:
    """Whether filtering a query's input differs from filtering its result: with LIMIT, windows, DISTINCT ON."""
    if any(query.args.get(name) is not None for name in ("limit", "offset", "qualify")):
        return True
    distinct = query.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None:
        return True
    return isinstance(query, exp.Select) and any(each.find(exp.Window) is not None for each in query.expressions)


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node
