"""The fields of WebDataset's samples, whose names tell how their bytes are decoded."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Union

import numpy as np

from data_stack.codecs.codec import Codec, FunctionCodec
from data_stack.codecs.registry import codec_of, type_of_extension
from data_stack.exception import ConfigError

#: The field of a sample's key.
KEY: Final = "__key__"

#: The extensions of files of integers as text, which WebDataset reads as int64.
INTEGERS: Final = frozenset({"cls", "cls2", "index", "inx", "id"})

#: The extensions of pickles, which are never unpickled.
_PICKLES: Final = frozenset({"pyd", "pkl", "pickle"})

#: The decoders of pickles that return their bytes.
PICKLES_AS_BYTES: Final[Mapping[str, None]] = dict.fromkeys(_PICKLES)

#: The types of record columns whose values are decimal text in WebDataset.
_INTEGER_TYPES: Final = frozenset({"i64", "u64", "int"})

#: An integer as text. WebDataset allows white space around it, such as a line break.
_INTEGER: Final = re.compile(rb"\s*([+-]?[0-9]+)\s*")

FieldType = Union[
    str, Codec, tuple[Callable[[Any], bytes] | None, Callable[[bytes], Any] | None], None
]
"""How the bytes of a field are decoded: see :class:`~data_stack.formats.WebDatasetIterator`."""


def key_and_field(path: str) -> tuple[str, str]:
    """Return the key of a file's sample, and its field, in lower case as WebDataset has it.

    A key ends at the first dot of the last part of the path: ``a/000017.seg.png`` is the field
    ``seg.png`` of the sample ``a/000017``.
    """
    folder, _, file_name = path.rpartition("/")
    stem, _, field = file_name.partition(".")
    key = f"{folder}/{stem}" if folder else stem
    return key, field.lower()


def is_of_sample(path: str) -> bool:
    """Return whether a file belongs to a sample.

    As in WebDataset, files without a dot, or with a leading dot, do not.
    """
    file_name = path.rpartition("/")[2]
    return "." in file_name and not file_name.startswith(".")


def extension_of_field(field: str) -> str:
    """Return what follows the last dot of a field; the field itself without a dot."""
    return field.rpartition(".")[2]


def type_of_field(field: str) -> str:
    """Return the record type of a field by its extension; ``"bytes"`` if it is unknown."""
    extension = extension_of_field(field)
    if extension in INTEGERS:
        return "i64"
    return type_of_extension(extension) or "bytes"


def codec_of_field(field: str, types: Mapping[str, FieldType]) -> Codec:
    """Return the codec of a field.

    Args:
        field: the field.
        types: decoders by extension, instead of the built-in ones.

    Raises:
        ConfigError: the field is a pickle, and ``types`` does not say how to read it.
    """
    extension = extension_of_field(field)
    if extension not in types:
        if extension in _PICKLES:
            raise ConfigError(
                f"field {field!r} is a pickle, which could run any code; "
                f"types={{{extension!r}: None}} returns its bytes"
            )
        field_type: Any = type_of_field(extension)
    else:
        field_type = types[extension]
    if not isinstance(field_type, str):
        # A codec, a pair of functions, or None for bytes: what custom codecs may be.
        return codec_of("given", {"given": field_type})
    if field_type in _INTEGER_TYPES:
        return FunctionCodec(_as_decimal_text, _parse_integer)
    return codec_of(field_type)


def _as_decimal_text(value: Any) -> bytes:
    """Return an integer, or a truth value, as the text that files ``.cls`` hold."""
    number = int(value) if isinstance(value, np.bool_) else operator.index(value)
    return b"%d" % number


def _parse_integer(data: bytes) -> int:
    """Return the integer that a file says.

    Raises:
        ValueError: it says none. ``int()`` would take ``1_0`` for 10.
    """
    match = _INTEGER.fullmatch(data)
    if match is None:
        raise ValueError(f"{bytes(data[:40])!r} is not an integer")
    return int(match[1])
