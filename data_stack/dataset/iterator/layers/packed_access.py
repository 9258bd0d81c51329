"""Access to sequences of tokens that are made of documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn, SampleAccess
from data_stack.dataset.iterator.contract import ColumnArray, ColumnKey
from data_stack.dataset.iterator.layers.documents import TOKENS, Documents, Measures, Values
from data_stack.dataset.iterator.layers.sequence_plan import Pieces, SequencePlan
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.values.stacking import SampleForm, list_samples

SEGMENT_IDS = "segment_ids"
"""The name of the column with the number of each token's document in its sequence."""

POSITIONS = "positions"
"""The name of the column with the place of each token in its document."""

#: Tokens that are read at once while sequences are iterated over.
_TOKENS_AT_ONCE = 1 << 16


class PackedAccess(SampleAccess):
    """Access to sequences of tokens that are made of documents.

    Args:
        documents: the documents.
        measures: the lengths of the documents, and the types of their columns.
        plan: which pieces of documents each sequence consists of.
        length: the number of tokens in a sequence.
        ends: for each column what follows each document, shape ``(0, ...)`` or ``(1, ...)``.
        padding: for each column the value where a sequence has no token.
    """

    fixed_columns = True

    #: Which pieces of documents each sequence consists of.
    plan: SequencePlan

    #: The documents.
    _documents: Documents

    #: The lengths of the documents, and the types of their columns.
    _measures: Measures

    #: The number of tokens in a sequence.
    _length: int

    #: For each column what follows each document.
    _ends: Mapping[str, Values]

    #: For each column the value where a sequence has no token.
    _padding: Mapping[str, Any]

    #: The form of a sequence.
    _form: SampleForm

    def __init__(
        self,
        documents: Documents,
        measures: Measures,
        plan: SequencePlan,
        *,
        length: int,
        ends: Mapping[str, Values],
        padding: Mapping[str, Any],
    ) -> None:
        self.plan = plan
        self.n_samples = plan.n_sequences
        self._documents = documents
        self._measures = measures
        self._length = length
        self._ends = ends
        self._padding = padding
        self._form = SampleForm("dict", (*documents.keys, SEGMENT_IDS, POSITIONS))

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Any:
        return self.samples(np.array([position], dtype=np.intp))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return list_samples(self.batch(positions))

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        n_at_once = max(1, _TOKENS_AT_ONCE // self._length)
        for first in range(start, stop, n_at_once):
            yield from self.samples(np.arange(first, min(first + n_at_once, stop), dtype=np.intp))

    def batch(self, positions: IndexArrayOfInts) -> Any:
        if self.n_samples == 0:
            return ()
        return self._form.make(self.columns(self._form.keys, positions))

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        wanted: list[str] = [str(self._form.find(key)) for key in keys]
        if positions is None:
            positions = np.arange(self.n_samples)
        pieces = self.plan.find_pieces(positions)
        names_to_read = [name for name in self._documents.keys if name in wanted]
        flat_columns = self._read_pieces(pieces, names_to_read)
        if SEGMENT_IDS in wanted:
            flat_columns[SEGMENT_IDS] = _number_segments(pieces)
        if POSITIONS in wanted:
            flat_columns[POSITIONS] = _number_tokens(pieces)
        piece_bounds = np.append(0, np.cumsum(pieces.sizes))
        n_pieces_before = np.searchsorted(pieces.rows, np.arange(len(positions) + 1))
        n_tokens_of_rows = np.diff(piece_bounds[n_pieces_before])
        return [
            self._split_into_rows(flat_columns[name], n_tokens_of_rows, self._padding.get(name, 0))
            for name in wanted
        ]

    def _read_pieces(self, pieces: Pieces, names: Sequence[str]) -> dict[str, ColumnArray]:
        """Read columns of pieces, end to end; each document once, all in one request."""
        if not names:
            return {}
        positions, numbers = np.unique(pieces.documents, return_inverse=True)
        columns = self._read_documents(positions, names)
        numbers_of_pieces = numbers.tolist()
        starts = pieces.offsets.tolist()
        stops = (pieces.offsets + pieces.sizes).tolist()
        lengths = self._measures.lengths[pieces.documents].tolist()
        flat_columns: dict[str, ColumnArray] = {}
        for name in names:
            documents = columns[name]
            end = self._ends[name]
            values = [end[:0]]  # so that there is an array where there is no piece
            for number, start, stop, length in zip(
                numbers_of_pieces, starts, stops, lengths, strict=True
            ):
                values.append(documents[number][start:stop])
                if stop > length:
                    values.append(end)
            flat_columns[name] = np.concatenate(values, dtype=end.dtype)
        return flat_columns

    def _read_documents(
        self, positions: IndexArrayOfInts, names: Sequence[str]
    ) -> dict[str, list[Values]]:
        """Read columns of documents, and check that their shapes are those that were measured."""
        if len(positions) == 0:
            return {name: [] for name in names}
        columns = self._documents.read(positions, names)
        lengths = self._measures.lengths[positions].tolist()
        for name in names:
            shape = self._measures.columns[name].shape
            for position, values, length in zip(
                positions.tolist(), columns[name], lengths, strict=True
            ):
                if values.shape != (length, *shape):
                    self._raise_error_of_change(position, name, values.shape, (length, *shape))
        return columns

    def _raise_error_of_change(
        self, position: int, name: str, now: tuple[int, ...], before: tuple[int, ...]
    ) -> NoReturn:
        if name == TOKENS:
            change = f"had {before[0]} tokens when it was packed, and has {now[0]} now"
        else:
            change = f"had {name!r} of shape {before} when it was packed, and of {now} now"
        raise ConfigError(
            f"{self._documents.describe(position)} {change}; pack() needs documents that are the "
            f"same whenever they are read. If this one was changed, pack again"
        )

    def _split_into_rows(
        self, flat: ColumnArray, n_tokens_of_rows: npt.NDArray[np.int64], padding: Any
    ) -> ColumnArray:
        """Return values of tokens, end to end, as one row for each sequence, padded."""
        shape = (len(n_tokens_of_rows), self._length, *flat.shape[1:])
        if len(flat) == len(n_tokens_of_rows) * self._length:
            return flat.reshape(shape)
        padded = np.full(shape, padding, flat.dtype)
        is_filled = np.arange(self._length) < n_tokens_of_rows[:, np.newaxis]
        padded[is_filled] = flat
        return padded

    # ------------------------------------------------------------------ what is known of them

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Return for each block of documents how many sequences start in it."""
        blocks_of_documents = self._documents.samples.blocks()
        if blocks_of_documents is None:
            return None
        n_started = self.plan.count_starts(np.cumsum(blocks_of_documents))
        if n_started is None:
            return None
        return np.diff(n_started, prepend=0)

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        documents = self.plan.find_pieces(positions).documents
        # Each document once, in the order in which they are needed.
        _, first = np.unique(documents, return_index=True)
        keys_below = self._find_keys_below(keys)
        self._documents.samples.prefetch(documents[np.sort(first)], keys_below or None)

    def _find_keys_below(self, keys: Sequence[int | str] | None) -> list[int | str]:
        """Return which columns of the documents some columns of sequences need; None means all."""
        names: list[str] = list(self._documents.keys)
        if keys is not None:
            names = [str(self._form.find(key)) for key in keys]
        keys_below = [self._documents.keys.get(name) for name in names]
        return [key for key in keys_below if key is not None]

    def locate(self, position: int) -> str | None:
        documents = self.plan.find_pieces(np.array([position])).documents
        return self._documents.samples.locate(int(documents[0]))

    def origins(self, position: int) -> Sequence[Origin]:
        """Return the documents of a sequence, each with the tokens that the sequence has of it."""
        pieces = self.plan.find_pieces(np.array([position]))
        starts = pieces.offsets.tolist()
        stops = (pieces.offsets + pieces.sizes).tolist()
        lengths = self._measures.lengths[pieces.documents].tolist()
        origins: list[Origin] = []
        for document, start, stop, length in zip(
            pieces.documents.tolist(), starts, stops, lengths, strict=True
        ):
            part = "end token"
            if start < length:
                part = f"tokens {start}:{min(stop, length)}"
            for origin in self._documents.samples.origins(document):
                origins.append(origin.of_part(part))
        return origins

    def declare_columns(self) -> Mapping[str, DeclaredColumn]:
        declared = {
            name: DeclaredColumn(column.dtype.name, (self._length, *column.shape))
            for name, column in self._measures.columns.items()
        }
        declared[SEGMENT_IDS] = DeclaredColumn("int32", (self._length,))
        declared[POSITIONS] = DeclaredColumn("int32", (self._length,))
        return declared


def _number_segments(pieces: Pieces) -> ColumnArray:
    """Return for each token the number of its document in the sequence, from 1; int32."""
    numbers = pieces.count_in_row().astype(np.int32) + np.int32(1)
    return np.repeat(numbers, pieces.sizes)


def _number_tokens(pieces: Pieces) -> ColumnArray:
    """Return for each token its place in its document, from 0; int32."""
    piece_starts = np.cumsum(pieces.sizes) - pieces.sizes
    shifts = np.repeat(piece_starts - pieces.offsets, pieces.sizes)
    return (np.arange(len(shifts)) - shifts).astype(np.int32)
