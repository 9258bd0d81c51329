"""Reads Petastorm's pickled row-group indexes without running them, and writes such pickles."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from data_stack_petastorm import pickled_stubs as stubs
from data_stack_petastorm.etl.rowgroup_indexers import (
    FieldNotNullIndexer,
    Indexer,
    SingleFieldIndexer,
    plain_index_value,
)
from data_stack_petastorm.pickled_opcodes import integer, named, object_with, text
from data_stack_petastorm.pickled_schema import refusal

_MAX_INDEXES = 1_000
_MAX_ROW_GROUP = 2**31 - 1
#: Keys with equal hashes make a dict quadratic. Real keys rarely have them.
_MAX_SAME_HASH = 64
#: Values of all indexes, and row groups of values that occur twice. A small pickle may name one large dict or set many times.
_MAX_CONVERTED = 20_000_000
#: Types of values that Petastorm unpickles; it does not unpickle times.
_UNPICKLED = (str, bytes, int, float, Decimal)


def read_pickled_indexes(data: bytes) -> dict[str, Indexer]:
    """Read the indexes, by name, that Petastorm keeps under ``dataset-toolkit.rowgroups_index.v1``.

    Nothing in them is run or imported.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or contains anything but indexes.
    """
    try:
        root = stubs.decode_pickle(data)
        if not isinstance(root, stubs.DictNode):
            raise stubs.Refusal(f"{stubs.describe(root)} instead of a dict of indexes")
        if len(root.items) > _MAX_INDEXES:
            raise stubs.Refusal(f"{len(root.items):,} indexes")
        conversion = _Conversion()
        names = [(stubs.text_of(name, "the name of an index"), node) for name, node in root.items]
        return {
            name: conversion.index(name, stubs.object_of(node, "indexer")) for name, node in names
        }
    except stubs.Refusal as error:
        raise refusal("row-group index", error) from error


class _Conversion:
    """Converts sets that values share only once, and limits how much is converted."""

    def __init__(self) -> None:
        self._sets: dict[int, frozenset[int]] = {}
        self._n_left = _MAX_CONVERTED

    def index(self, name: str, node: stubs.ObjectNode) -> Indexer:
        attributes = stubs.attributes_of(node)
        field, content = (
            stubs.text_of(attributes.get("_column_name"), "the field of an index"),
            attributes.get("_index_data"),
        )
        if node.known.name == "FieldNotNullIndexer":
            return FieldNotNullIndexer(name, field, {True: self._row_groups(content)})
        if not isinstance(content, stubs.DictNode):
            raise stubs.Refusal(f"an index whose values are {stubs.describe(content)}")
        return SingleFieldIndexer(name, field, self._mapping(content))

    def _mapping(self, node: stubs.DictNode) -> Mapping[Any, frozenset[int]]:
        mapping: dict[Any, frozenset[int]] = {}
        n_with_hash: dict[int, int] = {}
        for key, node_of_groups in node.items:
            value = plain_index_value(stubs.plain_value(key))
            same = n_with_hash[hash(value)] = n_with_hash.get(hash(value), 0) + 1
            if same > _MAX_SAME_HASH:
                raise stubs.Refusal("values of an index with colliding hashes")
            groups = self._row_groups(node_of_groups)
            if value in mapping:  # two numpy values may become the same Python value
                groups |= mapping[value]
                self._n_left -= len(groups)
            self._n_left -= 1
            if self._n_left < 0:
                raise stubs.Refusal("more values of an index than any dataset has")
            mapping[value] = groups
        return mapping

    def _row_groups(self, node: Any) -> frozenset[int]:
        if not isinstance(node, stubs.SetNode):
            raise stubs.Refusal(f"{stubs.describe(node)} where a set of row groups belongs")
        if id(node) not in self._sets:
            for item in node.items:
                if type(item) is not int or not 0 <= item <= _MAX_ROW_GROUP:
                    raise stubs.Refusal(
                        f"{stubs.describe(item)} where the number of a row group belongs"
                    )
            self._sets[id(node)] = frozenset(node.items)
        return self._sets[id(node)]


def write_pickled_indexes(indexes: Mapping[str, Indexer]) -> bytes:
    """Write indexes, by name, for ``dataset-toolkit.rowgroups_index.v1``, as a pickle of protocol 3.

    Indexes of times are left out, which Petastorm does not unpickle.
    """
    kept = {
        name: index
        for name, index in indexes.items()
        if all(isinstance(value, _UNPICKLED) for value in index.row_groups)
    }
    return (
        b"\x80\x03}(" + b"".join(text(name) + _index(index) for name, index in kept.items()) + b"u."
    )


def _index(index: Indexer) -> bytes:
    names = (
        text("_index_name")
        + text(index.index_name)
        + text("_column_name")
        + text(index.field)
        + text("_index_data")
    )
    if isinstance(index, FieldNotNullIndexer):
        return object_with(
            "petastorm.etl.rowgroup_indexers.FieldNotNullIndexer",
            names + _set(index.get_row_group_indexes()),
        )
    values = b"".join(_value(value) + _set(groups) for value, groups in index.row_groups.items())
    data = named("collections.defaultdict") + named("builtins.set") + b"\x85R(" + values + b"u"
    return object_with("petastorm.etl.rowgroup_indexers.SingleFieldIndexer", names + data)


def _set(numbers: Iterable[int]) -> bytes:
    return named("builtins.set") + b"](" + b"".join(map(integer, sorted(numbers))) + b"e\x85R"


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"B" + struct.pack("<I", len(value)) + value
    return (
        text(value)
        if isinstance(value, str)
        else named("decimal.Decimal") + text(str(value)) + b"\x85R"
    )
