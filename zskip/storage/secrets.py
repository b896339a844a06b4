"""Secrets in URLs: a user or a key before the host, a signature in the query. zskip refuses and never shows them."""

from __future__ import annotations

import re
from urllib.parse import unquote

from zskip.errors import InvalidOption

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+:[/:]*"
# A key may contain slashes, KEY:SEC/RET@bucket; but a port is not a key, hdfs://name:8020/user/@me.
_USER = re.compile(
    rf"((?<![A-Za-z0-9+.-]){_SCHEME})(?:[^/?#\s\"'@:]*|[^/\s\"']*(?::|%3a)(?!\d*/)[^\s\"']*)(?:@|%40)", re.IGNORECASE
)
_QUERY = re.compile(r"(:/+[^\s\"'?]*?(?:\?|[#;](?=[\w.-]+=)))[^\s\"']+")
_KEY = re.compile(rf"[\s\"']*{_SCHEME}[^/@]*:(?!\d*/)[^@]*@")
_MISTYPED_URL = re.compile(rf"[\s\"']*{_SCHEME}[^/]*@")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SPACED_URL = re.compile(rf"[\s\"']+{_URL.pattern}")


def without_secrets(text: str) -> str:
    """A text in which … replaces possible secrets of URLs and of mistyped ones.

    >>> without_secrets("cannot open s3://KEY:SEC/RET@lake/t, s3:/KEY@lake or https://a/b?sig=abc now")
    'cannot open s3://…@lake/t, s3:/…@lake or https://a/b?… now'
    """
    return _QUERY.sub(r"\1…", _USER.sub(r"\1…@", text))


def refuse_secrets(url: str) -> None:
    """Raise `InvalidOption` for a URL with a key or a query, a mistyped URL with a user, and a URL after white space.

    A name without a key before the host is valid in Hadoop's URLs: abfss://container@account/path.
    """
    shown, is_url = without_secrets(url.strip()), _URL.match(url)
    if _KEY.match(unquote(url)):
        raise InvalidOption(
            f'"{shown}" has a key before its bucket. Write the bucket alone, and give keys as storage_options or by '
            "the environment."
        )
    if _SPACED_URL.match(url):
        raise InvalidOption(f'The address "{shown}" begins with white space or a quote. Remove it.')
    if not is_url and _MISTYPED_URL.match(url):
        raise InvalidOption(
            f'"{shown}" is not a URL, but has a name before an "@". Write scheme://bucket/path; for a folder of that '
            "name, write ./ before it."
        )
    if is_url and ("?" in url or _QUERY.search(url)):
        raise InvalidOption(
            f'"{shown}" has a query or parameters. Give a signature as storage_options; in a name write %3F for a '
            "question mark, %23 for a number sign and %3B for a semicolon."
        )


def refuse_user(url: str) -> None:
    """Raise `InvalidOption` for a URL with anything before its bucket."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InvalidOption(
            f'"{without_secrets(url)}" has a name before its bucket. Write the bucket or container alone, as in '
            "az://container/path; the account and its key are storage_options, or come from the environment."
        )
