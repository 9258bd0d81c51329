"""Documents of tokens, put together into sequences of one length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.encoder import check_choice
from data_stack.dataset.iterator.access import DeclaredColumn, SampleAccess, own_access
from data_stack.dataset.iterator.contract import ColumnArray, ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.layers.documents import (
    MAX_TOKENS,
    TOKENS,
    ColumnOfTokens,
    DocumentLengths,
    Documents,
    Measures,
    Values,
    find_column,
    measure_documents,
)
from data_stack.dataset.iterator.layers.sequence_plan import (
    ConcatenatedPlan,
    FittedPlan,
    Pieces,
    SequencePlan,
)
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, column_key
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import check_draw
from data_stack.exception import ConfigError
from data_stack.values.stacking import SampleForm, list_samples

Strategy = Literal["concat", "best_fit", "first_fit"]
"""How documents are put together."""

TooLong = Literal["cut", "drop", "refuse"]
"""What becomes of documents that are longer than a sequence."""

Measure = Callable[[Documents], Measures]
"""Finds out the lengths of all documents."""

#: The names of the columns that packing adds.
_SEGMENT_IDS = "segment_ids"
_POSITIONS = "positions"

#: Tokens that are read at once while sequences are iterated over.
_TOKENS_AT_ONCE = 1 << 16


@layer("packed", columns=["column"])
class PackedDatasetIterator(LayerDatasetIterator):
    """Sample ``i`` is sequence ``i`` of ``length`` tokens, made of documents.

    A sample is a dict of arrays of shape ``(length,)``. In a batch of n sequences they have the
    shape ``(n, length)``:

    * ``tokens``, of the integer dtype of the documents;
    * the columns of ``with_columns``, each value beside its token;
    * ``segment_ids``, int32: 1 for the tokens of the first document in the sequence, 2 for those of
      the next, and so on; 0 is padding;
    * ``positions``, int32: the place of the token in its document, from 0. A document that is cut
      goes on in another sequence, and its positions with it.

    Names and values are those of Grain, T5X and MaxText. For attention kernels that take
    ``cu_seqlens``, see :func:`~data_stack.loader.find_cu_seqlens`.

    The strategies:

    * ``"concat"`` concatenates all documents, and cuts them every ``length`` tokens. Nothing is
      padded, except perhaps the last sequence.
    * ``"best_fit"`` keeps documents whole. It puts each one into the fullest sequence that has room
      for it, the longest documents first. Of all strategies that keep documents whole, this one
      leaves the least padding. The documents of a sequence lie anywhere.
    * ``"first_fit"`` keeps documents whole, and puts each one into the first sequence that has room
      for it, in the order of the iterator. The documents of a sequence lie near each other, so it
      suits documents in a remote store.

    Empty documents are skipped. All documents are read once when this is made, in blocks of a few
    MiB, to know their lengths. 8 bytes a document are kept. A pickle carries the lengths, and
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
        with_columns: names of columns that have a value for each token, such as a mask of the loss:
            arrays or lists of numbers of as many values as the document has tokens.
        strategy: how documents are put together, see above.
        max_documents: the largest number of documents, or pieces of them, in a sequence; None for
            no limit. Only for ``"best_fit"`` and ``"first_fit"``.
        too_long: what becomes of documents of more than ``length`` tokens: ``"cut"`` cuts them,
            ``"drop"`` leaves them out (see :attr:`n_dropped`), ``"refuse"`` is an error.
        seed: any integer, which decides an order together with ``epoch``, the same on every
            machine. ``"concat"`` draws the order of the documents; ``"best_fit"`` which of equally
            long documents is where, and the order of the sequences; ``"first_fit"`` the order of
            the sequences. None: documents in the iterator's order.
        epoch: the number of the order, from 0; see ``at_epoch``. Without a seed it has no meaning.
        end_token: a token to put after each document, as its last token; None for none.
        end_values: for each column of ``with_columns`` the value beside ``end_token``.
        padding: for columns the value where a sequence has no token, ``{"labels": -100}``; it is 0
            for the others.
        drop_last: whether the last tokens are left out if they do not fill a sequence. Otherwise
            the last sequence is padded. It concerns ``"concat"`` only: the other strategies keep
            and pad all sequences.
        measure: reads the documents to know their lengths, or knows these from an earlier run.

    Raises:
        ConfigError: an argument is out of its range, or two conflict; a column does not exist or
            must be named; a document is no one-dimensional array of integers (the message names its
            position), or too long; a column has no value for each token; documents have no common
            dtype, or it does not hold ``end_token``. When reading: a document has another length
            than before.
    """

    #: What is known of the documents.
    _measures: Measures

    #: The columns of the documents, by their names in sequences.
    _keys: dict[str, ColumnKey | None]

    #: For each column what follows each document, shape ``(0, ...)`` or ``(1, ...)``.
    _ends: dict[str, Values]

    #: For each column the value where a sequence has no token.
    _padding: dict[str, Any]

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        length: int,
        column: ColumnKey | None = None,
        *,
        with_columns: Sequence[str] = (),
        strategy: Strategy = "concat",
        max_documents: int | None = None,
        too_long: TooLong = "cut",
        seed: int | None = None,
        epoch: int = 0,
        end_token: int | None = None,
        end_values: Mapping[str, Any] | None = None,
        padding: Mapping[str, Any] | None = None,
        drop_last: bool = True,
        measure: Measure = measure_documents,
    ) -> None:
        checked_length = check_integer("length", length, at_least=1, at_most=MAX_TOKENS)
        check_choice("strategy", strategy, get_args(Strategy))
        check_choice("too_long", too_long, get_args(TooLong))
        super().__init__(dataset_iterator)
        below = self._below()
        token_column = find_column(dataset_iterator, below, column)
        self._keys = {TOKENS: token_column, **_find_columns(dataset_iterator, with_columns)}

        # The arguments that decide the sequences. The later ones stand in a recipe only if they
        # were given, so that recipes and fingerprints of earlier versions hold.
        made_with: dict[str, Any] = {"length": checked_length}
        if end_token is not None:
            made_with["end_token"] = check_integer("end_token", end_token)
        if seed is not None:  # without a seed each epoch is the same
            self._draw = check_draw("packed", seed, epoch)
            made_with["seed"] = self._draw.seed
            made_with["epoch"] = self._draw.epoch
        made_with["column"] = token_column
        made_with.update(_arguments_of_strategy(strategy, max_documents, drop_last))
        if too_long != "cut":
            made_with["too_long"] = too_long
        if len(self._keys) > 1:
            made_with["with_columns"] = list(self._keys)[1:]
        self._made_with = made_with

        documents = self._open_documents()
        self._measures = measure(documents)
        self._ends = _find_ends(self._measures.columns, end_token, end_values or {})
        self._padding = _find_padding(self._measures.columns, padding or {})
        if end_values:
            made_with["end_values"] = _as_plain_numbers(end_values)
        if padding:
            made_with["padding"] = _as_plain_numbers(padding)
        if too_long == "refuse":
            self._check_no_document_is_too_long(documents)

    def _open_documents(self) -> Documents:
        return Documents(self._below(), self._keys)

    def _check_no_document_is_too_long(self, documents: Documents) -> None:
        lengths = self._lengths_with_end()
        is_too_long = lengths > self._made_with["length"]
        if not is_too_long.any():
            return
        position = int(is_too_long.argmax())
        n_others = int(is_too_long.sum()) - 1
        raise ConfigError(
            f"{documents.describe(position)} has {lengths[position]} tokens with its end token, "
            f"more than a sequence of {self._made_with['length']}, and so have {n_others} others; "
            f'too_long="cut" cuts them, too_long="drop" leaves them out'
        )

    def _lengths_with_end(self) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each document, its end token included."""
        lengths = self._measures.lengths.astype(np.int64)
        n_end_tokens = len(self._ends[TOKENS])
        lengths[lengths > 0] += n_end_tokens
        return lengths

    def _lengths_to_pack(self) -> DocumentLengths:
        """Return the number of tokens of each document; 0 for those that are left out."""
        lengths = self._lengths_with_end()
        if self._made_with.get("too_long") == "drop":
            lengths[lengths > self._made_with["length"]] = 0
        return lengths.astype(np.int32)

    def make_access(self) -> SampleAccess:
        return _PackedAccess(
            self._open_documents(),
            self._measures,
            self._make_plan(),
            length=self._made_with["length"],
            ends=self._ends,
            padding=self._padding,
        )

    def _make_plan(self) -> SequencePlan:
        lengths = self._lengths_to_pack()
        length = self._made_with["length"]
        key = None if self._draw is None else self._draw.key
        strategy = self._made_with.get("strategy", "concat")
        if strategy == "concat":
            drop_last = self._made_with["drop_last"]
            return ConcatenatedPlan(lengths, length, drop_last=drop_last, key=key)
        return FittedPlan(
            lengths,
            length,
            strategy=strategy,
            max_documents=self._made_with.get("max_documents"),
            key=key,
        )

    @property
    def n_dropped(self) -> int:
        """The number of documents that ``too_long="drop"`` leaves out."""
        if self._made_with.get("too_long") != "drop":
            return 0
        return int((self._lengths_with_end() > self._made_with["length"]).sum())

    @property
    def padding_fraction(self) -> float:
        """The fraction of all places in the sequences that have no token; 0 without sequences."""
        access: Any = own_access(self)
        plan: SequencePlan = access.plan
        n_places = int(plan.n_sequences * self._made_with["length"])
        if n_places == 0:
            return 0.0
        return 1 - plan.n_tokens / n_places

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
            iterator_meta=IteratorMeta(TOKENS, "target", "tag"),
            target_kind=None,
            class_names=None,
            feature_names=None,
            column_names=None,
            column_kinds=None,
        )


