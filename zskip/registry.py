"""The engines by name, so that a plan can hand itself to one without importing it.

`zskip/__init__` enters those of the package. Each is loaded when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zskip.errors import InvalidOption, nearest

__all__ = ["engine", "register"]

_LOADERS: dict[str, Callable[[], Any]] = {}


def register(name: str, load: Callable[[], Any]) -> None:
    """Enter an engine: ``load`` gives the module that holds its functions."""
    _LOADERS[name] = load


def engine(name: str) -> Any:
    """The module of an engine. Raises `InvalidOption` for one that nobody entered, and what loading it raises.

    >>> engine("arrow").__name__
    'zskip.engines.arrow'
    """
    if name not in _LOADERS:
        raise InvalidOption(f'There is no engine "{name}".{nearest(name, _LOADERS)}')
    return _LOADERS[name]()
