"""`ObjectStorage`: a table in S3, Google Cloud Storage, Azure or this process's memory, through obstore."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import quote, unquote

import obstore
import pyarrow as pa
from obstore import exceptions, store

from zskip.errors import InvalidOption, MissingDependency, TableError, UnsupportedStore, first_line, nearest, shown
from zskip.storage.secrets import refuse_user, without_secrets
from zskip.storage.storage import Listing, table_path, unsafe_paths

if TYPE_CHECKING:
    import fsspec


_STORES: Mapping[str, Any] = {
    "s3": store.S3Store,
    "s3a": store.S3Store,
    "gs": store.GCSStore,
    "az": store.AzureStore,
    "azure": store.AzureStore,
    "abfs": store.AzureStore,
    "abfss": store.AzureStore,
}
SCHEMES = frozenset({"memory", *_STORES})
_MEMORY: dict[str, store.MemoryStore] = {}
_STORE_ARGUMENTS = ("client_options", "retry_config", "credential_provider")
_ENVIRONMENT_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_")
_REQUESTS_AT_ONCE = 16
_NAMES_OF_S3FS = {"key": "access_key_id", "secret": "secret_access_key", "anon": "skip_signature"}
_OPTIONS = {
    store.S3Store: "access_key_id secret_access_key session_token profile region endpoint allow_http "
    "virtual_hosted_style_request skip_signature unsigned_payload checksum_algorithm request_payer conditional_put",
    store.GCSStore: "service_account application_credentials service_account_key bearer_token base_url skip_signature",
    store.AzureStore: "account_name account_key sas_token client_id client_secret tenant_id use_azure_cli endpoint "
    "skip_signature",
}
"""The options on docs/object-stores.md, to suggest one where the client refuses a name. It takes further ones."""
_NO_RETRIES = {"max_retries": 0}
_RETRIES = {
    "retry_config": ("max_retries", "retry_timeout", "backoff"),
    "backoff": ("init_backoff", "max_backoff", "base"),
}


def open_remote(url: str, options: Mapping[str, Any]) -> ObjectStorage:
    """The storage at a URL of an object store: scheme://bucket/prefix. Raises `InvalidOption`."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = unquote(rest).strip("/").partition("/")
    scheme = scheme.lower()
    if scheme in SCHEMES:
        refuse_user(url)
    if prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/")):
        raise InvalidOption(f'The path in "{without_secrets(url)}" has an empty or dotted part, which no store holds.')
    if scheme == "memory":
        if options:
            raise InvalidOption("A memory:// store takes no storage_options.")
        objects: Any = _MEMORY.setdefault(bucket, store.MemoryStore())
        open_without_retries = partial(_MEMORY.get, bucket)
    elif scheme in _STORES:
        if not bucket:
            raise InvalidOption(f'The URL "{without_secrets(url)}" names no bucket. Write {scheme}://bucket/path.')
        arguments = {key: options[key] for key in _STORE_ARGUMENTS if key in options}
        _require_retries("retry_config", arguments)
        config = {key: value for key, value in options.items() if key not in (*arguments, "profile")}
        if _STORES[scheme] is store.S3Store and (profile := options.get("profile") or _profile_of_environment()):
            arguments.setdefault("credential_provider", _credentials_of(profile))
        try:
            objects = _STORES[scheme](bucket, config=config or None, **arguments)
            open_without_retries = partial(
                _STORES[scheme], bucket, config=config or None, **arguments | {"retry_config": _NO_RETRIES}
            )
        except (exceptions.BaseError, TypeError, ValueError) as error:
            _shorten(error)
            names = [f'"{name}" is "{here}" here' for name, here in _NAMES_OF_S3FS.items() if name in config]
            unknown = re.search(r"Configuration key: '(.*?)' is not valid", str(error))
            hint = nearest(unknown[1], [*_OPTIONS[_STORES[scheme]].split(), *_STORE_ARGUMENTS]) if unknown else ""
            if names and _STORES[scheme] is store.S3Store:
                hint = f" {', '.join(names)}."
            raise InvalidOption(
                f'The store at "{without_secrets(url)}" cannot be opened: {_client_message(error)}{hint}'
            ) from error
    else:
        known = ", ".join(f"{name}://" for name in ("file", "memory", *_STORES))
        raise InvalidOption(
            f'The scheme of "{without_secrets(url)}" is not known. There are {known}; and in a Spark session, through '
            "zskip.spark, all that Hadoop has."
        )
    return ObjectStorage(
        f"{scheme}://{bucket}", prefix.strip("/"), objects, open_without_retries, _digest(options), (url, dict(options))
    )