def _arguments_of_strategy(
    strategy: Strategy, max_documents: int | None, drop_last: bool
) -> dict[str, Any]:
    """Return the arguments of a strategy as a recipe holds them.

    Raises:
        ConfigError: ``max_documents`` is not for this strategy, or out of its range.
    """
    if strategy == "concat":
        if max_documents is not None:
            raise ConfigError(
                'max_documents= is for strategy="best_fit" and "first_fit"; "concat" cuts '
                "documents wherever a sequence is full"
            )
        return {"drop_last": bool(drop_last)}
    arguments: dict[str, Any] = {"strategy": strategy}
    if max_documents is not None:
        arguments["max_documents"] = check_integer("max_documents", max_documents, at_least=1)
    return arguments


def _as_plain_numbers(values: Mapping[str, Any]) -> dict[str, int | float]:
    """Return numbers as recipes hold them, whether the caller passed Python's or numpy's."""
    return {name: np.asarray(value).item() for name, value in values.items()}


def _find_columns(iterator: DatasetIteratorIF, names: Any) -> dict[str, ColumnKey | None]:
    """Return the columns of ``with_columns`` by name.

    Raises:
        ConfigError: ``names`` is not a list of names of columns, or one is a name that sequences
            have already.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise ConfigError(
            f"with_columns is a list of names of columns, got {names!r:.80}; one column is "
            f"[{names!r:.80}]"
        )
    keys: dict[str, ColumnKey | None] = {}
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(
                f"with_columns is a list of names of columns, got {name!r:.80} in it; as_dict() "
                f"gives the columns of tuples names"
            )
        if name in (TOKENS, _SEGMENT_IDS, _POSITIONS) or name in keys:
            raise ConfigError(
                f"sequences would have two columns {name!r}; rename() gives a column of the "
                f"documents another name"
            )
        keys[name] = column_key(iterator, name)
    return keys


def _find_ends(
    columns: Mapping[str, ColumnOfTokens], end_token: int | None, end_values: Mapping[str, Any]
) -> dict[str, Values]:
    """Return for each column what follows each document, shape ``(0, ...)`` or ``(1, ...)``.

    Raises:
        ConfigError: a value is missing, is for no column, or the dtype of the column does not hold
            it.
    """
    names = list(columns)
    beside = [name for name in names if name != TOKENS]
    expected = beside if end_token is not None else []
    if set(end_values) != set(expected):
        raise ConfigError(
            f"end_values= has the values beside end_token, for the columns {expected}, got "
            f"{dict(end_values)!r:.200}"
        )
    if end_token is None:
        return {name: np.empty((0, *columns[name].shape), columns[name].dtype) for name in names}
    values = {TOKENS: end_token, **end_values}
    ends: dict[str, Values] = {}
    for name in names:
        argument = "end_token" if name == TOKENS else f"end_values[{name!r}]"
        end = np.empty((1, *columns[name].shape), columns[name].dtype)
        end[:] = _check_value(argument, values[name], columns[name].dtype)
        ends[name] = end
    return ends


def _find_padding(
    columns: Mapping[str, ColumnOfTokens], padding: Mapping[str, Any]
) -> dict[str, Any]:
    """Return for each column the value where a sequence has no token.

    Raises:
        ConfigError: a value is for no column, or the dtype of the column does not hold it.
    """
    unknown = [name for name in padding if name not in columns]
    if unknown:
        raise ConfigError(
            f"padding= is for the columns {list(columns)}, got it for {unknown!r:.200}"
        )
    return {
        name: _check_value(f"padding[{name!r}]", padding.get(name, 0), column.dtype)
        for name, column in columns.items()
    }


def _check_value(argument: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number that a dtype holds exactly.

    Raises:
        ConfigError: it does not.
    """
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        name = f"{argument}, of {dtype} as the documents,"
        return check_integer(name, value, at_least=int(limits.min), at_most=int(limits.max))
    try:
        with np.errstate(over="ignore"):
            number = dtype.type(value)
        is_exact = bool(np.isclose(complex(number), complex(value), equal_nan=True))
    except (TypeError, ValueError):
        is_exact = False
    if not is_exact:
        raise ConfigError(f"{argument} must be a number that {dtype} holds, got {value!r:.80}")
    return number


