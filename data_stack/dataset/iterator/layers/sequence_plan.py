"""Plans which pieces of documents each packed sequence consists of, from lengths alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.hashing import hash_of
from data_stack.dataset.iterator.layers.bin_packing import fit_best, fit_first
from data_stack.dataset.iterator.layers.documents import Bounds, DocumentLengths
from data_stack.dataset.permutation import KeyedPermutation
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError

TokenNumbers = npt.NDArray[np.int64]
"""Numbers of tokens among those of all documents, concatenated, from 0."""


@dataclass(frozen=True)
class Pieces:
    """The pieces of documents that sequences consist of, end to end. No piece is empty.

    Attributes:
        rows: the number of the sequence of each piece, ascending, shape ``(n_pieces,)``. It counts
            the sequences that were asked for.
        documents: the position of the document of each piece, shape ``(n_pieces,)``.
        offsets: where each piece starts in its document, shape ``(n_pieces,)``.
        sizes: how many tokens each piece has, shape ``(n_pieces,)``.
    """

    rows: npt.NDArray[np.intp]
    documents: IndexArrayOfInts
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    def count_in_row(self) -> npt.NDArray[np.intp]:
        """Return the number of each piece in its sequence, from 0."""
        return np.arange(len(self.rows)) - np.searchsorted(self.rows, self.rows)


class SequencePlan(ABC):
    """Which pieces of documents each sequence consists of.

    Attributes:
        n_sequences: the number of sequences.
        n_tokens: the number of tokens in all of them, without padding.
    """

    n_sequences: int
    n_tokens: int

    @abstractmethod
    def find_pieces(self, sequences: IndexArrayOfInts) -> Pieces:
        """Find the pieces of sequences.

        Args:
            sequences: numbers of sequences, shape ``(n,)``, in any order.
        """

    def count_starts(self, n_documents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Count the sequences that start before the end of the first documents.

        Args:
            n_documents: numbers of documents, ascending, shape ``(n,)``.

        Returns:
            How many sequences start in that many documents, shape ``(n,)``; None where sequences
            are not in the order of documents.
        """
        return None


