"""`open_storage`: which storage an address names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from zskip.errors import InvalidOption
from zskip.sidecar.local import LocalStorage
from zskip.sidecar.storage import Storage

__all__ = ["open_storage"]


def open_storage(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """The storage at a path or URL: a local path, file://, s3://, gs://, az:// or memory://.

    ``storage_options`` are the keys that obstore knows (``aws_region``, ``endpoint``, …, ``client_options``,
    ``retry_config``); what they leave out comes from the usual environment. A memory:// store lives as long as the
    process, one for each name after the slashes. Raises `InvalidOption` for a scheme that is not known.
    """
    text = os.fspath(url)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", text)
    if scheme is None or scheme[1].lower() == "file":
        if storage_options:
            raise InvalidOption(f'storage_options are for object stores; "{text}" is a local path.')
        return LocalStorage(Path(unquote(urlsplit(text).path)) if scheme else Path(text))
    from zskip.sidecar.remote import open_remote  # obstore is loaded where it is needed

    return open_remote(text, storage_options or {})
