"""Translate errors of an object store's client into those of a file system, with the address and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions

from zskip.errors import TableError, first_line
from zskip.storage.secrets import without_secrets

__all__ = ["client_message", "shorten", "translated"]

_PAGE = "See docs/object-stores.md."
# A pattern in the client's message → the cause and the remedy. The first match counts.
_CAUSES = {
    r"169\.254\.169\.254|/latest/api/token": "no credentials were found, and this machine has no role of its own. "
    'Give keys or a profile as storage_options or by the environment; a public bucket needs "skip_signature": True',
    r"without LOCATION|PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint": "the bucket is in "
    'another region. Give it as "region" in storage_options, or as AWS_REGION',
    r"NoSuchBucket|ContainerNotFound|Error performing list request.*404 Not Found": "there is no such bucket or "
    "container at this endpoint. Create it, or correct its name",
    "builder error": 'an endpoint that begins with http:// needs "allow_http": True in storage_options',
    "error sending request|dns error": "no answer came from there. Check the endpoint, or the name of the account",
    "InvalidAccessKeyId": "the store does not know this access key",
    "SignatureDoesNotMatch|AuthenticationFailed": "the secret key, or the signature, is not that of the access key",
}
# The client has no separate error for a listing that is refused.
_REFUSED = re.compile(r"status code: 40[13] ")


@contextmanager
def translated(uri: str, path: str) -> Iterator[None]:
    """Raise `FileNotFoundError`, `PermissionError` or `TableError` in place of an error from the store's client."""
    try:
        yield
    except FileNotFoundError as error:
        shorten(error)
        raise FileNotFoundError(f"{uri}/{path} does not exist.") from error
    except exceptions.BaseError as error:
        kinds = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        refused = isinstance(error, kinds) or _REFUSED.search(str(error)) is not None
        kind = PermissionError if refused else TableError
        what = f"The store {'refuses access to' if refused else 'failed at'} {uri}/{path}"
        cause = _cause(error, refused)
        shorten(error)
        raise kind(f"{what}: {cause}") from error


def shorten(error: BaseException | None) -> None:
    """Reduce a client's error, and those before it, to `client_message`: tracebacks and logs show chained errors."""
    while error is not None:
        if isinstance(error, exceptions.BaseError | FileNotFoundError):
            error.args = (client_message(error),)
        error = error.__cause__ or error.__context__


def _cause(error: Exception, refused: bool) -> str:
    text = str(error)
    for pattern, cause in _CAUSES.items():
        if re.search(pattern, text, re.DOTALL):
            return f"{cause}. {_PAGE}"
    if refused:
        return f"these credentials may not do that, or there are none. {_PAGE} ({client_message(error)})"
    return client_message(error)


def client_message(error: BaseException) -> str:
    """The first line of a client's message, without secrets; the other lines dump its internal structures."""
    return without_secrets(first_line(error))