class ConcatenatedPlan(SequencePlan):
    """Documents one after the other, cut every ``length`` tokens.

    Args:
        lengths: the number of tokens of each document.
        length: the number of tokens of a sequence.
        drop_last: whether the last tokens are left out if they do not fill a sequence.
        key: decides the order of the documents; None for the order of their positions.
    """

    #: The number of tokens of a sequence.
    _length: int

    #: The positions of the documents, one after the other; None for their own order.
    _order: KeyedPermutation | None

    #: Where documents start and end if they are concatenated, shape ``(n_documents + 1,)``.
    _bounds: Bounds

    def __init__(
        self, lengths: DocumentLengths, length: int, *, drop_last: bool, key: int | None
    ) -> None:
        self._length = length
        self._order = None
        if key is not None:
            self._order = KeyedPermutation(len(lengths), key)
            lengths = lengths[self._order.take(np.arange(len(lengths)))]
        self._bounds = np.append(0, np.cumsum(lengths, dtype=np.int64))
        n_tokens = int(self._bounds[-1])
        self.n_sequences, n_tokens_left = divmod(n_tokens, length)
        if drop_last:
            n_tokens -= n_tokens_left
        elif n_tokens_left:
            self.n_sequences += 1
        self.n_tokens = n_tokens

    def find_pieces(self, sequences: IndexArrayOfInts) -> Pieces:
        starts = sequences.astype(np.int64) * self._length
        stops = np.minimum(starts + self._length, self.n_tokens)
        pieces = find_pieces(self._bounds, starts, stops)
        if self._order is None:
            return pieces
        documents = self._order.take(pieces.documents)
        return Pieces(pieces.rows, documents, pieces.offsets, pieces.sizes)

    def count_starts(self, n_documents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        if self._order is not None:
            return None
        # Before token t, t / length sequences have started, rounded up.
        n_started = (self._bounds[n_documents] + self._length - 1) // self._length
        # A last sequence that is not full may be left out.
        n_kept: npt.NDArray[np.int64] = np.minimum(n_started, self.n_sequences)
        return n_kept


def find_pieces(bounds: Bounds, starts: TokenNumbers, stops: TokenNumbers) -> Pieces:
    """Find the pieces of documents that runs of concatenated tokens consist of.

    Args:
        bounds: where documents start and end in all tokens, shape ``(n_documents + 1,)``.
        starts: the first token of each run, shape ``(n_runs,)``.
        stops: the token after the last one of each run, shape ``(n_runs,)``.
    """
    # A run has tokens of all documents from that of its first token to that of its last one, except
    # for empty documents in between.
    first_documents = _find_documents(bounds, starts)
    n_documents_of_row = _find_documents(bounds, stops - 1) - first_documents + 1
    rows, numbers_in_row = _number_items(n_documents_of_row)
    documents = first_documents[rows] + numbers_in_row
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


def _find_documents(bounds: Bounds, tokens: TokenNumbers) -> npt.NDArray[np.intp]:
    """Return for each token the number of the document that has it."""
    return bounds.searchsorted(tokens, "right") - 1


def _number_items(
    n_of_rows: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Number the items of rows.

    Args:
        n_of_rows: the number of items of each row, shape ``(n_rows,)``.

    Returns:
        For each item of all rows the number of its row, and its own number in the row, both from 0.
    """
    rows = np.repeat(np.arange(len(n_of_rows)), n_of_rows)
    first_of_rows = np.cumsum(n_of_rows) - n_of_rows
    return rows, np.arange(len(rows)) - first_of_rows[rows]


class FittedPlan(SequencePlan):
    """Whole documents put into sequences so that little padding is needed.

    Only documents that are longer than a sequence are cut, every ``length`` tokens. The last piece
    is put into a sequence like a whole document.

    4 bytes are kept for each piece, 8 for each sequence, and 8 more for each piece if documents are
    cut.

    The number of sequences does not depend on ``key``.

    Args:
        lengths: the number of tokens of each document; empty ones are skipped.
        length: the number of tokens of a sequence.
        strategy: ``"best_fit"`` or ``"first_fit"``, see
            :mod:`~data_stack.dataset.iterator.layers.bin_packing`.
        max_documents: the largest number of pieces in a sequence; None for no limit.
        key: decides the order of the sequences and, for ``"best_fit"``, which of equally long
            documents is where. None: sequences are in the order of their first documents.

    Raises:
        ConfigError: there are 2**31 pieces or more.
    """

    #: The position of the document of each piece, ascending; None if piece i is document i.
    _documents: npt.NDArray[np.int32] | None

    #: The number of tokens of each piece.
    _sizes: DocumentLengths

    #: The number of tokens of a sequence.
    _length: int

    #: All pieces, one sequence after the other.
    _pieces: npt.NDArray[np.int32]

    #: Where the pieces of each sequence start and end, shape ``(n_sequences + 1,)``.
    _bounds: Bounds

    #: The order of the sequences.
    _order: KeyedPermutation | npt.NDArray[np.intp]

    def __init__(
        self,
        lengths: DocumentLengths,
        length: int,
        *,
        strategy: str,
        max_documents: int | None,
        key: int | None,
    ) -> None:
        self._length = length
        documents, sizes = _cut_documents(lengths, length)
        self._documents = documents
        self._sizes = sizes
        if max(len(lengths), len(self._sizes)) >= 2**31:
            raise ConfigError(
                f'strategy="{strategy}" packs less than {2**31:,} documents and pieces of them; '
                f'"concat" has no limit'
            )
        self.n_tokens = int(self._sizes.sum(dtype=np.int64))
        drawn_pieces = _draw_order(len(self._sizes), key)
        if strategy == "best_fit":
            numbers = np.empty(len(drawn_pieces), dtype=np.int32)
            numbers[drawn_pieces] = fit_best(self._sizes[drawn_pieces], length, max_documents)
        else:
            numbers = fit_first(self._sizes, length, max_documents)
        self.n_sequences = int(numbers.max(initial=-1)) + 1
        # In a sequence, the pieces are in their own order, or in the drawn one.
        by_sequence = drawn_pieces[np.argsort(numbers[drawn_pieces], kind="stable")]
        self._pieces = by_sequence.astype(np.int32)
        n_pieces_of_sequences = np.bincount(numbers, minlength=self.n_sequences)
        self._bounds = np.append(0, np.cumsum(n_pieces_of_sequences))
        self._order = self._order_sequences(key)

    def _order_sequences(self, key: int | None) -> KeyedPermutation | npt.NDArray[np.intp]:
        if key is not None:
            return KeyedPermutation(self.n_sequences, key)
        first_pieces = self._pieces[self._bounds[:-1]]
        return np.argsort(first_pieces, kind="stable")

    def find_pieces(self, sequences: IndexArrayOfInts) -> Pieces:
        numbers = self._order.take(sequences)
        starts = self._bounds[numbers]
        rows, numbers_in_row = _number_items(self._bounds[numbers + 1] - starts)
        pieces = self._pieces[starts[rows] + numbers_in_row].astype(np.intp)
        sizes = self._sizes[pieces].astype(np.int64)
        if self._documents is None:
            return Pieces(rows, pieces, np.zeros(len(pieces), dtype=np.int64), sizes)
        documents = self._documents[pieces]
        n_pieces_before = pieces - self._documents.searchsorted(documents, "left")
        return Pieces(rows, documents.astype(np.intp), n_pieces_before * self._length, sizes)


def _cut_documents(
    lengths: DocumentLengths, length: int
) -> tuple[npt.NDArray[np.int32] | None, DocumentLengths]:
    """Cut documents that are longer than a sequence.

    Returns:
        The document of each piece, None where each document is one piece; and the number of tokens
        of each piece.
    """
    n_pieces = -(-lengths.astype(np.int64) // length)
    if (n_pieces == 1).all():
        return None, lengths
    documents, numbers = _number_items(n_pieces)
    sizes = np.minimum(lengths[documents] - numbers * length, length)
    return documents.astype(np.int32), sizes.astype(np.int32)


def _draw_order(n_pieces: int, key: int | None) -> IndexArrayOfInts:
    """Return the numbers of all pieces in a drawn order; in their own order without a key."""
    pieces = np.arange(n_pieces)
    if key is None:
        return pieces
    return KeyedPermutation(n_pieces, hash_of(key, 1)).take(pieces)
