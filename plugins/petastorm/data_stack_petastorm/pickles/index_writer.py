"""Writes row-group indexes as pickles that Petastorm reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from data_stack_petastorm.etl.rowgroup_indexers import FieldNotNullIndexer, Indexer
from data_stack_petastorm.pickles import pieces

#: The first protocol with bytes.
_PROTOCOL: Final = 3

#: Types of values that Petastorm's unpickler allows, which refuses times.
_TYPES_OF_PETASTORM: Final = (str, bytes, int, float, Decimal)


def write_pickled_indexes(indexes: Mapping[str, Indexer]) -> bytes:
    """Write indexes by name, for ``dataset-toolkit.rowgroups_index.v1``.

    The pickle has protocol 3. Indexes of times are left out, as Petastorm does not unpickle them.
    """
    items = b""
    for name, index in indexes.items():
        if _is_known_to_petastorm(index):
            items += pieces.text(name) + _index_piece(index)
    root = pieces.EMPTY_DICT + pieces.MARK + items + pieces.SETITEMS
    return pieces.PROTO + bytes([_PROTOCOL]) + root + pieces.STOP


def _is_known_to_petastorm(index: Indexer) -> bool:
    return all(isinstance(value, _TYPES_OF_PETASTORM) for value in index.row_groups)


def _index_piece(index: Indexer) -> bytes:
    names = (
        pieces.text("_index_name")
        + pieces.text(index.index_name)
        + pieces.text("_column_name")
        + pieces.text(index.field)
        + pieces.text("_index_data")
    )
    if isinstance(index, FieldNotNullIndexer):
        return pieces.new_object(
            "petastorm.etl.rowgroup_indexers.FieldNotNullIndexer",
            names + _set_piece(index.get_row_group_indexes()),
        )
    items = [
        _value_piece(value) + _set_piece(row_groups)
        for value, row_groups in index.row_groups.items()
    ]
    new_default_dict = pieces.call("collections.defaultdict", pieces.named("builtins.set"))
    values = new_default_dict + pieces.MARK + b"".join(items) + pieces.SETITEMS
    return pieces.new_object("petastorm.etl.rowgroup_indexers.SingleFieldIndexer", names + values)


def _set_piece(numbers: Iterable[int]) -> bytes:
    """Return the piece that makes a set: protocol 3 makes it of a list."""
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
