"""The engines by name, so that a plan can call one without importing it.

`zskip/__init__` registers those of the package. Each is loaded on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zskip.errors import InvalidOption, nearest

_LOADERS: dict[str, Callable[[], Any]] = {}


def register(name: str, load: Callable[[], Any]) -> None:
    """Register an engine: ``load`` returns the module that holds its functions."""
    _LOADERS[name] = load


def engine(name: str) -> Any:
    """The module of an engine. Raises `InvalidOption` for an unknown engine, and the errors of loading the module.

    >>> engine("arrow").__name__
    'zskip.engines.arrow'
    """
    if name not in _LOADERS:
        raise InvalidOption(f'There is no engine "{name}".{nearest(name, _LOADERS)}')
    return _LOADERS[name]()
