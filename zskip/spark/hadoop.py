"""`HadoopStorage`: tables in any file system that Spark supports, through the session's Hadoop client.

    hdfs://, webhdfs://, viewfs://, ofs://, abfss://container@account/… ── py4j ──▶ org.apache.hadoop.fs in the driver

A log entry is written under a temporary name and renamed without overwriting, so that readers see it complete or not at
all, and the second of two writers is refused. Only some file systems guarantee this refusal; on others tables can be
read but not written.

`pyarrow.fs.HadoopFileSystem` is no substitute: it supports two of nine tested Hadoop schemes (hdfs, viewfs), needs
libhdfs, which neither pyarrow nor PySpark ships, and starts a second JVM without the session's configuration.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import storage as storages
from zskip.errors import InvalidOption, TableError, UnsupportedStore
from zskip.spark.jvm import one_line
from zskip.spark.spark_session import is_connect, require_session
from zskip.storage import Listing, Storage, abandon
from zskip.storage.opening import is_supported
from zskip.storage.remote import Upload
from zskip.storage.secrets import refuse_secrets
from zskip.storage.storage import table_path, unsafe_paths

if TYPE_CHECKING:
    import fsspec
    from pyspark.sql import SparkSession

# File systems whose rename atomically fails if the target exists; of abfs, accounts with a hierarchical namespace.
_ATOMIC = {"hdfs", "webhdfs", "swebhdfs"}
_ATOMIC_WITH_HIERARCHY = {"abfs", "abfss"}
_HAS_HIERARCHY = "fs.capability.paths.acls"
_PROMISED = "atomic_rename"

_FEW, _AT_ONCE = 16, 16
_MAX_ARRAY_BYTES = (1 << 31) - 9  # of a Java array
_CHUNK_BYTES = 8 << 20
_NOT_THERE = ("FileNotFoundException", "NoSuchFileException")
_NOT_ALLOWED = ("AccessControlException", "AccessDeniedException", "AuthorizationException")
_TAKEN = ("FileAlreadyExistsException", "PathExistsException")


def open_storage(
    spark: SparkSession, url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Storage:
    """The storage at a path or URL: zskip's own for the schemes that it supports, else the session's Hadoop client.

    Hadoop is configured as usual in Spark: by its own files and ``spark.hadoop.…``. The only storage option is
    ``atomic_rename=True``, your guarantee that renaming a file to an existing name fails atomically. It permits writing
    to a file system that zskip does not know.

    Raises `InvalidOption` for a scheme that neither supports, and on Spark Connect, which has no Hadoop client.
    """
    text = os.fspath(url)
    if is_supported(text):
        return storages.open_storage(text, storage_options)
    require_session(spark)
    refuse_secrets(text)
    scheme = text.partition("://")[0]
    if is_connect(spark):
        raise InvalidOption(
            f'"{text}" needs a Spark session with a JVM: on Spark Connect there is no Hadoop client for {scheme}://.'
        )
    options = dict(storage_options or {})
    promised = bool(options.pop(_PROMISED, False))
    if options:
        raise InvalidOption(
            f'The only storage option of {scheme}:// is {_PROMISED}, not "{next(iter(options))}". Configure Hadoop in '
            "the session: spark.hadoop.…"
        )
    return HadoopStorage(spark, text, atomic_rename=promised)


class HadoopStorage:
    """A folder of a Hadoop file system. Only the driver can use it, while the session exists."""

    local = None

    def __init__(self, spark: SparkSession, url: str, *, atomic_rename: bool = False) -> None:
        """Raises `InvalidOption` if Hadoop has no file system for the URL or cannot reach it."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self._promised = atomic_rename
        self._session = spark
        self._gateway: Any = spark.sparkContext._gateway
        self._java: Any = cast(Any, spark.sparkContext._jvm)
        self._hadoop: Any = self._java.org.apache.hadoop.fs
        try:
            self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
            given = self._hadoop.Path(url.rstrip("/") + "/")
            self._files: Any = given.getFileSystem(self._conf)
            root = self._files.makeQualified(given).toUri()
        except (Py4JError, PySparkException) as error:
            raise InvalidOption(f'Hadoop cannot open "{url}": {one_line(error)}') from error
        self.uri: str = f"{root.getScheme()}://{root.getAuthority() or ''}{root.getPath().rstrip('/')}"
        self.identity = self.uri

    def __repr__(self) -> str:
        return f"HadoopStorage({self.uri!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"The Hadoop client of {self.uri} is the driver's, and cannot be sent elsewhere.")

    def uri_of(self, path: str) -> str:
        return f"{self.uri}/{table_path(path)}"

    def parent(self) -> HadoopStorage | None:
        above = self._at("").getParent()
        if above is None:
            return None
        return HadoopStorage(self._session, str(above.toString()), atomic_rename=self._promised)

    def _at(self, path: str) -> Any:
        """A file's Java ``Path``; the table's for the empty path."""
        return self._hadoop.Path(self.uri_of(path) if path else f"{self.uri}/")

    # --- reading ---

    def exists(self, path: str) -> bool:
        with self._translated(path):
            return bool(self._files.exists(self._at(path)))

    def list(self, prefix: str = "", *, hidden: bool = True) -> Listing:
        found = []
        folders: Sequence[str] = [prefix.rstrip("/")]
        while folders:
            files, folders = self._listed(folders, hidden)
            found.append(files)
        names = ("path", "size", "modified", "etag")
        path, *rest = (pa.concat_arrays([getattr(one, name) for one in found]) for name in names)
        # Arrow orders strings by their bytes.
        return Listing(path, *rest).take(np.asarray(pc.sort_indices(path)).astype(np.int64))

    def _listed(self, folders: Sequence[str], hidden: bool) -> tuple[Listing, Sequence[str]]:
        """The files and the subfolders of some folders. A missing folder counts as empty."""
        statuses = self._java.java.util.ArrayList()
        for folder in folders:
            with suppress(FileNotFoundError), self._translated(folder):
                statuses.addAll(self._lists.toList(self._files.listStatusIterator(self._at(folder))))
        path = self._inner(self._column(statuses, "getPath"))
        is_folder = pc.equal(self._column(statuses, "isDirectory"), "true")
        if not hidden:
            name = pc.replace_substring_regex(path, r"^.*/", "")
            shown = pc.or_(pc.invert(pc.match_substring_regex(name, r"^[._]")), pc.match_substring(name, "="))
        else:
            shown = pa.array(np.ones(len(path), bool))
        size = self._column(statuses, "getLen").cast(pa.int64())
        modified = pc.multiply(self._column(statuses, "getModificationTime").cast(pa.int64()), 1_000_000)
        listing = Listing(path, size, modified, pa.nulls(len(path), pa.string()))
        chosen = np.asarray(pc.and_(shown, pc.invert(is_folder)))
        return listing.take(chosen), path.filter(pc.and_(shown, is_folder)).to_pylist()

    def _inner(self, uris: pa.StringArray) -> pa.StringArray:
        """Paths relative to the table, from URIs as Java prints them: without slashes if there is no authority."""
        root = re.sub(r"^([^:]+)://(/|$)", r"\1:\2", self.uri)
        if not pc.all(pc.starts_with(uris, f"{root}/"), min_count=0).as_py():
            raise TableError(f"The file system lists {uris[0].as_py()} below {self.uri}, where it is not.")
        return pc.utf8_slice_codeunits(uris, len(root) + 1)

    def _column(self, statuses: Any, getter: str) -> pa.StringArray:
        """The results of a getter for a Java list of ``FileStatus``, as text, in a fixed number of calls to Java."""
        if statuses.isEmpty():
            return pa.array([], pa.string())
        paths_list = self._lists.mappingRemoteIterator(
            self._lists.remoteIteratorFromIterable(statuses), self._getters[getter]
        )
        return pa.array(self._java.java.lang.String.join("\0", self._lists.toList(paths_list)).split("\0"), pa.string())

    @property
    def _lists(self) -> Any:
        return self._java.org.apache.hadoop.util.functional.RemoteIterators

    @cached_property
    def _getters(self) -> Mapping[str, Any]:
        """Getters of ``FileStatus`` whose results are printed, as functions for Hadoop's iterators."""
        found = self._java.java.lang.invoke.MethodHandles.publicLookup()
        method_type = self._java.java.lang.invoke.MethodType.methodType
        named = self._java.java.lang.Class.forName
        status, text = named("org.apache.hadoop.fs.FileStatus"), named("java.lang.String")
        function = named("org.apache.hadoop.util.functional.FunctionRaisingIOE")

        def printing(getter: str, type: Any, printed_as: Any) -> Any:
            get = found.findVirtual(status, getter, method_type(type))
            show = found.findStatic(text, "valueOf", method_type(text, printed_as))
            both = self._java.java.lang.invoke.MethodHandles.filterReturnValue(
                get.asType(method_type(printed_as, status)), show
            )
            return self._java.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(function, both)

        number, truth = self._java.java.lang.Long.TYPE, self._java.java.lang.Boolean.TYPE
        return {
            "getPath": printing("getPath", named("org.apache.hadoop.fs.Path"), named("java.lang.Object")),
            "getLen": printing("getLen", number, number),
            "getModificationTime": printing("getModificationTime", number, number),
            "isDirectory": printing("isDirectory", truth, truth),
        }

    def names(self, folder: str, *, after: str = "") -> Sequence[str]:
        names: list[str] = []
        pending: Sequence[str] = [folder]
        while pending:
            files, inner = self._listed(pending, hidden=True)
            names += [path[len(folder) + 1 :] for path in files.path.to_pylist()]
            # A folder that sorts before ``after`` holds names that do so as well, unless ``after`` lies in it.
            pending = [path for path in inner if f"{path[len(folder) + 1 :]}/\U0010ffff" > after]
        return [name for name in names if name > after]

    def size_and_modified(self, paths: Sequence[str]) -> Listing:
        if len(paths) <= _FEW:
            return Listing.of(map(self._status, paths))
        # Listing folders takes fewer calls than querying many files one by one.
        folders = {path.rpartition("/")[0] for path in paths}
        listed, _ = self._listed(sorted(folders), hidden=True)
        wanted = pa.array(sorted(paths, key=str.encode), pa.string())
        return listed.at(wanted)

    def _status(self, path: str) -> tuple[str, int | None, int | None, None]:
        try:
            with self._translated(path):
                found = self._files.getFileStatus(self._at(path))
                return path, int(found.getLen()), int(found.getModificationTime()) * 1_000_000, None
        except FileNotFoundError:
            return path, None, None, None

    def require_inside(self, paths: pa.StringArray) -> None:
        for path in unsafe_paths(paths):
            table_path(path)

    def read(self, path: str) -> bytes:
        return self.read_range(path, 0, _MAX_ARRAY_BYTES)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        if start < 0:
            start = max(0, self._size(path) + start)
        try:
            with self._translated(path):
                stream = self._files.open(self._at(path))
                try:
                    stream.seek(start)
                    return bytes(stream.readNBytes(min(length, _MAX_ARRAY_BYTES)))
                finally:
                    stream.close()
        except TableError:
            # Hadoop raises for a range after the end, where a local file returns no bytes.
            if start and self._size(path) <= start:
                return b""
            raise

    def _size(self, path: str) -> int:
        with self._translated(path):
            return int(self._files.getFileStatus(self._at(path)).getLen())

    def filesystem(self) -> fsspec.AbstractFileSystem:
        from zskip.storage.filesystem import StorageFileSystem

        return StorageFileSystem(storage=self, skip_instance_cache=True)

    # --- writing ---

    def require_writable(self) -> None:
        """Raise `UnsupportedStore` if a commit could overwrite another writer's."""
        if not self._promised and self._scheme not in _ATOMIC:
            raise UnsupportedStore(
                f"{self.uri} is in a file system, {self._scheme}://, that is not known to refuse atomically to rename "
                "a file to an existing name, so a commit could lose another writer's. Tables can be read there, but "
                f"not written. Write to {', '.join(f'{name}://' for name in sorted(_ATOMIC))}, a local path or an "
                "object store; or, if you know that it does refuse: "
                f'storage_options={{"{_PROMISED}": True}}.'
            )

    @cached_property
    def _scheme(self) -> str:
        """The scheme of the file system that holds the log, with mounts resolved."""
        segments = f"{self.uri}/_zskip/log".split("/")
        for end in range(len(segments), 2, -1):
            with suppress(FileNotFoundError), self._translated(""):
                place = self._files.resolvePath(self._hadoop.Path("/".join(segments[:end]) + "/"))
                scheme = str(place.toUri().getScheme())
                hierarchical = scheme in _ATOMIC_WITH_HIERARCHY and place.getFileSystem(self._conf).hasPathCapability(
                    place, _HAS_HIERARCHY
                )
                return "hdfs" if hierarchical else scheme
        return self.uri.partition("://")[0]

    @cached_property
    def _names(self) -> Any:
        """The client that renames without overwriting."""
        return self._hadoop.FileContext.getFileContext(self._at("").toUri(), self._conf)

    def _renames(self, *options: Any) -> Any:
        array = self._gateway.new_array(self._hadoop.Options.Rename, len(options))
        for place, option in enumerate(options):
            array[place] = option
        return array

    def put(self, path: str, data: bytes) -> None:
        self._publish(path, data)

    put_once = put

    def _publish(self, path: str, data: bytes | BinaryIO) -> None:
        self.move(self._write_temporary(path, data), path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        temporary = self._write_temporary(path, data)
        try:
            with self._translated(path):
                self._names.rename(self._at(temporary), self._at(path), self._renames())
        except FileExistsError:
            self.delete([temporary])
            return False
        return True

    def _write_temporary(self, path: str, data: bytes | BinaryIO) -> str:
        """Write a file durably under a name that readers ignore, and return that name."""
        self.require_writable()
        folder, _, name = table_path(path).rpartition("/")
        temporary = f"{folder}/.{name[:100]}.{secrets.token_hex(8)}.tmp".lstrip("/")
        chunks = iter([data]) if isinstance(data, bytes) else iter(lambda: data.read(_CHUNK_BYTES), b"")
        try:
            with self._translated(path):
                stream = self._files.create(self._at(temporary), False)
                try:
                    for chunk in chunks:
                        stream.write(chunk)
                    if stream.hasCapability("hsync"):
                        stream.hsync()
                finally:
                    stream.close()
        except BaseException:
            abandon(self, [temporary])
            raise
        return temporary

    def open_writer(self, path: str) -> BinaryIO:
        self.require_writable()
        return cast(BinaryIO, Upload(partial(self._publish, table_path(path))))

    def make_durable(self, paths: Sequence[str]) -> None:
        """Do nothing: a closed file is as durable as its file system makes it."""

    def move(self, source: str, target: str) -> None:
        self.require_writable()
        folder = table_path(target).rpartition("/")[0]
        overwrite = self._renames(self._hadoop.Options.Rename.OVERWRITE)
        try:
            with self._translated(source):
                self._names.rename(self._at(source), self._at(target), overwrite)
        except FileNotFoundError:  # the file or its target folder is missing
            with self._translated(source):
                self._files.mkdirs(self._at(folder))
                self._names.rename(self._at(source), self._at(target), overwrite)

    def delete(self, paths: Sequence[str]) -> None:
        if len(paths) <= _FEW:
            for path in paths:
                self._delete(path)
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(self._delete, paths))

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError), self._translated(path):
            self._files.delete(self._at(table_path(path)), False)

    def remove_empty(self, folder: str) -> None:
        below = [folder]
        folders: Sequence[str] = below
        while folders:
            _, folders = self._listed(folders, hidden=True)
            below = [*below, *folders]
        for one in reversed(below):
            with suppress(OSError):  # a folder that is not empty stays
                self._delete(one)

    # --- errors ---

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Raise Java's errors as Python's file system errors or `TableError`, with the path."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException  # PySpark converts some unchecked Java exceptions

        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            thrown = getattr(error, "java_exception", None)
            kind = "" if thrown is None else str(thrown.getClass().getSimpleName())
            where = f"{self.uri}/{path}" if path else self.uri
            if kind in _NOT_THERE:
                raise FileNotFoundError(f"{where} does not exist.") from error
            if kind in _TAKEN:
                raise FileExistsError(f"{where} is there already.") from error
            if kind in _NOT_ALLOWED:
                raise PermissionError(f"The file system refuses access to {where}: {one_line(error)}") from error
            if kind == "UnsupportedFileSystemException":
                raise UnsupportedStore(f"Hadoop cannot rename at {where}: {one_line(error)}") from error
            raise TableError(f"The file system failed at {where}: {one_line(error)}") from error
