"""Names that a package imports on first use, so that a process loads only what it calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: ``homes`` has the module that defines each name.

    A name that is also a module of the package is this module.

    >>> lazy_names("collections", {"Sequence": "collections.abc"})("Sequence").__name__
    'Sequence'
    """

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == f"{package}.{name}":
            return import_module(homes[name])
        return getattr(import_module(homes[name]), name)

    return found
