"""Secrets in URLs: a user or a key before the host, a signature in the query. They are refused and never shown."""

from __future__ import annotations

import re

from zskip.errors import InvalidOption

__all__ = ["refuse_secrets", "refuse_user", "without_secrets"]

_USER = re.compile(r"(://)[^/?#\s\"']*@")
_QUERY = re.compile(r"(://[^?\s\"']*\?)[^\s\"',;)]+")


def without_secrets(text: str) -> str:
    """A text with possible secrets in its URLs replaced by ….

    >>> without_secrets("cannot open s3://KEY:SECRET@lake/t and https://a/b?sig=abc: no")
    'cannot open s3://…@lake/t and https://a/b?… no'
    """
    return _QUERY.sub(r"\1…", _USER.sub(r"\1…@", text))


def refuse_secrets(url: str) -> None:
    """Raise `InvalidOption` for a URL with a key or a query.

    A name without a key before the host is valid in Hadoop's URLs: abfss://container@account/path.
    """
    user, at, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    if at and ":" in user:
        raise InvalidOption(
            f'"{without_secrets(url)}" has a key before its bucket. Write the bucket alone, and give keys as '
            "storage_options or by the environment."
        )
    if "?" in url:
        raise InvalidOption(
            f'"{without_secrets(url)}" has a query. Give a signature as storage_options; for a question mark in a name '
            "write %3F."
        )


def refuse_user(url: str) -> None:
    """Raise `InvalidOption` for a URL with anything before its bucket."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InvalidOption(
            f'"{without_secrets(url)}" has a name before its bucket. Write the bucket or container alone, as in '
            "az://container/path; the account and its key are storage_options, or come from the environment."
        )
