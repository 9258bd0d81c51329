"""Reads Petastorm's pickled schemas and row-group indexes, of versions 0.4.0 to 0.13.1.

Petastorm unpickles them, and so runs any code in the pickle. Here a pickle is decoded to inert stubs, from which this module
takes the parts of a schema or an index. Anything else is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Literal, cast

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.pickled.decoding import (
    DictNode,
    DtypeNode,
    GlobalNode,
    ObjectNode,
    Refusal,
    SetNode,
    decode_pickle,
    describe,
    plain_text,
    text_of,
)
from data_stack.formats.parquet.pickled.known_globals import KNOWN_GLOBALS, codec_makers
from data_stack.formats.parquet.pickled.values import PickledCodec, PickledField, PickledIndex, PickledSchema

_MAX_INDEXES = 1_000
_MAX_DIMENSIONS = 64  # of numpy
_MAX_ROW_GROUP = 2**31 - 1
_IMAGE_FORMAT = re.compile(r"\.[a-z0-9]{1,8}")
#: Keys with equal hashes make a dict quadratic. Real keys rarely have them.
_MAX_SAME_HASH = 64
_MAX_JOINED = 10_000_000
_MAX_DEPTH = 20


def read_pickled_schema(data: bytes) -> PickledSchema:
    """Read the schema that Petastorm keeps under ``dataset-toolkit.unischema.v1`` in ``_common_metadata``.

    Nothing in it is run or imported.

    Args:
        data: the pickle.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or contains anything but a schema.
    """
    try:
        attributes = _attributes(_object(decode_pickle(data), "schema"))
        declared = attributes.get("_fields")
        if not isinstance(declared, DictNode):
            raise Refusal(f"a schema whose fields are {describe(declared)}")
        fields = {_text(name, "the name of a field"): _field(_object(node, "field")) for name, node in declared.items}
        for name, field in fields.items():
            if name != field.name:
                raise Refusal(f"the field {field.name!r} under the name {name!r}")
        return PickledSchema(_text(attributes.get("_name", "Unischema"), "the name of the schema"), tuple(fields.values()))
    except Refusal as error:
        raise _refusal("schema", error) from error


def read_pickled_indexes(data: bytes) -> dict[str, PickledIndex]:
    """Read the indexes, by name, that Petastorm keeps under ``dataset-toolkit.rowgroups_index.v1``.

    Nothing in them is run or imported.

    Args:
        data: the pickle.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or contains anything but indexes.
    """
    try:
        root = decode_pickle(data)
        if not isinstance(root, DictNode):
            raise Refusal(f"{describe(root)} instead of a dict of indexes")
        if len(root.items) > _MAX_INDEXES:
            raise Refusal(f"{len(root.items):,} indexes")
        convert = _IndexConversion()
        names = [(_text(name, "the name of an index"), node) for name, node in root.items]
        return {name: convert.index(name, _object(node, "indexer")) for name, node in names}
    except Refusal as error:
        raise _refusal("row-group index", error) from error


def _refusal(what: str, error: Refusal) -> DatasetFileCorruptError:
    return DatasetFileCorruptError(
        f"Petastorm's pickled {what} contains {error}. It is damaged, or not a {what}: data_stack decodes only what Petastorm "
        f"writes, and never runs a pickle. If you trust the source, write the metadata again, e.g. with "
        f"petastorm-generate-metadata.py."
    )


# Schemas


def _field(node: ObjectNode) -> PickledField:
    name, numpy_type, shape, codec, nullable = node.arguments
    name = _text(name, "the name of a field")
    if not isinstance(nullable, (bool, int, type(None))) or nullable not in (False, True, None):
        raise Refusal(f"the field {name!r}, nullable: {describe(nullable)}")
    if not isinstance(shape, (tuple, list)) or len(shape) > _MAX_DIMENSIONS or not all(map(_is_size, shape)):
        raise Refusal(f"the field {name!r} with {describe(shape)} as an invalid shape")
    stored = None if codec is None else _codec(_object(codec, "codec"))
    return PickledField(name, _numpy_type(numpy_type, name), tuple(shape), stored, bool(nullable))


def _is_size(size: Any) -> bool:
    return size is None or (type(size) is int and 0 <= size < 2**63)


def _numpy_type(node: Any, name: str) -> str:
    known = node.known if isinstance(node, GlobalNode) else None
    if isinstance(node, DtypeNode) and node.code not in ("f16", "c32"):
        # A dtype may replace its type: numpy compares them as equal.
        code = node.code[0] if node.code[0] in "SU" else node.code
        known = KNOWN_GLOBALS.get(f"numpy.{np.dtype(code).type.__name__}")
    if known is None or known.numpy_type is None:
        raise Refusal(f"the field {name!r} with the type {describe(node)}")
    return known.numpy_type


def _codec(node: ObjectNode) -> PickledCodec:
    attributes = _attributes(node)
    if node.known.name in codec_makers:
        made: dict[int, Any] = {}
        state = {name: _plain_attribute(value, made) for name, value in attributes.items()}
        return PickledCodec("registered", class_name=node.known.name, state=state)
    kind = cast(Literal["scalar", "ndarray", "compressed_ndarray", "image"], node.known.name)
    if kind == "scalar":
        return PickledCodec(kind, spark_type=_spark_type(_object(attributes.get("_spark_type"), "spark_type")))
    if kind == "image":
        image_format = _text(attributes.get("_image_codec"), "the format of an image").lower()
        quality = attributes.get("_quality", 80)
        if not _IMAGE_FORMAT.fullmatch(image_format) or type(quality) is not int or not 0 <= quality <= 100:
            raise Refusal(f"images of format {describe(image_format)}, quality {describe(quality)}")
        return PickledCodec(kind, image_format="jpeg" if image_format == ".jpg" else image_format[1:], quality=quality)
    return PickledCodec(kind)


def _plain_attribute(value: Any, made: dict[int, Any], depth: int = 0) -> Any:
    """An attribute of a registered codec: plain data, a numpy type, or the name of a Spark type.

    Shared values are converted once: otherwise a small pickle could expand to unlimited data.
    """
    if depth > _MAX_DEPTH:
        raise Refusal(f"an attribute of a codec that is nested more than {_MAX_DEPTH} deep")
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, ObjectNode) and value.known.role == "spark_type":
        return _spark_type(value)
    if isinstance(value, (list, tuple)):
        made[id(value)] = type(value)([_plain_attribute(each, made, depth + 1) for each in value])
    elif isinstance(value, DictNode):
        items = value.items
        made[id(value)] = {_text(key, "a key"): _plain_attribute(each, made, depth + 1) for key, each in items}
    elif isinstance(value, DtypeNode):
        return np.dtype(value.byte_order + value.code + value.unit)
    elif isinstance(value, GlobalNode) and (numpy_type := value.known.numpy_type) is not None:
        return Decimal if numpy_type == "Decimal" else np.dtype(numpy_type.removesuffix("_")).type
    else:
        return value if value is None else _plain_value(value)
    return made[id(value)]


def _spark_type(node: ObjectNode) -> str:
    if node.known.name != "decimal":
        return node.known.name
    attributes = _attributes(node)
    precision, scale = attributes.get("precision", 10), attributes.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= 38 or precision < 1:
        raise Refusal(f"a decimal type of precision {describe(precision)} and scale {describe(scale)}")
    return f"decimal({precision},{scale})"


# Indexes


class _IndexConversion:
    """Converts nodes that indexes or values share only once: otherwise a small pickle could expand to a huge index."""

    def __init__(self) -> None:
        self._sets: dict[int, frozenset[int]] = {}
        self._mappings: dict[int, Mapping[Any, frozenset[int]]] = {}
        self._n_joined = 0

    def index(self, name: str, node: ObjectNode) -> PickledIndex:
        attributes = _attributes(node)
        column, content = _text(attributes.get("_column_name"), "the field of an index"), attributes.get("_index_data")
        if node.known.name == "not_null":
            return PickledIndex(name, "not_null", column, ordinals=self._ordinals(content))
        if not isinstance(content, DictNode):
            raise Refusal(f"an index whose values are {describe(content)}")
        if id(content) not in self._mappings:
            self._mappings[id(content)] = self._mapping(content)
        return PickledIndex(name, "single_field", column, row_groups=self._mappings[id(content)])

    def _mapping(self, node: DictNode) -> Mapping[Any, frozenset[int]]:
        mapping: dict[Any, frozenset[int]] = {}
        n_with_hash: dict[int, int] = {}
        for key, groups in node.items:
            value = _plain_value(key)
            same = n_with_hash[hash(value)] = n_with_hash.get(hash(value), 0) + 1
            if same > _MAX_SAME_HASH:
                raise Refusal("values of an index with colliding hashes")
            # Two numpy values may become the same Python value: their row groups are joined.
            ordinals = self._ordinals(groups)
            if value in mapping:
                ordinals = mapping[value] | ordinals
                self._n_joined += len(ordinals)
                if self._n_joined > _MAX_JOINED:
                    raise Refusal("values of an index that occur too often")
            mapping[value] = ordinals
        return mapping

    def _ordinals(self, node: Any) -> frozenset[int]:
        if not isinstance(node, SetNode):
            raise Refusal(f"{describe(node)} where a set of row groups belongs")
        if id(node) not in self._sets:
            for item in node.items:
                if type(item) is not int or not 0 <= item <= _MAX_ROW_GROUP:
                    raise Refusal(f"{describe(item)} where the number of a row group belongs")
            self._sets[id(node)] = frozenset(node.items)
        return self._sets[id(node)]


def _plain_value(value: Any) -> Any:
    if isinstance(value, str):
        return plain_text(value)
    # A bool is an int, a datetime is a date.
    if isinstance(value, (bytes, int, float, complex, Decimal, date, time, timedelta, np.datetime64, np.timedelta64)):
        return value
    raise Refusal(f"{describe(value)} as a value of an index")


# Parts of both


def _object(value: Any, role: str) -> ObjectNode:
    if not isinstance(value, ObjectNode) or value.known.role != role:
        raise Refusal(f"{describe(value)} where a {role.replace('_', ' ')} belongs")
    return value


def _attributes(node: ObjectNode) -> dict[str, Any]:
    items = node.state.items if node.state is not None else ()
    return {_text(name, "the name of an attribute"): value for name, value in items}


def _text(value: Any, what: str) -> str:
    text = text_of(value)
    if text is None:
        raise Refusal(f"{describe(value)} as {what}")
    return text
