"""Reads tables of FlatBuffers, in which Arrow writes the headers of its messages.

The format: https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from data_stack.exception import DatasetFileCorruptError

#: The size of a position in a FlatBuffer.
_OFFSET_BYTES: Final = 4

#: The size of an entry in the list of a table's fields.
_ENTRY_BYTES: Final = 2

#: The entries before those of the fields: the sizes of the list and of the table.
_N_ENTRIES_BEFORE_FIELDS: Final = 2


@dataclass(frozen=True, slots=True)
class FlatTable:
    """A table in a FlatBuffer. Fields are numbered as in its schema.

    Attributes:
        data: the whole buffer.
        start: where the table begins in the buffer.

    Raises:
        DatasetFileCorruptError: by each method, if the buffer ends before what it should hold.
    """

    data: bytes
    start: int

    @classmethod
    def root(cls, data: bytes) -> FlatTable:
        """Return the outermost table of a buffer."""
        return cls(data, _unpack(data, "<I", 0))

    def integer(self, number: int, code: str, default: int = 0) -> int:
        """Return an integer or a boolean.

        Args:
            number: the number of the field.
            code: the type of the field, as a format of :mod:`struct` such as ``"<q"``.
            default: the value of a field that is not stored.
        """
        position = self.find(number)
        if position is None:
            return default
        return _unpack(self.data, code, position)

    def table(self, number: int) -> FlatTable | None:
        """Return a table in this table; None if it is not stored."""
        position = self.position_of(number)
        if position is None:
            return None
        return FlatTable(self.data, position)

    def position_of(self, number: int) -> int | None:
        """Return where a table or vector in this table begins; None if it is not stored."""
        position = self.find(number)
        if position is None:
            return None
        return position + _unpack(self.data, "<I", position)

    def structs(self, number: int, struct_bytes: int) -> memoryview:
        """Return the bytes of a vector of structs; none if it is not stored.

        Args:
            number: the number of the field.
            struct_bytes: the size of each struct.
        """
        start, end = self.span_of_structs(number, struct_bytes)
        return memoryview(self.data)[start:end]

    def span_of_structs(self, number: int, struct_bytes: int) -> tuple[int, int]:
        """Return where a vector of structs begins and ends; ``(0, 0)`` if it is not stored.

        Args:
            number: the number of the field.
            struct_bytes: the size of each struct.
        """
        position = self.position_of(number)
        if position is None:
            return 0, 0
        n_structs = _unpack(self.data, "<I", position)
        start = position + _OFFSET_BYTES
        end = start + n_structs * struct_bytes
        if end > len(self.data):
            raise _damage_error()
        return start, end

    def find(self, number: int) -> int | None:
        """Return where a field begins; None if it is not stored."""
        # The list of fields may lie before the table or behind it.
        entries = self.start - _unpack(self.data, "<i", self.start)
        list_bytes = _unpack(self.data, "<H", entries)
        entry = (_N_ENTRIES_BEFORE_FIELDS + number) * _ENTRY_BYTES
        if entry + _ENTRY_BYTES > list_bytes:
            return None
        offset = _unpack(self.data, "<H", entries + entry)
        if offset == 0:
            return None
        return self.start + offset


def _unpack(data: bytes, code: str, position: int) -> int:
    """Return the integer at a position.

    Raises:
        DatasetFileCorruptError: the buffer ends before.
    """
    # struct takes a negative position for one from the end.
    if position < 0:
        raise _damage_error()
    try:
        value: int = struct.unpack_from(code, data, position)[0]
    except struct.error as error:
        raise _damage_error() from error
    return value


def _damage_error() -> DatasetFileCorruptError:
    return DatasetFileCorruptError("the header of a message is damaged")
