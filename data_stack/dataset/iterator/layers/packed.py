"""Sequences of one length, which are made of documents of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.encoder import check_choice
from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import own_access
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
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
from data_stack.dataset.iterator.layers.packed_access import POSITIONS, SEGMENT_IDS, PackedAccess
from data_stack.dataset.iterator.layers.sequence_plan import (
    ConcatenatedPlan,
    FittedPlan,
    SequencePlan,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, column_key
from data_stack.dataset.positions import check_integer
from data_stack.dataset.randomness import check_draw
from data_stack.exception import ConfigError

Strategy = Literal["concat", "best_fit", "first_fit"]
"""How documents are put together."""

TooLong = Literal["cut", "drop", "refuse"]
"""What becomes of documents that are longer than a sequence."""

Measure = Callable[[Documents], Measures]
"""Finds out the lengths of all documents."""


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
        with_columns: the names of columns that have a value for each token, such as a mask of the
            loss: arrays or lists of numbers of as many values as the document has tokens.
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
        self._keys = {TOKENS: token_column, **_find_extra_columns(dataset_iterator, with_columns)}

        # The arguments that decide the sequences. Those that a later version has added stand in a
        # recipe only if they were given, so that earlier recipes and fingerprints hold.
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
        length = self._made_with["length"]
        lengths = self._lengths_with_end()
        too_long_documents = np.flatnonzero(lengths > length)
        if len(too_long_documents) == 0:
            return
        position = int(too_long_documents[0])
        suffix = " with its end token" if len(self._ends[TOKENS]) > 0 else ""
        raise ConfigError(
            f"{documents.describe(position)} has {lengths[position]} tokens{suffix}, more than a "
            f"sequence of {length}, and so have {len(too_long_documents) - 1:,} others; "
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
        return PackedAccess(
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
            # The positions in the meta below would name other columns here. "target" and "tag"
            # name none.
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
    """Return numbers of Python or numpy as numbers of Python, as recipes hold them."""
    return {name: np.asarray(value).item() for name, value in values.items()}


def _find_extra_columns(iterator: DatasetIteratorIF, names: Any) -> dict[str, ColumnKey | None]:
    """Return the columns of ``with_columns`` by name.

    Raises:
        ConfigError: ``names`` is not a list of names of columns, or one is a name that sequences
            have already.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise ConfigError(
            f"with_columns must be a list of names of columns, got {names!r:.80}; for one column, "
            f"pass [{names!r:.80}]"
        )
    keys: dict[str, ColumnKey | None] = {}
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(
                f"with_columns must be a list of names of columns, got {name!r:.80} in it; to name "
                f"the columns of tuples, call as_dict() before pack()"
            )
        if name in (TOKENS, SEGMENT_IDS, POSITIONS) or name in keys:
            raise ConfigError(
                f"sequences would have two columns {name!r}; give that of the documents another "
                f"name by rename() before pack()"
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
    if end_token is None:
        if end_values:
            raise ConfigError(
                f"end_values= are the values beside end_token, which is missing; pass end_token=, "
                f"or leave out end_values={dict(end_values)!r:.200}"
            )
        return {
            name: np.empty((0, *column.shape), column.dtype) for name, column in columns.items()
        }

    extra_names = [name for name in columns if name != TOKENS]
    if set(end_values) != set(extra_names):
        raise ConfigError(
            f"end_values= must have a value beside end_token for each of the columns "
            f"{extra_names}, got {dict(end_values)!r:.200}"
        )
    values = {TOKENS: end_token, **end_values}
    ends: dict[str, Values] = {}
    for name, column in columns.items():
        argument = "end_token" if name == TOKENS else f"end_values[{name!r}]"
        end = np.empty((1, *column.shape), column.dtype)
        end[:] = _check_value(argument, values[name], column.dtype)
        ends[name] = end
    return ends


def _find_padding(
    columns: Mapping[str, ColumnOfTokens], padding: Mapping[str, Any]
) -> dict[str, Any]:
    """Return for each column the value where a sequence has no token.

    Raises:
        ConfigError: a value is for no column, or the dtype of the column does not hold it.
    """
    unknown_names = [name for name in padding if name not in columns]
    if unknown_names:
        raise ConfigError(
            f"padding= names the columns {unknown_names!r:.200}, but the columns with padding are "
            f"{list(columns)}"
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
