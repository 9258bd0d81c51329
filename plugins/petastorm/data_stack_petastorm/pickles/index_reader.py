"""Reads Petastorm's pickled row-group indexes without running them."""

from __future__ import annotations

from typing import Any, Final

from data_stack_petastorm.etl.rowgroup_indexers import (
    FieldNotNullIndexer,
    Indexer,
    SingleFieldIndexer,
    plain_index_value,
)
from data_stack_petastorm.pickles.decoding import decode_pickle, refused_pickle
from data_stack_petastorm.pickles.stub_values import (
    attributes_of,
    expect_object,
    expect_text,
    plain_value,
)
from data_stack_petastorm.pickles.stubs import DictStub, ObjectStub, Refusal, SetStub, describe

#: The maximum number of indexes. A dataset has hardly more indexes than fields, and few hundred of
#: these.
_MAX_INDEXES: Final = 1_000

#: The largest number of a row group: Parquet counts them with 32 bits.
_MAX_ROW_GROUP: Final = 2**31 - 1

#: The maximum number of values with the same hash in an index: a dict takes quadratic time for
#: them. Real indexes have few such values.
_MAX_SAME_HASH: Final = 64

#: The maximum number of values in all indexes together. If a value occurs twice in an index, the
#: row groups of both are joined and count as well. Without a limit, a small pickle could name one
#: large dict or set many times.
_MAX_CONVERTED: Final = 20_000_000


def read_pickled_indexes(data: bytes) -> dict[str, Indexer]:
    """Return the indexes of a pickle by name; nothing in the pickle is run or imported.

    Args:
        data: what Petastorm keeps under ``dataset-toolkit.rowgroups_index.v1``.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or contains anything but indexes.
    """
    try:
        return _read_indexes(decode_pickle(data))
    except Refusal as refusal:
        raise refused_pickle("row-group index", refusal) from refusal


def _read_indexes(root: Any) -> dict[str, Indexer]:
    """Return the indexes of a decoded pickle by name.

    Raises:
        Refusal: it is not a dict of indexes, or there are too many.
    """
    if not isinstance(root, DictStub):
        raise Refusal(f"{describe(root)} instead of a dict of indexes")
    if len(root.items) > _MAX_INDEXES:
        raise Refusal(f"{len(root.items):,} indexes")
    conversion = _IndexConversion()
    indexes: dict[str, Indexer] = {}
    for name_value, index_value in root.items:
        name = expect_text(name_value, "the name of an index")
        indexes[name] = conversion.convert_index(name, expect_object(index_value, "indexer"))
    return indexes


class _IndexConversion:
    """Converts the indexes of a pickle, and limits how much is converted."""

    #: Converted sets, by the ``id`` of their stubs. Many values of an index share a set.
    _sets: dict[int, frozenset[int]]
    #: How many more values may be converted.
    _n_left: int

    def __init__(self) -> None:
        self._sets = {}
        self._n_left = _MAX_CONVERTED

    def convert_index(self, name: str, stub: ObjectStub) -> Indexer:
        """Return an index.

        Args:
            name: the name of the index.
            stub: the index in the pickle, which must live as long as this object.

        Raises:
            Refusal: it is not an index, or more than any dataset has.
        """
        attributes = attributes_of(stub)
        field = expect_text(attributes.get("_column_name"), "the field of an index")
        content = attributes.get("_index_data")
        if stub.known.name == "FieldNotNullIndexer":
            return FieldNotNullIndexer(name, field, {True: self._convert_row_groups(content)})
        if not isinstance(content, DictStub):
            raise Refusal(f"an index whose values are {describe(content)}")
        return SingleFieldIndexer(name, field, self._convert_values(content))

    def _convert_values(self, stub: DictStub) -> dict[Any, frozenset[int]]:
        """Return the row groups of each value.

        Raises:
            Refusal: a value is not plain, or there are too many values or equal hashes.
        """
        row_groups_of_values: dict[Any, frozenset[int]] = {}
        n_with_hash: dict[int, int] = {}
        for key, row_groups_value in stub.items:
            # Only plain values are hashed, never tuples of a stranger.
            value = plain_index_value(plain_value(key))
            hash_of_value = hash(value)
            n_with_hash[hash_of_value] = n_with_hash.get(hash_of_value, 0) + 1
            if n_with_hash[hash_of_value] > _MAX_SAME_HASH:
                raise Refusal("values of an index with colliding hashes")
            row_groups = self._convert_row_groups(row_groups_value)
            if value in row_groups_of_values:
                # Two values of numpy may be the same value of Python.
                row_groups |= row_groups_of_values[value]
                self._n_left -= len(row_groups)
            self._n_left -= 1
            if self._n_left < 0:
                raise Refusal("more values of an index than any dataset has")
            row_groups_of_values[value] = row_groups
        return row_groups_of_values

    def _convert_row_groups(self, value: Any) -> frozenset[int]:
        """Return the numbers of row groups in a set; a set that occurs again is converted once.

        Raises:
            Refusal: it is not a set of numbers.
        """
        if not isinstance(value, SetStub):
            raise Refusal(f"{describe(value)} where a set of row groups belongs")
        if id(value) in self._sets:
            return self._sets[id(value)]
        for number in value.items:
            # A bool is an int, but no number.
            if type(number) is not int or not 0 <= number <= _MAX_ROW_GROUP:
                raise Refusal(f"{describe(number)} where the number of a row group belongs")
        row_groups = frozenset(value.items)
        self._sets[id(value)] = row_groups
        return row_groups
