"""The globals in Petastorm's pickles: a table of names, which are never imported.

Collected from the datasets of Petastorm 0.4.0 to 0.13.1, Python 2 and 3, numpy 1 and 2. A name that is not in
:data:`KNOWN_GLOBALS` cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["schema", "field", "codec", "indexer", "spark_type", "numpy_type", "base", "function"]


@dataclass(frozen=True, slots=True)
class KnownGlobal:
    """A known global: a label, not the object that it names.

    Attributes:
        role: the allowed use.
        name: our name for it; several spellings may share a name.
        numpy_type: the numpy type of a field of this type; None if it is not a type of a field.
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
    "CharType": "string",  # Parquet has neither padding nor length
    "VarcharType": "string",
}

#: Names of Petastorm's package, also before its publication.
_PETASTORM_PACKAGES = ("petastorm", "av.experimental.deepdrive.dataset_toolkit", "av.ml.dataset_toolkit")
_PETASTORM_CLASSES = {
    "unischema.Unischema": KnownGlobal("schema", "Unischema"),
    "unischema.UnischemaField": KnownGlobal("field", "UnischemaField"),
    "codecs.ScalarCodec": KnownGlobal("codec", "scalar"),
    "codecs.NdarrayCodec": KnownGlobal("codec", "ndarray"),
    "codecs.CompressedNdarrayCodec": KnownGlobal("codec", "compressed_ndarray"),
    "codecs.CompressedImageCodec": KnownGlobal("codec", "image"),
    "etl.rowgroup_indexers.SingleFieldIndexer": KnownGlobal("indexer", "single_field"),
    "etl.rowgroup_indexers.FieldNotNullIndexer": KnownGlobal("indexer", "not_null"),
}

_NUMPY_TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128", "clongdouble"),
    *("bool_", "str_", "bytes_", "object_", "datetime64", "timedelta64"),
)
#: How numpy 0 and 1 pickle some types on 64-bit Linux, and how numpy 2 spells bool_.
_NUMPY_ALIASES = {
    "bool": "bool_",
    "unicode_": "str_",
    "string_": "bytes_",
    "longlong": "int64",
    "ulonglong": "uint64",
    "float128": "longdouble",
    "complex256": "clongdouble",
}
#: Python types as types of fields: str of Python 2 is bytes.
_PYTHON_TYPES = {"bytes": "bytes_", "unicode": "str_", "bool": "bool_", "int": "int64", "long": "int64", "float": "float64"}
_FUNCTIONS = (
    *("copy_reg._reconstructor", "copyreg._reconstructor", "pyspark.serializers._restore"),
    *("collections.OrderedDict", "collections.defaultdict", "__builtin__.set", "builtins.set", "_codecs.encode"),
    *("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
    *("datetime.time", "datetime.timedelta", "datetime.timezone"),
)


def _list_globals() -> Iterator[tuple[str, KnownGlobal]]:
    for package in _PETASTORM_PACKAGES:
        for name, known in _PETASTORM_CLASSES.items():
            yield f"{package}.{name}", known
    for name, simple_name in SPARK_CLASSES.items():
        yield f"pyspark.sql.types.{name}", KnownGlobal("spark_type", simple_name)
    for name, modern in {**dict(zip(_NUMPY_TYPES, _NUMPY_TYPES, strict=True)), **_NUMPY_ALIASES}.items():
        yield f"numpy.{name}", KnownGlobal("numpy_type", modern, modern)
    for module, text in (("__builtin__", "bytes_"), ("builtins", "str_")):
        for name, numpy_type in {"str": text, **_PYTHON_TYPES}.items():
            # Python 3 writes empty bytes as a call of bytes in protocols without bytes.
            yield f"{module}.{name}", KnownGlobal("function" if name == "bytes" else "numpy_type", name, numpy_type)
        yield f"{module}.object", KnownGlobal("base", "object")
        yield f"{module}.tuple", KnownGlobal("base", "tuple")
    for name in _FUNCTIONS:
        yield name, KnownGlobal("function", name.rpartition(".")[2])
    yield "decimal.Decimal", KnownGlobal("function", "Decimal", "Decimal")
    for name in ("date", "datetime"):
        yield f"datetime.{name}", KnownGlobal("function", name, "datetime64")


#: By module and name, ``"numpy.int8"``.
KNOWN_GLOBALS = dict(_list_globals())

#: By module and name of a codec class of a plugin: a function that makes our codec from the attributes of an instance.
codec_makers: dict[str, Callable[[Mapping[str, Any]], Any]] = {}


def register_pickled_codec(name: str, make: Callable[[Mapping[str, Any]], Any]) -> None:
    """Register a codec class that schemas may name. The name stands for ``make``, and is never imported.

    Args:
        name: module and name of the class, ``"frames.codecs.PointsCodec"``.
        make: takes the attributes of an instance as plain data, and returns a codec. Spark types are given by name.
    """
    codec_makers[name] = make


def find_global(name: str) -> KnownGlobal | None:
    """Look up a global by module and name; None if unknown."""
    return KNOWN_GLOBALS.get(name) or (KnownGlobal("codec", name) if name in codec_makers else None)
