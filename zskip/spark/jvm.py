"""The JVM of a session: its classes, conversions between Python and Java, and the base class of Java proxies."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.spark.spark_session import Semantics
from zskip.spark.spark_types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark.sql.connector"
"""The package of Spark's public connector interfaces."""
# The same class: its name since Spark 4.2, and before.
_MANIFEST_READERS = (
    "org.apache.spark.sql.execution.streaming.runtime.MetadataLogFileIndex",
    "org.apache.spark.sql.execution.streaming.MetadataLogFileIndex",
)


class Unsupported(Exception):
    """Spark's internals differ from what an adapter needs; the message says how."""


class Jvm:
    """The JVM of a session. Its methods raise `Unsupported` for a missing class."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        context = spark.sparkContext
        self.spark = spark
        self.session: Any = spark._jsparkSession
        self._root: Any = context._jvm
        self._gateway: Any = context._gateway
        self._classes: dict[str, Any] = {}
        self._members: dict[tuple[str, str], Any] = {}
        self._empty_arrays: dict[str, Any] = {}
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # pyspark has no types there
        # An error of a proxy that wraps a Java exception reaches Spark, and from there the caller, as this exception.
        server: Any = context._gateway.get_callback_server()  # type: ignore[union-attr]  # a session has a gateway
        server.callback_server_parameters.propagate_java_exceptions = True

    def error(self, message: str) -> Exception:
        """An error for a proxy to raise, which pyspark shows to the caller by its message alone."""
        from py4j.protocol import Py4JJavaError

        error: Exception = Py4JJavaError(message, self.class_("java.lang.IllegalArgumentException")(message))
        return error

    def class_(self, name: str) -> Any:
        """A Java class by its full name."""
        found = self._find(name)
        if found is None:
            raise Unsupported(f"this Spark has no {name}")
        return found

    def _find(self, name: str) -> Any:
        """A class, or None. Cached, because each part of the name costs a call to Java."""
        from py4j.java_gateway import JavaClass

        if name not in self._classes:
            found = self._root
            for part in name.split("."):
                found = getattr(found, part)
            self._classes[name] = found if isinstance(found, JavaClass) else None
        return self._classes[name]

    def static(self, class_name: str, name: str) -> Any:
        """A static method or constant of a class, cached."""
        key = class_name, name
        if key not in self._members:
            self._members[key] = getattr(self.class_(class_name), name)
        return self._members[key]

    def manifest_reader(self) -> Any:
        """Spark's ``FileIndex`` over the files in a file sink's manifest."""
        found = next(filter(None, map(self._find, _MANIFEST_READERS)), None)
        if found is None:
            raise Unsupported(f"this Spark has no {_MANIFEST_READERS[0]}")
        return found

    def array(self, class_name: str, values: Sequence[Any] = ()) -> Any:
        """A Java array. Empty ones are shared: Spark's planner asks for them hundreds of times."""
        if not values:
            if class_name not in self._empty_arrays:
                self._empty_arrays[class_name] = self._gateway.new_array(self.class_(class_name), 0)
            return self._empty_arrays[class_name]
        made = self._gateway.new_array(self.class_(class_name), len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    def seq(self, values: Sequence[Any]) -> Any:
        return self.static("org.apache.spark.api.python.PythonUtils", "toSeq")(list(values))

    @cached_property
    def empty_seq(self) -> Any:
        return self.seq([])

    @cached_property
    def conf(self) -> Any:
        return self.session.sessionState().conf()

    def joined(self, array: Any, separator: str) -> str:
        """The elements of a Java array joined into a string: reading them one by one costs two calls each."""
        wrapped = self.static("scala.collection.immutable.ArraySeq", "unsafeWrapArray")(array)
        return str(wrapped.mkString(separator))

    def column_name(self, term: Any) -> str | None:
        """The name of the top-level column that a connector expression refers to; None for any other expression."""
        if term.getClass().getSimpleName() != "FieldReference":
            return None
        names = self.joined(term.fieldNames(), "\0").split("\0")
        return names[0] if len(names) == 1 else None

    def options(self, options: dict[str, str]) -> Any:
        return self.class_("org.apache.spark.api.python.PythonUtils").toScalaMap(options)

    def path(self, uri: str) -> Any:
        return self.class_("org.apache.hadoop.fs.Path")(self.class_("java.net.URI")(uri))

    def types(self, schema: pa.Schema) -> Any:
        return self.static("org.apache.spark.sql.types.DataType", "fromJson")(spark_schema(schema).json())

    def semantics(self) -> Semantics:
        """The semantics of the session for which Spark is planning in this thread."""
        conf = self.static("org.apache.spark.sql.internal.SQLConf", "get")()
        return Semantics(conf.sessionLocalTimeZone(), conf.ansiEnabled())


class Proxy:
    """A Python object that implements a Java interface.

    Java considers two proxies equal if they have the same `identity`. By default, a proxy equals only itself.
    """

    @property
    def identity(self) -> str:
        return f"{type(self).__name__}@{id(self):x}"

    # --- called by Java ---

    def hashCode(self) -> int:  # noqa: N802
        return hash(self.identity) & 0x7FFF_FFFF

    def equals(self, other: Any) -> bool:
        if other is self or other is None:
            return other is self
        if isinstance(other, Proxy):
            return other.identity == self.identity
        # Only proxies are printed: other objects, such as plans, may be expensive to print.
        is_proxy = hasattr(other, "getClass") and "$Proxy" in other.getClass().getName()
        return is_proxy and str(other.toString()) == self.identity

    def toString(self) -> str:  # noqa: N802
        return self.identity


def elements(seq: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [seq.apply(number) for number in range(seq.size())]


def one_line(error: Exception) -> str:
    """The class and the first line of the message of an error, or of the Java exception that it wraps."""
    thrown = getattr(error, "java_exception", None)
    name = type(error).__name__ if thrown is None else thrown.getClass().getSimpleName()
    lines = str(error if thrown is None else thrown.getMessage()).strip().splitlines()
    return ": ".join([name, *lines[:1]])


def warn_once(message: str) -> None:
    if message not in _WARNED:
        _WARNED.add(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)


_WARNED: set[str] = set()