class _PackedAccess(SampleAccess):
    """Access to sequences.

    Args:
        documents: the documents.
        measures: what is known of them.
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

    #: What is known of them.
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
        self._form = SampleForm("dict", (*documents.keys, _SEGMENT_IDS, _POSITIONS))

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
        if _SEGMENT_IDS in wanted:
            flat_columns[_SEGMENT_IDS] = _number_segments(pieces)
        if _POSITIONS in wanted:
            flat_columns[_POSITIONS] = _number_tokens(pieces)
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
        """Read columns of documents, and check that they have the lengths of before."""
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
                    self._raise_changed(position, name, values.shape, (length, *shape))
        return columns

    def _raise_changed(
        self, position: int, name: str, now: tuple[int, ...], before: tuple[int, ...]
    ) -> NoReturn:
        if name == TOKENS:
            change = f"had {before[0]} tokens when it was packed, and {now[0]} now"
        else:
            change = f"had {name!r} of shape {before} when it was packed, and of {now} now"
        raise ConfigError(
            f"{self._documents.describe(position)} {change}: pack what is the same at each "
            f"reading, and pack again what has changed"
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
        names = self._documents.keys if keys is None else [str(self._form.find(k)) for k in keys]
        keys_below = [self._documents.keys[name] for name in names if name in self._documents.keys]
        documents = self.plan.find_pieces(positions).documents
        # Each document once, in the order in which they are needed.
        _, first = np.unique(documents, return_index=True)
        named_keys = [key for key in keys_below if key is not None]
        self._documents.samples.prefetch(documents[np.sort(first)], named_keys or None)

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
        declared[_SEGMENT_IDS] = DeclaredColumn("int32", (self._length,))
        declared[_POSITIONS] = DeclaredColumn("int32", (self._length,))
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
