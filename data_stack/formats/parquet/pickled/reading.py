"""Petastorm's schema and row-group indexes out of their pickles, of every version from 0.4.0 to 0.13.1.

Petastorm itself unpickles them, and thereby runs what the pickle says. Here a pickle is decoded to inert nodes by a machine of
our own, and this module takes from these nodes what a schema or an index is made of. Whatever else is in there is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Literal, cast

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.pickled.calls import text_of
from data_stack.formats.parquet.pickled.known_globals import KNOWN_GLOBALS, KnownGlobal
from data_stack.formats.parquet.pickled.machine import decode_pickle
from data_stack.formats.parquet.pickled.nodes import (
    DictNode,
    DtypeNode,
    ListNode,
    ObjectNode,
    PythonTwoString,
    Refusal,
    SetNode,
    TupleNode,
    described,
)
from data_stack.formats.parquet.pickled.values import PickledCodec, PickledField, PickledIndex, PickledSchema

__all__ = ["read_pickled_indexes", "read_pickled_schema"]

_MAX_INDEXES = 1_000
_MAX_DIMENSIONS = 64  # of numpy
_MAX_ROW_GROUP = 2**31 - 1
_IMAGE_FORMAT = re.compile(r"\.[a-z0-9]{1,8}")
#: Keys that share their hash make a dict quadratic. Real ones hardly ever do.
_MAX_SAME_HASH = 64


def read_pickled_schema(data: bytes) -> PickledSchema:
    """Read the schema that Petastorm keeps under ``dataset-toolkit.unischema.v1`` in ``_common_metadata``.

    Nothing of it is run, imported or looked up by name.

    Args:
        data: the pickle.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or holds anything but a schema; with what and where.
    """
    try:
        return _schema(decode_pickle(data))
    except Refusal as error:
        raise _refused("schema", error) from error


def read_pickled_indexes(data: bytes) -> dict[str, PickledIndex]:
    """Read the indexes, by name, that Petastorm keeps under ``dataset-toolkit.rowgroups_index.v1``.

    Nothing of them is run, imported or looked up by name.

    Args:
        data: the pickle.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or holds anything but indexes; with what and where.
    """
    try:
        return _indexes(decode_pickle(data))
    except Refusal as error:
        raise _refused("row-group index", error) from error


def _refused(what: str, error: Refusal) -> DatasetFileCorruptError:
    return DatasetFileCorruptError(
        f"Petastorm's pickled {what} has at byte {error.offset}: {error.problem}. It is damaged, or no {what} at all; "
        f"data_stack decodes only what Petastorm itself writes there, and never runs a pickle. If you trust its source, "
        f"write the metadata again, e.g. with petastorm-generate-metadata.py."
    )


# Schemas


def _schema(root: Any) -> PickledSchema:
    schema = _object(root, "schema", 0)
    attributes = _attributes(schema)
    name = _text(attributes.get("_name", "Unischema"), "the name of the schema", schema.offset)
    declared = attributes.get("_fields")
    if not isinstance(declared, DictNode):
        raise Refusal(f"a schema whose fields are {described(declared)}", schema.offset)
    fields: dict[str, PickledField] = {}
    for key, value in declared.items:
        field = _field(_object(value, "field", declared.offset))
        if _text(key, "the name of a field", declared.offset) != field.name:
            raise Refusal(f"the field {field.name!r} under the name {described(key)}", declared.offset)
        fields[field.name] = field
    return PickledSchema(name, tuple(fields.values()))


def _field(node: ObjectNode) -> PickledField:
    name, numpy_type, shape, codec, nullable = node.arguments
    offset = node.offset
    name = _text(name, "the name of a field", offset)
    if not isinstance(nullable, (bool, int, type(None))) or nullable not in (False, True, None):
        raise Refusal(f"the field {name!r}, nullable: {described(nullable)}", offset)
    return PickledField(
        name,
        _numpy_type(numpy_type, name, offset),
        _shape(shape, name, offset),
        None if codec is None else _codec(_object(codec, "codec", offset)),
        bool(nullable),
    )


def _numpy_type(node: Any, name: str, offset: int) -> str:
    if isinstance(node, KnownGlobal) and node.numpy_type is not None:
        return node.numpy_type
    if isinstance(node, DtypeNode):
        # A dtype may stand where its type belongs: numpy compares them as equal.
        code = f"{node.code}{node.itemsize}" if node.code not in "SU" else node.code
        if code not in ("f16", "c32"):
            known = KNOWN_GLOBALS.get(("numpy", np.dtype(code).type.__name__))
            if known is not None and known.numpy_type is not None:
                return known.numpy_type
    raise Refusal(f"the field {name!r} with the type {described(node)}", offset)


def _shape(node: Any, name: str, offset: int) -> tuple[int | None, ...]:
    sizes = tuple(node.items) if isinstance(node, (TupleNode, ListNode)) else None
    if sizes is None or len(sizes) > _MAX_DIMENSIONS or not all(_is_size(size) for size in sizes):
        raise Refusal(f"the field {name!r} with {described(node)} as its shape that is none", offset)
    return sizes


def _is_size(size: Any) -> bool:
    return size is None or (type(size) is int and 0 <= size < 2**63)


def _codec(node: ObjectNode) -> PickledCodec:
    attributes = _attributes(node)
    kind = cast(Literal["scalar", "ndarray", "compressed_ndarray", "image"], node.known.name)
    if kind == "scalar":
        return PickledCodec(kind, spark_type=_spark_type(_object(attributes.get("_spark_type"), "spark_type", node.offset)))
    if kind == "image":
        image_format = _text(attributes.get("_image_codec"), "the format of an image", node.offset)
        quality = attributes.get("_quality", 80)
        if not _IMAGE_FORMAT.fullmatch(image_format.lower()) or type(quality) is not int or not 0 <= quality <= 100:
            raise Refusal(f"images of format {described(image_format)}, quality {described(quality)}", node.offset)
        short = image_format.lower()[1:]
        return PickledCodec(kind, image_format="jpeg" if short == "jpg" else short, quality=quality)
    return PickledCodec(kind)


def _spark_type(node: ObjectNode) -> str:
    if node.known.name != "decimal":
        return node.known.name
    attributes = _attributes(node)
    precision, scale = attributes.get("precision", 10), attributes.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= 38 or precision < 1:
        raise Refusal(f"a decimal type of precision {described(precision)} and scale {described(scale)}", node.offset)
    return f"decimal({precision},{scale})"


# Indexes


def _indexes(root: Any) -> dict[str, PickledIndex]:
    if not isinstance(root, DictNode):
        raise Refusal(f"{described(root)} instead of a dict of indexes", 0)
    if len(root.items) > _MAX_INDEXES:
        raise Refusal(f"{len(root.items):,} indexes", root.offset)
    convert = _IndexConversion()
    indexes: dict[str, PickledIndex] = {}
    for key, value in root.items:
        name = _text(key, "the name of an index", root.offset)
        indexes[name] = convert.index(name, _object(value, "indexer", root.offset))
    return indexes


class _IndexConversion:
    """Nodes that several indexes or values share are converted once: else a small pickle could stand for an endless index."""

    def __init__(self) -> None:
        self._sets: dict[int, frozenset[int]] = {}
        self._mappings: dict[int, Mapping[Any, frozenset[int]]] = {}

    def index(self, name: str, node: ObjectNode) -> PickledIndex:
        attributes = _attributes(node)
        column = _text(attributes.get("_column_name"), "the field of an index", node.offset)
        content = attributes.get("_index_data")
        if node.known.name == "not_null":
            return PickledIndex(name, "not_null", column, ordinals=self._ordinals(content, node.offset))
        return PickledIndex(name, "single_field", column, row_groups=self._mapping(content, node.offset))

    def _mapping(self, node: Any, offset: int) -> Mapping[Any, frozenset[int]]:
        if not isinstance(node, DictNode):
            raise Refusal(f"an index whose values are {described(node)}", offset)
        if id(node) not in self._mappings:
            mapping: dict[Any, frozenset[int]] = {}
            n_with_hash: dict[int, int] = {}
            for key, value in node.items:
                plain = _plain_value(key, node.offset)
                same = n_with_hash[hash(plain)] = n_with_hash.get(hash(plain), 0) + 1
                if same > _MAX_SAME_HASH:
                    raise Refusal("values of an index that are made to collide", node.offset)
                ordinals = self._ordinals(value, node.offset)
                # Two of numpy's values may be one of Python's: joined, so that no row group is missed.
                mapping[plain] = mapping[plain] | ordinals if plain in mapping else ordinals
            self._mappings[id(node)] = mapping
        return self._mappings[id(node)]

    def _ordinals(self, node: Any, offset: int) -> frozenset[int]:
        if not isinstance(node, SetNode):
            raise Refusal(f"{described(node)} where a set of row groups belongs", offset)
        if id(node) not in self._sets:
            for item in node.items:
                if type(item) is not int or not 0 <= item <= _MAX_ROW_GROUP:
                    raise Refusal(f"{described(item)} where the number of a row group belongs", node.offset)
            self._sets[id(node)] = frozenset(node.items)
        return self._sets[id(node)]


def _plain_value(value: Any, offset: int) -> Any:
    if isinstance(value, PythonTwoString):
        text = text_of(value)
        return bytes(value) if text is None else text
    # A bool is an int, a datetime is a date.
    if isinstance(value, (str, bytes, int, float, complex, Decimal, date, time, timedelta, np.datetime64, np.timedelta64)):
        return value
    raise Refusal(f"{described(value)} as a value of an index", offset)


# What both are made of


def _object(value: Any, role: str, offset: int) -> ObjectNode:
    if not isinstance(value, ObjectNode) or value.known.role != role:
        raise Refusal(f"{described(value)} where a {role.replace('_', ' ')} belongs", offset)
    return value


def _attributes(node: ObjectNode) -> dict[str, Any]:
    attributes = {}
    for key, value in node.state.items if node.state is not None else ():
        name = text_of(key)
        if name is None:
            raise Refusal(f"an attribute named {described(key)} of {described(node)}", node.offset)
        attributes[name] = value
    return attributes


def _text(value: Any, what: str, offset: int) -> str:
    text = text_of(value)
    if text is None:
        raise Refusal(f"{described(value)} as {what}", offset)
    return text