def _require_retries(name: str, options: Mapping[str, Any]) -> None:
    """Raise `InvalidOption` for an option of retries that the client would pass over."""
    known, given = _RETRIES[name], options.get(name)
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InvalidOption(f"{name} is a dictionary of {', '.join(known)}, not {shown(given)}.")
    for one in given:
        if one not in known:
            raise InvalidOption(f"{name} has no {shown(one)}.{nearest(str(one), known)}")
    if name == "retry_config":
        _require_retries("backoff", given)


def _profile_of_environment() -> str | None:
    return None if "AWS_ACCESS_KEY_ID" in os.environ else os.environ.get("AWS_PROFILE")


def _credentials_of(profile: str) -> Any:
    """The keys and the region of a profile in ~/.aws, including those obtained by SSO or by assuming a role."""
    try:
        import boto3
        import botocore.session
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise MissingDependency(f'The profile "{profile}" needs boto3: pip install boto3') from error
    try:
        return Boto3CredentialProvider(boto3.Session(profile_name=profile))
    except (BotoCoreError, ValueError) as error:
        known = ", ".join(botocore.session.Session().available_profiles) or "none"
        raise InvalidOption(f'The profile "{profile}" gives no keys: {error}. The profiles are: {known}.') from error


def _digest(options: Mapping[str, Any]) -> str:
    """A hash of the options and environment variables, which together with its URL identify a store."""
    environment = {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT_PREFIXES)}
    values = {name: id(value) if callable(value) else value for name, value in options.items()}
    return hashlib.sha256(repr((sorted(values.items()), sorted(environment.items()))).encode()).hexdigest()[:16]


