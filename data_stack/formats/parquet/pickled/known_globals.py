"""The globals that occur in Petastorm's pickles: a table of names, none of which is ever imported.

Collected from the datasets of Petastorm 0.4.0 to 0.13.1, Python 2 and 3, numpy 1 and 2. A name that is not in
:data:`KNOWN_GLOBALS` cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["KNOWN_GLOBALS", "SPARK_CLASSES", "KnownGlobal"]

Role = Literal["schema", "field", "codec", "indexer", "spark_type", "numpy_type", "base", "function"]


@dataclass(frozen=True, slots=True)
class KnownGlobal:
    """One global that we understand: a label, not the thing it names.

    Attributes:
        role: what it may be used for.
        name: ours for it; several spellings may share one.
        numpy_type: the type of numpy it stands for where it is given as the type of a field; None if it cannot be.
    """

    role: Role
    name: str
    numpy_type: str | None = None


#: Spark's simple name of a type, by the class in pyspark.sql.types. Decimals take precision and scale from their state.
SPARK_CLASSES = {
    "BooleanType": "boolean",
    "ByteType": "tinyint",
    "ShortType": "smallint",
    "IntegerType": "int",
    "LongType": "bigint",
    "FloatType": "float",
    "DoubleType": "double",
    "DecimalType": "decimal",
    "StringType": "string",
    "BinaryType": "binary",
    "DateType": "date",
    "TimestampType": "timestamp",
    "TimestampNTZType": "timestamp_ntz",
    "CharType": "string",  # Parquet knows no padding and no length
    "VarcharType": "string",
}

#: Before it was published, Petastorm's package had these names.
_PETASTORM_PACKAGES = ("petastorm", "av.experimental.deepdrive.dataset_toolkit", "av.ml.dataset_toolkit")
_CODECS = {
    "ScalarCodec": "scalar",
    "NdarrayCodec": "ndarray",
    "CompressedNdarrayCodec": "compressed_ndarray",
    "CompressedImageCodec": "image",
}
_INDEXERS = {"SingleFieldIndexer": "single_field", "FieldNotNullIndexer": "not_null"}

_NUMPY_TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128", "clongdouble"),
    *("bool_", "str_", "bytes_", "object_", "datetime64", "timedelta64"),
)
#: Spellings of numpy 0 and 1, of 64-bit Linux, and what numpy 2 made of bool_.
_NUMPY_ALIASES = {
    "bool": "bool_",
    "bool8": "bool_",
    "unicode_": "str_",
    "unicode": "str_",
    "str0": "str_",
    "string_": "bytes_",
    "bytes0": "bytes_",
    "object": "object_",
    "object0": "object_",
    "longlong": "int64",
    "ulonglong": "uint64",
    "intc": "int32",
    "uintc": "uint32",
    "float128": "longdouble",
    "complex256": "clongdouble",
}
#: Python's own types, given as the type of a field: Python 2's str is bytes.
_PYTHON_2_TYPES = {
    "str": "bytes_",
    "bytes": "bytes_",
    "unicode": "str_",
    "bool": "bool_",
    "int": "int64",
    "long": "int64",
    "float": "float64",
}
_PYTHON_3_TYPES = {"str": "str_", "bytes": "bytes_", "bool": "bool_", "int": "int64", "float": "float64"}


def _known_globals() -> Iterator[tuple[tuple[str, str], KnownGlobal]]:
    for package in _PETASTORM_PACKAGES:
        yield (f"{package}.unischema", "Unischema"), KnownGlobal("schema", "Unischema")
        yield (f"{package}.unischema", "UnischemaField"), KnownGlobal("field", "UnischemaField")
        for name, kind in _CODECS.items():
            yield (f"{package}.codecs", name), KnownGlobal("codec", kind)
        for name, kind in _INDEXERS.items():
            yield (f"{package}.etl.rowgroup_indexers", name), KnownGlobal("indexer", kind)
    for name, simple_name in SPARK_CLASSES.items():
        yield ("pyspark.sql.types", name), KnownGlobal("spark_type", simple_name)
    for name in _NUMPY_TYPES:
        yield ("numpy", name), KnownGlobal("numpy_type", name, name)
    for name, modern in _NUMPY_ALIASES.items():
        yield ("numpy", name), KnownGlobal("numpy_type", modern, modern)
    for module, types in (("__builtin__", _PYTHON_2_TYPES), ("builtins", _PYTHON_3_TYPES)):
        for name, numpy_type in types.items():
            # Python 3 writes an empty bytes as a call of bytes, in the protocols that have no bytes.
            yield (module, name), KnownGlobal("function" if name == "bytes" else "numpy_type", name, numpy_type)
        yield (module, "object"), KnownGlobal("base", "object")
        yield (module, "tuple"), KnownGlobal("base", "tuple")
        yield (module, "set"), KnownGlobal("function", "set")
    yield ("copy_reg", "_reconstructor"), KnownGlobal("function", "_reconstructor")
    yield ("copyreg", "_reconstructor"), KnownGlobal("function", "_reconstructor")
    yield ("pyspark.serializers", "_restore"), KnownGlobal("function", "_restore")
    yield ("collections", "OrderedDict"), KnownGlobal("function", "OrderedDict")
    yield ("collections", "defaultdict"), KnownGlobal("function", "defaultdict")
    yield ("_codecs", "encode"), KnownGlobal("function", "encode")
    yield ("decimal", "Decimal"), KnownGlobal("function", "Decimal", "Decimal")
    yield ("numpy", "dtype"), KnownGlobal("function", "dtype")
    yield ("numpy.core.multiarray", "scalar"), KnownGlobal("function", "scalar")
    yield ("numpy._core.multiarray", "scalar"), KnownGlobal("function", "scalar")
    for name in ("date", "datetime"):
        yield ("datetime", name), KnownGlobal("function", name, "datetime64")
    for name in ("time", "timedelta", "timezone"):
        yield ("datetime", name), KnownGlobal("function", name)


KNOWN_GLOBALS = dict(_known_globals())
