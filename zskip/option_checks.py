"""Checks of options that verbs share. Each raises `InvalidOption`, with the option's name and the value, cut short."""

from __future__ import annotations

import os
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

from zskip.errors import InvalidOption, nearest

__all__ = ["refuse", "require_callback", "require_choice", "require_flag", "require_number", "require_path", "shown"]

_LONGEST = 60


def shown(value: object) -> str:
    """A value as messages show it.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
    """
    try:
        text = repr(value)
    except ValueError:
        # Python does not write integers of more than 4,300 digits.
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def refuse(name: str, what: str, value: object) -> InvalidOption:
    """The error to raise. ``what`` the option is.

    >>> str(refuse("seed", "a whole number", "x"))
    "seed= is a whole number, not 'x'."
    """
    return InvalidOption(f"{name}= is {what}, not {shown(value)}.")


def require_number(name: str, value: Any, *, least: int, most: int = 1 << 62, whole: bool = True) -> None:
    """An integer, or with ``whole=False`` any real number, of at least ``least`` and at most ``most``."""
    known = not isinstance(value, bool) and isinstance(value, Integral if whole else Real)
    if not known or not value >= least:
        raise refuse(name, f"a {'whole ' if whole else ''}number of at least {least}", value)
    if value > most:
        raise refuse(name, f"at most {most:,}", value)


def require_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """One of some words; the nearest is offered."""
    if not isinstance(value, str) or value not in choices:
        offered = nearest(value, choices) if isinstance(value, str) else ""
        raise InvalidOption(f"{name}= is one of {', '.join(choices)}, not {shown(value)}.{offered}")


def require_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise refuse(name, "True or False", value)


def require_path(name: str, value: object) -> None:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in str(value):
        raise refuse(name, "a path", value)


def require_callback(name: str, value: object) -> None:
    if not callable(value):
        raise refuse(name, "a function of a phase, what is done and the total", value)