class ObjectStorage:
    """A prefix of an object store, whose puts are atomic and durable and whose conditional puts make commits safe.

    ``objects``: the store's client · ``open_without_retries``: opens a client that does not retry · ``options``: a hash
    of the options · ``address``: the URL and options, by which another process opens the storage.
    """

    local = None

    def __init__(
        self,
        bucket_uri: str,
        prefix: str,
        objects: Any,
        open_without_retries: Callable[[], Any],
        options: str = "",
        address: tuple[str, Mapping[str, Any]] = ("", {}),
    ) -> None:
        self.uri: str = f"{bucket_uri}/{prefix}" if prefix else bucket_uri
        self.identity = f"{self.uri} {options}"
        self._options = options
        self._bucket_uri = bucket_uri
        self._prefix = f"{prefix}/" if prefix else ""
        self._objects = objects
        self._open_without_retries = open_without_retries
        self._address = address

    def __reduce__(self) -> tuple[Any, tuple[str, Mapping[str, Any]]]:
        """Pickle the URL and the options: another process opens the store with its own environment variables."""
        return open_remote, self._address

    def __repr__(self) -> str:
        return f"ObjectStorage({self.uri!r})"

    def options_for(self, url: str) -> Mapping[str, Any] | None:
        """The options with which this storage was opened, to open another URL of the same kind of store."""
        return self._address[1] if url.split("://")[0] == self.uri.split("://")[0] else None

    def uri_of(self, path: str) -> str:
        return f"{self.uri}/{table_path(path)}"

    def parent(self) -> ObjectStorage | None:
        if not self._prefix:
            return None
        above = self._prefix.rstrip("/").rpartition("/")[0]
        address = f"{self._bucket_uri}/{quote(above)}", self._address[1]
        return ObjectStorage(self._bucket_uri, above, self._objects, self._open_without_retries, self._options, address)

    def _key(self, path: str) -> str:
        return self._prefix + table_path(path)

    def exists(self, path: str) -> bool:
        try:
            with _translated(self.uri, path):
                obstore.head(self._objects, self._key(path))
        except FileNotFoundError:
            return False
        return True

    def list(self, prefix: str = "", *, hidden: bool = True) -> Listing:
        above = len(self._prefix)
        key = self._key(prefix.rstrip("/")) if prefix else self._prefix.rstrip("/")
        rows = []
        with _translated(self.uri, prefix):
            for page in obstore.list(self._objects, prefix=key or None, chunk_size=1000):
                for entry in page:
                    path = entry["path"][above:]
                    if hidden or not any(part[0] in "._" and "=" not in part for part in path.split("/") if part):
                        rows.append((path, *_status(entry)))
        return Listing.of(rows)

    def names(self, folder: str, *, after: str = "") -> Sequence[str]:
        key = f"{self._key(folder)}/"
        names: list[str] = []
        with _translated(self.uri, folder):
            # A store that can start a listing after a key sends only the new names.
            for page in obstore.list(self._objects, prefix=key, offset=key + after, chunk_size=1000):
                names += [entry["path"][len(key) :] for entry in page]
        return names

    def size_and_modified(self, paths: Sequence[str]) -> Listing:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            return Listing.of(pool.map(self._head, paths))

    def _head(self, path: str) -> tuple[str, int | None, int | None, str | None]:
        try:
            with _translated(self.uri, path):
                return (path, *_status(obstore.head(self._objects, self._key(path))))
        except FileNotFoundError:
            return path, None, None, None

    def require_inside(self, paths: pa.StringArray) -> None:
        for path in unsafe_paths(paths):
            table_path(path)

    def read(self, path: str) -> bytes:
        with _translated(self.uri, path):
            return bytes(obstore.get(self._objects, self._key(path)).bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with _translated(self.uri, path):
            if start < 0:
                tail = bytes(obstore.get(self._objects, self._key(path), options={"range": {"suffix": -start}}).bytes())
                return tail[:length]
            try:
                return bytes(obstore.get_range(self._objects, self._key(path), start=start, length=length))
            except exceptions.BaseError:
                # A range that begins after the end is an error for a store, but for a file it is empty.
                if obstore.head(self._objects, self._key(path))["size"] <= start:
                    return b""
                raise

    def put(self, path: str, data: bytes) -> None:
        with _translated(self.uri, path):
            obstore.put(self._objects, self._key(path), data)

    @cached_property
    def _without_retries(self) -> Any:
        """A client of the same store that does not retry."""
        return self._open_without_retries()

    def put_once(self, path: str, data: bytes) -> None:
        with _translated(self.uri, path):
            obstore.put(self._without_retries, self._key(path), data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with _translated(self.uri, path):
            try:
                obstore.put(self._objects, self._key(path), data, mode="create")
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
            except (exceptions.NotSupportedError, NotImplementedError) as error:
                _shorten(error)
                raise UnsupportedStore(
                    f"The store of {self.uri} cannot create an object only if it is absent, so a commit could lose "
                    f"another writer's: {_client_message(error)}"
                ) from error
        return True

    def open_writer(self, path: str) -> BinaryIO:
        key = self._key(path)

        def publish(file: BinaryIO) -> None:
            with _translated(self.uri, path):
                obstore.put(self._objects, key, file)

        return cast(BinaryIO, Upload(publish))

    def make_durable(self, paths: Sequence[str]) -> None:
        """Do nothing: an object store acknowledges a put once it is durable."""

    def move(self, source: str, target: str) -> None:
        with _translated(self.uri, source):
            obstore.rename(self._objects, self._key(source), self._key(target))

    def delete(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]
        try:
            with _translated(self.uri, "…"):
                if keys:
                    obstore.delete(self._objects, keys)
        except FileNotFoundError:
            for key in keys:  # a bulk delete stops at the first missing object
                try:
                    obstore.delete(self._objects, key)
                except FileNotFoundError:
                    continue

    def remove_empty(self, folder: str) -> None:
        """Do nothing: an object store has no folders."""

    def filesystem(self) -> fsspec.AbstractFileSystem:
        from zskip.storage.filesystem import StorageFileSystem

        return StorageFileSystem(storage=self, skip_instance_cache=True)


def _status(entry: Any) -> tuple[int, int, str | None]:
    """An object's size in bytes, its time of modification in nanoseconds since the epoch, and its ETag."""
    modified = entry["last_modified"]
    nanoseconds = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
    return int(entry["size"]), nanoseconds, entry["e_tag"]


# Translate errors of an object store's client into those of a file system, with the address and a remedy.

_PAGE = "See docs/object-stores.md."
# A pattern in the client's message → the cause and the remedy. The first match counts.
_CAUSES = {
    r"169\.254\.169\.254|/latest/api/token": "no credentials were found, and this machine has no role of its own. "
    'Give keys or a profile as storage_options or by the environment; a public bucket needs "skip_signature": True',
    r"without LOCATION|PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint": "the bucket is in "
    'another region. Give it as "region" in storage_options, or as AWS_REGION',
    r"NoSuchBucket|ContainerNotFound|Error performing list request.*404 Not Found": "there is no such bucket or "
    "container at this endpoint. Create it, or correct its name",
    "builder error": 'an endpoint that begins with http:// needs "allow_http": True in storage_options, '
    "--storage-option allow_http=true in a shell, or for S3 AWS_ALLOW_HTTP=true in the environment",
    "error sending request|dns error": "no answer came from there. Check the endpoint, or the name of the account",
    "InvalidAccessKeyId": "the store does not know this access key",
    "SignatureDoesNotMatch|AuthenticationFailed": "the secret key, or the signature, is not that of the access key",
}
# The client has no separate error for a listing that is refused.
_REFUSED = re.compile(r"status code: 40[13] ")


@contextmanager
def _translated(uri: str, path: str) -> Iterator[None]:
    """Raise `FileNotFoundError`, `PermissionError` or `TableError` in place of an error from the store's client."""
    try:
        yield
    except FileNotFoundError as error:
        _shorten(error)
        raise FileNotFoundError(f"{uri}/{path} does not exist.") from error
    except exceptions.BaseError as error:
        kinds = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        refused = isinstance(error, kinds) or _REFUSED.search(str(error)) is not None
        kind = PermissionError if refused else TableError
        what = f"The store {'refuses access to' if refused else 'failed at'} {uri}/{path}"
        cause = _cause(error, refused)
        _shorten(error)
        raise kind(f"{what}: {cause}") from error


def _shorten(error: BaseException | None) -> None:
    """Reduce a client's error, and those before it, to `client_message`: tracebacks and logs show chained errors."""
    while error is not None:
        if isinstance(error, exceptions.BaseError | FileNotFoundError):
            error.args = (_client_message(error),)
        error = error.__cause__ or error.__context__


def _cause(error: Exception, refused: bool) -> str:
    text = str(error)
    for pattern, cause in _CAUSES.items():
        if re.search(pattern, text, re.DOTALL):
            return f"{cause}. {_PAGE}"
    if refused:
        return f"these credentials may not do that, or there are none. {_PAGE} ({_client_message(error)})"
    return _client_message(error)


def _client_message(error: BaseException) -> str:
    """The first line of a client's message, without secrets; the other lines dump its internal structures."""
    return without_secrets(first_line(error))


# `Upload`: a writable file for stores that accept only complete objects.

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
