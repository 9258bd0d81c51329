"""The globals in Petastorm's pickles: a table of names, which are never imported.

Collected from the datasets of Petastorm 0.4.0 to 0.13.1, Python 2 and 3, numpy 1 and 2. Any other name is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class KnownGlobal:
    """A known global: a label, not the object that it names.

    Attributes:
        role: the allowed use: "schema", "field", "codec", "indexer", "spark type", "type", "base" or "function".
        name: our name for it; several spellings may share a name.
        type: the type of a field of this type; None if it is not a type of a field.
    """

    role: str
    name: str
    type: Any = None


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
    "CharType": "string",  # Parquet has neither padding nor length
    "VarcharType": "string",
}
#: Names of Petastorm's package, also before its publication.
_PETASTORM_PACKAGES = ("petastorm", "av.experimental.deepdrive.dataset_toolkit", "av.ml.dataset_toolkit")
_PETASTORM_CLASSES = {
    "unischema.Unischema": "schema",
    "unischema.UnischemaField": "field",
    "codecs.ScalarCodec": "codec",
    "codecs.NdarrayCodec": "codec",
    "codecs.CompressedNdarrayCodec": "codec",
    "codecs.CompressedImageCodec": "codec",
    "etl.rowgroup_indexers.SingleFieldIndexer": "indexer",
    "etl.rowgroup_indexers.FieldNotNullIndexer": "indexer",
}
_NUMPY_TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128", "clongdouble"),
    *("bool_", "str_", "bytes_", "object_", "datetime64", "timedelta64"),
)
#: How numpy 0 and 1 pickle some types on 64-bit Linux, and how numpy 2 spells bool_.
_NUMPY_ALIASES = {
    "bool": np.bool_,
    "unicode_": np.str_,
    "string_": np.bytes_,
    "longlong": np.int64,
    "ulonglong": np.uint64,
    "float128": np.longdouble,
    "complex256": np.clongdouble,
}
_PYTHON_TYPES = {"unicode": np.str_, "bool": np.bool_, "int": np.int64, "long": np.int64, "float": np.float64}
_FUNCTIONS = (
    *("copy_reg._reconstructor", "copyreg._reconstructor", "pyspark.serializers._restore"),
    *("collections.OrderedDict", "collections.defaultdict", "__builtin__.set", "builtins.set", "_codecs.encode"),
    *("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
    *("datetime.time", "datetime.timedelta", "datetime.timezone"),
)


def _list_globals() -> Iterator[tuple[str, KnownGlobal]]:
    for package in _PETASTORM_PACKAGES:
        for name, role in _PETASTORM_CLASSES.items():
            yield f"{package}.{name}", KnownGlobal(role, name.rpartition(".")[2])
    for name, simple_name in SPARK_CLASSES.items():
        yield f"pyspark.sql.types.{name}", KnownGlobal("spark type", simple_name)
    for name, type_ in {**{name: getattr(np, name) for name in _NUMPY_TYPES}, **_NUMPY_ALIASES}.items():
        yield f"numpy.{name}", KnownGlobal("type", name, type_)
    for module, text in (("__builtin__", np.bytes_), ("builtins", np.str_)):
        for name, type_ in {"str": text, **_PYTHON_TYPES}.items():
            yield f"{module}.{name}", KnownGlobal("type", name, type_)
        # Python 3 writes empty bytes as a call of bytes in protocols without bytes.
        yield f"{module}.bytes", KnownGlobal("function", "bytes", np.bytes_)
        yield f"{module}.object", KnownGlobal("base", "object")
        yield f"{module}.tuple", KnownGlobal("base", "tuple")
    for name in _FUNCTIONS:
        yield name, KnownGlobal("function", name.rpartition(".")[2])
    yield "decimal.Decimal", KnownGlobal("function", "Decimal", Decimal)
    for name in ("date", "datetime"):
        yield f"datetime.{name}", KnownGlobal("function", name, np.datetime64)


#: By module and name, ``"numpy.int8"``.
KNOWN_GLOBALS = dict(_list_globals())
