"""Checks of options that verbs share, sizes in bytes, and the callback for progress.

Each check raises `InvalidOption` with the option's name and its value, abbreviated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import pyarrow as pa

from zskip.errors import InvalidOption, nearest, shown


def refuse(name: str, what: str, value: object) -> InvalidOption:
    """The error to raise. ``what``: a description of valid values.

    >>> str(refuse("seed", "a whole number", "x"))
    "seed= is a whole number, not 'x'."
    """
    return InvalidOption(f"{name}= is {what}, not {shown(value)}.")


def require_number(name: str, value: Any, *, least: int, most: int = 1 << 62, whole: bool = True) -> None:
    """Requires an integer, or with ``whole=False`` any real number, of at least ``least`` and at most ``most``."""
    known = not isinstance(value, bool) and isinstance(value, Integral if whole else Real)
    if not known or not value >= least:
        raise refuse(name, f"a {'whole ' if whole else ''}number of at least {least}", value)
    if value > most:
        raise refuse(name, f"at most {most:,}", value)


def require_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Requires one of some words; the error suggests the nearest one."""
    if not isinstance(value, str) or value not in choices:
        offered = nearest(value, choices, listed=True) if isinstance(value, str) else ""
        raise InvalidOption(f"{name}= is one of {', '.join(choices)}, not {shown(value)}.{offered}")


def require_path(name: str, value: object) -> None:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in str(value):
        raise refuse(name, "a path", value)


def numbered(keys: Iterable[str]) -> Iterator[str]:
    """The keys of a text's parameters, each empty one as the number after the highest one before it.

    >>> list(numbered(["", "5", "", "name", ""]))
    ['1', '5', '6', 'name', '7']
    """
    highest = 0
    for key in keys:
        key = key or str(highest + 1)
        if key.isdigit() and len(key) < 10:
            highest = max(highest, int(key))
        yield key


def is_encodable(text: str) -> bool:
    """Whether a text can be encoded as UTF-8, which unpaired surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_parameters(params: object) -> None:
    """Requires None, a sequence of values or a mapping of names to values."""
    if params is not None and (isinstance(params, str | bytes | Set) or not isinstance(params, Iterable)):
        raise InvalidOption(f"params= is a list of values, or a mapping of names to values, not {params!r}.")


def require_output(path: str | os.PathLike[str]) -> Path:
    """The file to write; raises `InvalidOption` where it cannot lie there. To call before the work, not after it."""
    require_path("path", path)
    target = Path(path)
    if target.is_dir():
        raise InvalidOption(f'"{target}" is a folder: name a file in it.')
    if not target.parent.is_dir():
        raise InvalidOption(f'There is no folder "{target.parent}" for {target.name}: make it, or name another file.')
    return target


def require_callback(name: str, value: object) -> None:
    if not callable(value):
        raise refuse(name, "a function of a phase, what is done and the total", value)


def _kind(kind: type, what: str) -> Callable[[str, object], None]:
    def require(name: str, value: object) -> None:
        if not isinstance(value, kind):
            raise refuse(name, what, value)

    return require


def _names(name: str, value: object) -> None:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Iterable) or isinstance(names, bytes) or not all(isinstance(one, str) for one in names):
        raise refuse(name, "a name, or a list of names", value)


require_flag = _kind(bool, "True or False")


def is_zone(name: Any) -> bool:
    """Whether Python knows a time zone of this name. It lacks "AET" and a few other legacy names."""
    from zoneinfo import ZoneInfo  # a twentieth of a process's first look-up, which names no zone

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        return False
    return True


def _zone(name: str, value: object) -> None:
    if not is_zone(value):
        from zoneinfo import available_timezones

        offered = nearest(value, available_timezones(), listed=True) if isinstance(value, str) else ""
        raise InvalidOption(f"{refuse(name, 'the IANA name of a time zone', value)}{offered}")


def _store_options(name: str, value: object) -> None:
    if not isinstance(value, Mapping):  # the value may be a secret
        raise InvalidOption(f"{name}= is a mapping of options to values, not a {type(value).__name__}.")


_text = _kind(str, "a text")
_least = {least: partial(require_number, least=least) for least in (0, 1)}
_RULES: dict[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(("deep", "full", "dry_run", "go_back", "alternatives", "recluster"), require_flag),
    **dict.fromkeys(("files", "threads"), _least[1]),
    **dict.fromkeys(("random", "sample", "seed"), _least[0]),
    **dict.fromkeys(("dialect", "log_name"), _text),
    **dict.fromkeys(("duckdb_log", "spark_event_log"), require_path),
    **dict.fromkeys(("columns", "engines"), _names),
    **dict.fromkeys(("storage_options", "target_options"), _store_options),
    "filters": _kind(list, 'a list of filters such as [("a", "=", 1)]'),
    "progress": require_callback,
    "schema": _kind(pa.Schema, "a schema of pyarrow"),
    "sketches": _kind(Mapping, 'a mapping of columns to kinds of sketches, as {"uid": "values"}'),
    "timezone": _zone,
    "statistics": _kind(pa.Table, "a table of pyarrow"),
}


# The other options have None for "not given".
_NEVER_NONE = {name for name, rule in _RULES.items() if rule is require_flag}
_NEVER_NONE |= {"dialect", "random", "seed", "timezone"}


def check_options(**given: object) -> None:
    """Checks options by their names."""
    for name, value in given.items():
        if value is not None or name in _NEVER_NONE:
            _RULES[name](name, value)


# Sizes in bytes: as options give them, and as text for people.

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def bytes_of(value: int | str, name: str) -> int:
    """The size that the option ``name`` gives, in bytes. Raises `InvalidOption`.

    >>> bytes_of("128MB", "file_size"), bytes_of("1.5 GiB", "memory_limit")
    (128000000, 1610612736)
    """
    size = -1
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", value.lower())
        if match and match[2] in _UNITS:
            size = int(float(match[1]) * _UNITS[match[2]])
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    if size < 1:
        raise InvalidOption(f'{name}= is a size above zero, as 128000000 or "128MB", not {shown(value)}.')
    return size


def size_text(count: float) -> str:
    """A size in bytes, in a readable unit.

    >>> size_text(512), size_text(2_042_503), size_text(3 << 30)
    ('512 B', '1.9 MiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


# `Progress`: the callback to which long operations report their progress.

Progress = Callable[[str, int, int | None], None]
"""Called with a phase, such as "footers" or "write", how much of it is done, and the total or None.

Phases count files ("footers", "rows"), predicates ("verify"), or the rows of a write ("read", "sample", "scatter",
"write").
"""


def unreported(phase: str, done: int, total: int | None) -> None:
    """A `Progress` that does nothing."""
