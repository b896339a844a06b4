"""Sizes in bytes: as options give them, and as text for people."""

from __future__ import annotations

import re

from zskip.errors import InvalidOption, shown

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
