"""Records end to end with their index: what a column becomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import FixedLayout
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.records.growing_file import BytesDifferError, GrowingFile
from data_stack.formats.records.memory_blocks import MemoryBlocks

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

__all__ = ["BagWriter", "FolderBag", "Piece"]

#: Index entries looked at in one go.
_ENTRIES = 1 << 17
_ENTRY_BYTES = 8


@dataclass(frozen=True)
class Piece:
    """Some records of a column, end to end.

    Attributes:
        data: their bytes; nobody changes them any more.
        n_records: how many.
        sizes: of each record in bytes, shape ``(n_records,)``; one number if all are of one size.
        layout: of all of them, where it is known to be one.
    """

    data: Buffer
    n_records: int
    sizes: int | npt.NDArray[np.uint64]
    layout: FixedLayout | None = None

    @classmethod
    def of(cls, records: Sequence[bytes], blocks: MemoryBlocks) -> Piece:
        """Records end to end."""
        return cls(blocks.joined(records), len(records), np.fromiter(map(len, records), np.uint64, len(records)))

    @property
    def n_bytes(self) -> int:
        """Size of all of them."""
        return memoryview(self.data).nbytes

    def first(self, n_records: int) -> Piece:
        """Some of them; of records of one size only."""
        if not isinstance(self.sizes, int):
            raise TypeError("the records are of different sizes")
        return Piece(memoryview(self.data)[: n_records * self.sizes], n_records, self.sizes, self.layout)

    def ends(self, start: int) -> npt.NDArray[np.uint64]:
        """Where each record ends if the first begins at ``start``."""
        ends: npt.NDArray[np.uint64]
        if isinstance(self.sizes, int):
            ends = np.arange(1, self.n_records + 1, dtype=np.uint64) * np.uint64(self.sizes)
        else:
            ends = np.cumsum(self.sizes, dtype=np.uint64)
        ends += np.uint64(start)
        return ends.astype("<u8", copy=False)


class BagWriter(ABC):
    """The records of a column, appended in order.

    Attributes:
        n_records: records that count.
        n_bytes: where the last of them ends.
        is_repeatable: whether a :meth:`write` that failed can be tried again.
    """

    is_repeatable = True

    def __init__(self) -> None:
        self.n_records = self.n_bytes = 0
        self._new = (0, 0)

    def write(self, pieces: Sequence[Piece]) -> None:
        """Write records and their index entries; they count once :meth:`advance` is called.

        Raises:
            ConfigError: an interrupted writer left other records there.
            StorageError: they could not be written; nothing counts that did not before.
        """
        if not pieces:
            self._new = (0, self.n_bytes)
            return
        n_bytes, ends = self.n_bytes, []
        for piece in pieces:
            ends.append(piece.ends(n_bytes))
            n_bytes = int(ends[-1][-1])
        data: Any = pieces[0].data if len(pieces) == 1 else b"".join(piece.data for piece in pieces)
        entries = ends[0] if len(ends) == 1 else np.concatenate(ends)
        self._new = (len(entries), n_bytes)
        self._put(data, entries)

    def advance(self) -> None:
        """What was written last counts."""
        self.n_records, self.n_bytes, self._new = self.n_records + self._new[0], self._new[1], (0, self._new[1])

    def take_back(self) -> None:
        """What was written last does not count."""
        self._new = (0, self.n_bytes)

    @property
    def is_ahead(self) -> bool:
        """Whether an interrupted writer left more than counts, to which what is written is held."""
        return False

    @abstractmethod
    def _put(self, data: Buffer, ends: npt.NDArray[np.uint64]) -> None:
        """Write, data first."""


class FolderBag(BagWriter):
    """In two files of this machine. What is found there counts as far as it is complete.

    Args:
        column: name, for messages.
        bag, idx: the two files.
        least: records and bytes of the bag that a manifest promises.

    Raises:
        DatasetFileCorruptError: the index is damaged, or something was cut off that had been complete.
    """

    def __init__(self, column: str, bag: GrowingFile, idx: GrowingFile, least: tuple[int, int] = (0, 0)) -> None:
        super().__init__()
        self._column, self.bag, self.idx = column, bag, idx
        n_complete = self._complete_entries()
        if n_complete < least[0] or bag.found < least[1]:
            raise DatasetFileCorruptError(
                f"column {column!r} has {n_complete} complete records in {bag.found} bytes of {bag.path!r}, but its manifest "
                f"promises {least[0]} in {least[1]}: something cut it short. Take the dataset from a copy, or write it anew"
            )
        self.n_found = n_complete
        self.count(n_complete)
        idx.cut()  # a torn entry, and entries whose records never arrived

    def count(self, n_records: int) -> None:
        """Let the first ``n_records`` count, of those that were found complete."""
        self.n_records, self.n_bytes = n_records, self.end_of(n_records)
        self.bag.begin_at(self.n_bytes)
        self.idx.begin_at(n_records * _ENTRY_BYTES)

    def end_of(self, n_records: int) -> int:
        """Where the first ``n_records`` end."""
        if n_records == 0:
            return 0
        return int.from_bytes(self.idx.read((n_records - 1) * _ENTRY_BYTES, _ENTRY_BYTES), "little")

    def ends(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        """Where each of some records ends."""
        return np.frombuffer(self.idx.read(start * _ENTRY_BYTES, (stop - start) * _ENTRY_BYTES), "<u8")

    @property
    def is_ahead(self) -> bool:
        return self.bag.is_ahead or self.idx.is_ahead

    def _put(self, data: Buffer, ends: npt.NDArray[np.uint64]) -> None:
        try:
            self.bag.write(data)
            self.idx.write(ends)
        except BytesDifferError as error:
            self.take_back()
            in_bag = error.path == self.bag.path
            number = int(np.searchsorted(ends, np.uint64(error.offset), "right"))
            if not in_bag:
                number = (error.offset - self.idx.size) // _ENTRY_BYTES
            raise ConfigError(
                f"record {self.n_records + number} of column {self._column!r} is not the one that an interrupted writer left in "
                f"{self.bag.path!r} (byte {error.offset} of {'it' if in_bag else repr(self.idx.path)} differs). "
                f"Give the same samples again from len(writer) on; or open the writer with on_overlap='truncate'"
            ) from error

    def advance(self) -> None:
        super().advance()
        self.bag.advance()
        self.idx.advance()

    def take_back(self) -> None:
        super().take_back()
        self.bag.take_back()
        self.idx.take_back()

    def cut(self) -> None:
        """Remove what an interrupted writer left beyond what counts."""
        self.bag.cut()
        self.idx.cut()

    def close(self) -> None:
        """Give the files back."""
        self.bag.close()
        self.idx.close()

    def _complete_entries(self) -> int:
        """How many entries of the index are whole and lie in the bag.

        A power cut may leave zeros at a file's end; any other entry that decreases is damage, and cutting it off would lose what
        lies behind it.
        """
        n_entries, last = self.idx.found // _ENTRY_BYTES, 0
        for start in range(0, n_entries, _ENTRIES):
            ends = self.ends(start, min(n_entries, start + _ENTRIES))
            decreases = np.flatnonzero(ends < np.concatenate(([np.uint64(last)], ends[:-1])))
            if len(decreases):
                first = int(decreases[0])
                if not ends[first:].any() and self._is_zero_behind(start + len(ends), n_entries):
                    return self._inside(start, ends[:first])
                raise DatasetFileCorruptError(
                    f"{self.idx.path!r} is damaged: entry {start + first} of the index of column {self._column!r} (byte "
                    f"{(start + first) * _ENTRY_BYTES}) is smaller than the one before it. Take the dataset from a copy, or cut "
                    f"this file there to write on from record {start + first}"
                )
            n_inside = self._inside(start, ends)
            if n_inside < start + len(ends):
                return n_inside
            last = int(ends[-1])
        return n_entries

    def _inside(self, start: int, ends: npt.NDArray[np.uint64]) -> int:
        return start + int(np.searchsorted(ends, np.uint64(self.bag.found), "right"))

    def _is_zero_behind(self, start: int, stop: int) -> bool:
        return not any(any(piece) for piece in self.idx.pieces(start * _ENTRY_BYTES, stop * _ENTRY_BYTES))
