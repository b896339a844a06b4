"""`open_storage`: open the storage at a path or URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from zskip.core.option_checks import check_options
from zskip.errors import InvalidOption
from zskip.storage.local import LocalStorage
from zskip.storage.secrets import refuse_secrets, without_secrets
from zskip.storage.storage import Storage

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_ONE_SLASH = re.compile(r"(file|memory|s3a?|gs|az|azure|abfss?):/(?!/)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_supported(url: str | os.PathLike[str]) -> bool:
    """Whether `open_storage` accepts an address: a path, or a URL of a known scheme and form.

    >>> is_supported("lake/conn"), is_supported("s3://lake/conn"), is_supported("hdfs://name/lake/conn")
    (True, True, False)
    """
    text = os.fspath(url)
    scheme = _URL.match(text)
    if scheme is None or scheme[1].lower() == "file":
        return True
    from zskip.storage.remote import SCHEMES  # imported here, since local tables need no obstore

    # abfss://container@account/path is Hadoop's form.
    return scheme[1].lower() in SCHEMES and "@" not in text[scheme.end() :].partition("/")[0]


def is_in_store(place: object) -> bool | None:
    """Whether a path or URL, or the first of several, is in an object store; None for what is no path.

    >>> is_in_store("s3://lake/conn"), is_in_store(["lake/a.parquet"]), is_in_store("file:///lake/conn")
    (True, False, False)
    """
    first = place[0] if isinstance(place, (list, tuple)) and place else place
    if not isinstance(first, (str, os.PathLike)):
        return None
    scheme = _URL.match(os.fspath(first))
    return scheme is not None and scheme[1].lower() != "file"


def options_for(url: str, storage: Storage) -> Mapping[str, Any] | None:
    """The options to open a URL that a table in this storage names: its own, for the same kind of store."""
    if storage.local is not None:
        return None
    from zskip.storage.remote import ObjectStorage

    return storage.options_for(url) if isinstance(storage, ObjectStorage) else None


def open_storage(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """The storage at a path or URL: a local path, file://, s3://, gs://, az:// or memory://.

    ``storage_options``: the options of obstore (``aws_region``, ``endpoint``, …, ``client_options``, ``retry_config``);
    the usual environment variables supply missing ones. In a memory:// URL, the word after the slashes names a store
    that lasts as long as the process. Raises `InvalidOption` for an invalid address and for an unknown scheme.
    """
    if not isinstance(url, str | os.PathLike) or not os.fspath(url):
        raise InvalidOption(f"The address of a table is a path or a URL, not {url!r}.")
    check_options(storage_options=storage_options)
    text = os.fspath(url)
    refuse_secrets(text)
    shown = without_secrets(text)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidOption(f"An address cannot contain half of a surrogate pair: {shown!a}.") from None
    if one := _ONE_SLASH.match(text):
        raise InvalidOption(
            f'"{shown}" is not a URL: write {one[1]}:// and the rest. For a folder of that name: "./{shown}".'
        )
    scheme = _URL.match(text)
    if "\0" in unquote(text) if scheme else "\0" in text:
        raise InvalidOption(f"An address cannot contain NUL: {shown!r}.")
    if scheme is None or scheme[1].lower() == "file":
        if storage_options:
            raise InvalidOption(f'storage_options are for object stores; "{shown}" is a local path.')
        return LocalStorage(_path_of(text) if scheme else text)
    if _CONTROL.search(unquote(text)):
        raise InvalidOption(f"A URL cannot contain control characters: {shown!r}.")
    from zskip.storage.remote import open_remote  # imported here, since local tables need no obstore

    return open_remote(text, storage_options or {})


def _path_of(url: str) -> Path:
    """The path of a file:// URL. Raises `InvalidOption` for a host or a fragment, which a path cannot have."""
    parts = urlsplit(url)
    host, shown = without_secrets(f"file://{parts.netloc}").removeprefix("file://"), without_secrets(url)
    if host not in ("", "localhost"):
        raise InvalidOption(f'"{shown}" is on the host "{host}". A path on this machine: file:///{host}…')
    if parts.query or parts.fragment:
        raise InvalidOption(
            f'In "{shown}" write %3F for a question mark and %23 for a number sign, or give the plain path.'
        )
    return Path(unquote(parts.path))
