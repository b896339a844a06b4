"""`Upload`: a writable file for stores that accept only complete objects."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import BinaryIO, cast

__all__ = ["Upload"]

_SPOOL_BYTES = 16 << 20


class Upload(tempfile.SpooledTemporaryFile[bytes]):
    """A file buffered in memory, and on disk once it is large; `close` publishes it as one object."""

    def __init__(self, publish: Callable[[BinaryIO], None]) -> None:
        super().__init__(max_size=_SPOOL_BYTES)
        self._publish = publish

    def close(self) -> None:
        if not self.closed:
            self.seek(0)
            try:
                self._publish(cast(BinaryIO, self))
            finally:
                super().close()

    def discard(self) -> None:
        """Close the file without publishing it."""
        super().close()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.discard()
        self.close()
