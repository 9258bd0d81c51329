"""Writes row-group indexes as pickles that Petastorm reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from data_stack_petastorm.etl.rowgroup_indexers import FieldNotNullIndexer, Indexer
from data_stack_petastorm.pickles import pieces

#: The first protocol with bytes.
_PROTOCOL: Final = 3

#: The types of values that Petastorm unpickles. It refuses times.
_TYPES_OF_PETASTORM: Final = (str, bytes, int, float, Decimal)


def write_pickled_indexes(indexes: Mapping[str, Indexer]) -> bytes:
    """Return indexes as a pickle of protocol 3, for ``dataset-toolkit.rowgroups_index.v1``.

    Indexes of times are left out, because Petastorm does not unpickle times.

    Args:
        indexes: the indexes by name.
    """
    items = b""
    for name, index in indexes.items():
        if _is_known_to_petastorm(index):
            items += pieces.text(name) + _index_piece(index)
    root = pieces.EMPTY_DICT + pieces.MARK + items + pieces.SETITEMS
    return pieces.PROTO + bytes([_PROTOCOL]) + root + pieces.STOP


def _is_known_to_petastorm(index: Indexer) -> bool:
    """Return whether Petastorm unpickles all values of an index."""
    return all(isinstance(value, _TYPES_OF_PETASTORM) for value in index.row_groups)


def _index_piece(index: Indexer) -> bytes:
    """Return the piece that makes an index, an object of a class of Petastorm."""
    # ``_index_data`` is the last name here: its value follows, and depends on the class.
    attributes = (
        pieces.text("_index_name")
        + pieces.text(index.index_name)
        + pieces.text("_column_name")
        + pieces.text(index.field)
        + pieces.text("_index_data")
    )
    if isinstance(index, FieldNotNullIndexer):
        return pieces.new_object(
            "petastorm.etl.rowgroup_indexers.FieldNotNullIndexer",
            attributes + _set_piece(index.get_row_group_indexes()),
        )
    items = [
        _value_piece(value) + _set_piece(row_groups)
        for value, row_groups in index.row_groups.items()
    ]
    # Petastorm keeps the row groups of each value in a defaultdict of sets.
    new_default_dict = pieces.call("collections.defaultdict", pieces.named("builtins.set"))
    sets_by_value = new_default_dict + pieces.MARK + b"".join(items) + pieces.SETITEMS
    return pieces.new_object(
        "petastorm.etl.rowgroup_indexers.SingleFieldIndexer", attributes + sets_by_value
    )


def _set_piece(numbers: Iterable[int]) -> bytes:
    """Return the piece that makes a set, by a call of ``set`` with a list.

    Protocol 3 has no opcode for sets.
    """
    items = [pieces.integer(number) for number in sorted(numbers)]
    numbers_list = pieces.EMPTY_LIST + pieces.MARK + b"".join(items) + pieces.APPENDS
    return pieces.call("builtins.set", numbers_list)


def _value_piece(value: Any) -> bytes:
    """Return the piece that makes a value of an index."""
    if isinstance(value, bool):  # an int as well
        return pieces.boolean(value)
    if isinstance(value, int):
        return pieces.integer(value)
    if isinstance(value, float):
        return pieces.real(value)
    if isinstance(value, bytes):
        return pieces.raw_bytes(value)
    if isinstance(value, str):
        return pieces.text(value)
    return pieces.call("decimal.Decimal", pieces.text(str(value)))
