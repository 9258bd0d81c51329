"""Documents of tokens, concatenated and cut into sequences of one length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn, SampleAccess
from data_stack.dataset.iterator.contract import ColumnArray, ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.layers.documents import (
    MAX_TOKENS,
    Bounds,
    Documents,
    Tokens,
    concatenate_lengths,
    find_column,
    measure_documents,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.dataset.permutation import KeyedPermutation
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import check_draw
from data_stack.exception import ConfigError
from data_stack.values.stacking import SampleForm, list_samples

#: The form of a sequence.
_FORM = SampleForm("dict", ("tokens", "segment_ids", "positions"))

#: Tokens that are read at once while sequences are iterated over.
_TOKENS_AT_ONCE = 1 << 16


@layer("packed", columns=["column"])
class PackedDatasetIterator(LayerDatasetIterator):
    """Sample ``i`` is sequence ``i`` of ``length`` tokens of all documents, one after the other.

    All documents are concatenated, and cut every ``length`` tokens. A sample is a dict of three
    arrays of shape ``(length,)``. In a batch of n sequences they have the shape ``(n, length)``:

    * ``tokens``, of the integer dtype of the documents;
    * ``segment_ids``, int32: 1 for the tokens of the first document in the sequence, 2 for those of
      the next, and so on; 0 is padding;
    * ``positions``, int32: the place of the token in its document, from 0. A document that is cut
      goes on in the next sequence, and its positions with it.

    Names and values are those of Grain, T5X and MaxText. A document is one sample of
    ``dataset_iterator``, or the value of one column of it: a one-dimensional array, tensor or list
    of integers. Empty documents are skipped.

    All documents are read once when this is made, in blocks of a few MiB, to know their lengths. 8
    bytes a document are kept (and 8 more for a drawn order). A pickle carries these, and
    :func:`~data_stack.dataset.iterator.epochs.at_epoch` keeps them, so neither another process nor
    another epoch reads again. Later, a sequence reads the documents that it has tokens of, and a
    batch reads each document once. A document is always read whole: divide documents that are many
    times longer than ``length`` first, or use ``windows``.

    Args:
        dataset_iterator: the documents; it is not closed.
        length: tokens in a sequence, at least 1.
        column: the column of the tokens. None: the samples themselves if they are neither tuples
            nor dicts; otherwise their only column, or the sample proper, which is where the meta
            says, and column 0 of tuples without a meta.
        seed: any integer, which decides an order of the documents together with ``epoch``, the same
            on every machine. None: documents in the iterator's order.
        epoch: the number of the order, from 0; see ``at_epoch``. Without a seed it has no meaning.
        end_token: a token to put after each document, as its last token; None for none.
        drop_last: whether the last tokens are left out if they do not fill a sequence. Otherwise
            the last sequence is padded with 0.

    Raises:
        ConfigError: an argument is out of its range, ``column`` does not exist or must be named, a
            document is no one-dimensional array of integers (the message names its position),
            documents have no common integer dtype, or it does not hold ``end_token``. When reading:
            a document has another length than before.
    """

    #: Where documents start and end if they are concatenated in the order below.
    _bounds: Bounds

    #: The dtype of tokens.
    _dtype: np.dtype[Any]

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        length: int,
        column: ColumnKey | None = None,
        *,
        seed: int | None = None,
        epoch: int = 0,
        end_token: int | None = None,
        drop_last: bool = True,
    ) -> None:
        checked_length = check_integer("length", length, at_least=1, at_most=MAX_TOKENS)
        made_with: dict[str, Any] = {"length": checked_length}
        if end_token is not None:
            made_with["end_token"] = check_integer("end_token", end_token)
        if seed is not None:  # without a seed each epoch is the same
            self._draw = check_draw("packed", seed, epoch)
            made_with["seed"] = self._draw.seed
            made_with["epoch"] = self._draw.epoch
        super().__init__(dataset_iterator)
        below = self._below()
        made_with["column"] = find_column(dataset_iterator, below, column)
        made_with["drop_last"] = bool(drop_last)
        self._made_with = made_with
        documents = Documents(below, made_with["column"])
        self._bounds, self._dtype = measure_documents(documents, end_token)

    def make_access(self) -> SampleAccess:
        order = None
        if self._draw is not None:
            order = KeyedPermutation(len(self._bounds) - 1, self._draw.key)
        return _PackedAccess(
            Documents(self._below(), self._made_with["column"]),
            self._bounds,
            self._dtype,
            length=self._made_with["length"],
            end_token=self._made_with.get("end_token"),
            drop_last=self._made_with["drop_last"],
            order=order,
        )

    def _redraw(self, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        if underlying[0] is not self._dataset_iterator:
            return super()._redraw(underlying, arguments)
        # The documents are the same, and so are their lengths.
        redrawn = copy(self)
        redrawn._made_with = dict(arguments)
        redrawn._draw = check_draw("packed", arguments["seed"], arguments["epoch"])
        return redrawn

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        return replace(
            meta,
            # The positions of before would name other columns now; "target" and "tag" name none.
            iterator_meta=IteratorMeta("tokens", "target", "tag"),
            target_kind=None,
            class_names=None,
            feature_names=None,
            column_names=None,
            column_kinds=None,
        )


@dataclass(frozen=True)
class Pieces:
    """The pieces of documents that sequences consist of, end to end. No piece is empty.

    Attributes:
        rows: the number of the sequence of each piece, ascending, shape ``(n_pieces,)``.
        documents: the number of the document of each piece, shape ``(n_pieces,)``.
        offsets: where each piece starts in its document, shape ``(n_pieces,)``.
        sizes: how many tokens each piece has, shape ``(n_pieces,)``.
    """

    rows: npt.NDArray[np.intp]
    documents: npt.NDArray[np.intp]
    offsets: Bounds
    sizes: Bounds


def find_pieces(bounds: Bounds, starts: Bounds, stops: Bounds) -> Pieces:
    """Find the pieces of documents that sequences consist of.

    Args:
        bounds: where documents start and end in all tokens, shape ``(n_documents + 1,)``.
        starts: the first token of each sequence, shape ``(n_sequences,)``.
        stops: the token after the last one of each sequence, shape ``(n_sequences,)``.
    """
    # A sequence has tokens of all documents from that of its first token to that of its last one,
    # except for empty documents in between.
    first_documents = _find_documents(bounds, starts)
    n_documents_of_row = _find_documents(bounds, stops - 1) - first_documents + 1
    rows = np.repeat(np.arange(len(starts)), n_documents_of_row)
    documents = first_documents[rows] + _count_in_row(rows)
    is_filled = bounds[documents] < bounds[documents + 1]
    rows = rows[is_filled]
    documents = documents[is_filled]
    piece_starts = np.maximum(starts[rows], bounds[documents])
    piece_stops = np.minimum(stops[rows], bounds[documents + 1])
    return Pieces(
        rows,
        documents,
        offsets=piece_starts - bounds[documents],
        sizes=piece_stops - piece_starts,
    )


def _find_documents(bounds: Bounds, tokens: Bounds) -> npt.NDArray[np.intp]:
    """Return for each token the number of the document that has it."""
    return bounds.searchsorted(tokens, "right") - 1


def _count_in_row(rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the number of each piece in its row, from 0."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


class _PackedAccess(SampleAccess):
    """Access to sequences.

    Args:
        documents: the documents.
        bounds: where documents start and end if they are concatenated in the order below.
        dtype: the dtype of tokens.
        length: the number of tokens in a sequence.
        end_token: the token after each document; None for none.
        drop_last: whether the last tokens are left out if they do not fill a sequence.
        order: the positions below of the documents; None for the order below.
    """

    fixed_columns = True

    #: The documents.
    _documents: Documents

    #: Where documents start and end if they are concatenated in the order below.
    _bounds_below: Bounds

    #: The dtype of tokens.
    _dtype: np.dtype[Any]

    #: The number of tokens in a sequence.
    _length: int

    #: The positions below of the documents; None for the order below.
    _order: KeyedPermutation | None

    #: The tokens that are put after each document, shape ``(0,)`` or ``(1,)``.
    _end: Tokens

    #: The number of tokens of all documents, with their end tokens.
    _n_tokens: int

    def __init__(
        self,
        documents: Documents,
        bounds: Bounds,
        dtype: np.dtype[Any],
        *,
        length: int,
        end_token: int | None,
        drop_last: bool,
        order: KeyedPermutation | None,
    ) -> None:
        self._documents = documents
        self._bounds_below = bounds
        self._dtype = dtype
        self._length = length
        self._order = order
        self._end = np.array([] if end_token is None else [end_token], dtype)
        self._n_tokens = int(bounds[-1])
        n_full_sequences, n_tokens_left = divmod(self._n_tokens, length)
        has_padded_sequence = n_tokens_left > 0 and not drop_last
        self.n_samples = n_full_sequences + int(has_padded_sequence)
        self.releases_gil = documents.samples.releases_gil
        self.prefers_blocks = documents.samples.prefers_blocks

    @cached_property
    def _bounds(self) -> Bounds:
        """Where documents start and end in the order here."""
        if self._order is None:
            return self._bounds_below
        lengths = np.diff(self._bounds_below)
        return concatenate_lengths(lengths[self._order.take(np.arange(len(lengths)))])

    def _positions_of(self, documents: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the positions below of documents in the order here."""
        return documents if self._order is None else self._order.take(documents)

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
        return _FORM.make(self.columns(_FORM.keys, positions))

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        wanted = [_FORM.find(key) for key in keys]
        if positions is None:
            positions = np.arange(self.n_samples)
        starts = positions.astype(np.int64) * self._length
        stops = np.minimum(starts + self._length, self._n_tokens)
        pieces = find_pieces(self._bounds, starts, stops)
        flat_columns: dict[Any, ColumnArray] = {}
        for key in dict.fromkeys(wanted):
            if key == "tokens":
                flat_columns[key] = self._read_tokens(pieces)
            elif key == "segment_ids":
                flat_columns[key] = _number_segments(pieces)
            else:
                flat_columns[key] = _number_tokens(pieces)
        lengths = stops - starts
        return [self._split_into_rows(flat_columns[key], lengths) for key in wanted]

    def _read_tokens(self, pieces: Pieces) -> Tokens:
        """Read the tokens of the pieces, end to end; each document once, all in one request."""
        distinct_documents, numbers = np.unique(pieces.documents, return_inverse=True)
        bounds = self._bounds
        # These lengths count the end token, which is not in the documents that are read.
        lengths = (bounds[distinct_documents + 1] - bounds[distinct_documents]).tolist()
        documents = self._read_documents(self._positions_of(distinct_documents), lengths)

        starts = pieces.offsets.tolist()
        stops = (pieces.offsets + pieces.sizes).tolist()
        tokens = [self._end[:0]]  # so that there is an array where there is no piece
        for number, start, stop in zip(numbers.tolist(), starts, stops, strict=True):
            tokens.append(documents[number][start:stop])
            if stop == lengths[number]:
                tokens.append(self._end)
        return np.concatenate(tokens, dtype=self._dtype)

    def _read_documents(self, positions: IndexArrayOfInts, lengths: list[int]) -> list[Tokens]:
        """Read the documents at positions below, and check their lengths with the end token."""
        if len(positions) == 0:
            return []
        documents = self._documents.read(positions)
        for position, document, length in zip(positions.tolist(), documents, lengths, strict=True):
            self._check_length(position, len(document), length - len(self._end))
        return documents

    def _check_length(self, position: int, length: int, length_before: int) -> None:
        if length != length_before:
            raise ConfigError(
                f"{self._documents.describe(position)} had {length_before} tokens when it was "
                f"packed, and {length} now: pack what is the same at each reading, and pack again "
                f"what has changed"
            )

    def _split_into_rows(self, flat: ColumnArray, lengths: Bounds) -> ColumnArray:
        """Return values of tokens, end to end, as one row for each sequence, padded with 0."""
        shape = (len(lengths), self._length)
        if len(flat) == len(lengths) * self._length:
            return flat.reshape(shape)
        padded = np.zeros(shape, flat.dtype)
        is_filled = np.arange(self._length) < lengths[:, np.newaxis]
        padded[is_filled] = flat
        return padded

    # ------------------------------------------------------------------ what is known of them

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Return for each block of documents how many sequences start in it."""
        if self._order is not None:
            return None
        blocks_of_documents = self._documents.samples.blocks()
        if blocks_of_documents is None:
            return None
        block_ends = self._bounds[np.cumsum(blocks_of_documents)]
        # Before token t, t / length sequences have started, rounded up.
        n_started = (block_ends + self._length - 1) // self._length
        # A last sequence that is not full may be left out.
        n_kept: npt.NDArray[np.int64] = np.minimum(n_started, self.n_samples)
        return np.diff(n_kept, prepend=0)

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        first_documents = _find_documents(self._bounds, positions.astype(np.int64) * self._length)
        column = self._documents.column
        keys_below = None if column is None else [column]
        self._documents.samples.prefetch(self._positions_of(first_documents), keys_below)

    def locate(self, position: int) -> str | None:
        first_token = np.array([position * self._length], dtype=np.int64)
        first_document = _find_documents(self._bounds, first_token)
        return self._documents.samples.locate(int(self._positions_of(first_document)[0]))

    def declare_columns(self) -> Mapping[str, DeclaredColumn]:
        shape = (self._length,)
        return {
            "tokens": DeclaredColumn(self._dtype.name, shape),
            "segment_ids": DeclaredColumn("int32", shape),
            "positions": DeclaredColumn("int32", shape),
        }


def _number_segments(pieces: Pieces) -> ColumnArray:
    """Return for each token the number of its document in the sequence, from 1; int32."""
    numbers = _count_in_row(pieces.rows).astype(np.int32) + np.int32(1)
    return np.repeat(numbers, pieces.sizes)


def _number_tokens(pieces: Pieces) -> ColumnArray:
    """Return for each token its place in its document, from 0; int32."""
    piece_starts = np.cumsum(pieces.sizes) - pieces.sizes
    shifts = np.repeat(piece_starts - pieces.offsets, pieces.sizes)
    return (np.arange(len(shifts)) - shifts).astype(np.int32)
