"""Documents of tokens, concatenated and cut into sequences of one length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn, SampleAccess
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import Column, ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, column_key
from data_stack.dataset.permutation import KeyedPermutation
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import check_draw
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import exact_array
from data_stack.values.stacking import SampleForm, list_samples

_FORM = SampleForm("dict", ("tokens", "segment_ids", "positions"))
_MAX_TOKENS = 2**31 - 1  # of a document or sequence: places in it are int32
_TOKENS_AT_ONCE = 1 << 16

_Tokens = npt.NDArray[Any]
_Bounds = npt.NDArray[np.int64]


@layer("packed", columns=["column"])
class PackedDatasetIterator(LayerDatasetIterator):
    """Sample ``i`` is sequence ``i`` of ``length`` tokens: all documents are concatenated, and cut every ``length`` tokens.

    A sample is a dict of three arrays of shape ``(length,)``; a batch has them of shape ``(n, length)``:

    * ``tokens``, of the integer dtype of the documents;
    * ``segment_ids``, int32: 1 for the tokens of the first document in the sequence, 2 for those of the next, and so on; 0 is
      padding;
    * ``positions``, int32: the place of the token in its document, from 0. A document that is cut goes on in the next sequence,
      and its positions with it.

    Names and values are those of Grain, T5X and MaxText. A document is one sample of ``dataset_iterator``, or the value of one
    column of it: a one-dimensional array, tensor or list of integers. Empty documents are skipped.

    All documents are read once when this is made, in blocks of a few MiB, to know their lengths: 8 bytes a document are kept (and
    8 more for a drawn order). A pickle carries these, and :func:`~data_stack.dataset.iterator.epochs.at_epoch` keeps them, so
    neither another process nor another epoch reads again. After that, a sequence reads the documents that it touches and a batch
    reads each document once, whole: divide documents that are many times longer than ``length`` before, or take ``windows``.

    Args:
        dataset_iterator: the documents; it stays the caller's to close.
        length: tokens in a sequence, at least 1.
        column: of the tokens. None: the samples themselves if they are not tuples or dicts, otherwise their only column, or the
            sample proper (of the meta if there is one, otherwise column 0 of tuples).
        seed: any integer, for documents in an order that it and ``epoch`` decide, the same on every machine. None: documents in
            the iterator's order.
        epoch: number of the order, from 0; see ``at_epoch``. Without a seed it has no meaning.
        end_token: a token to put after each document, as the last one of it; None for none.
        drop_last: whether the last tokens are left out if they do not fill a sequence. Otherwise it is padded with 0.

    Raises:
        ConfigError: an argument is out of its range, ``column`` does not exist or must be named, a document is no
            one-dimensional array of integers (the message names its position), documents have no common integer dtype, or it
            does not hold ``end_token``. When reading: a document has another length than before.
    """

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
        made_with: dict[str, Any] = {
            "length": check_integer("length", length, at_least=1, at_most=_MAX_TOKENS)
        }
        if end_token is not None:
            made_with["end_token"] = check_integer("end_token", end_token)
        if seed is not None:  # without a seed each epoch is the same
            draw = check_draw("packed", seed, epoch)
            self._draw = draw
            made_with["seed"] = draw.seed
            made_with["epoch"] = draw.epoch
        super().__init__(dataset_iterator)
        below = self._below()
        key = _find_column(dataset_iterator, below, column)
        self._made_with = {**made_with, "column": key, "drop_last": bool(drop_last)}
        self._bounds, self._dtype = _measure(below, key, end_token)

    def make_access(self) -> SampleAccess:
        return _PackedAccess(self._below(), self._bounds, self._dtype, self._made_with)

    def _redraw(self, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        if underlying[0] is not self._dataset_iterator:
            return super()._redraw(underlying, arguments)
        drawn = copy(self)  # the lengths are the same
        drawn._made_with = dict(arguments)
        drawn._draw = check_draw("packed", arguments["seed"], arguments["epoch"])
        return drawn

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        # the positions of target and tag would name other columns now
        known: dict[str, Any] = dict.fromkeys(
            ["target_kind", "class_names", "feature_names", "column_names", "column_kinds"]
        )
        return replace(meta, iterator_meta=IteratorMeta("tokens", "target", "tag"), **known)


class _PackedAccess(SampleAccess):
    """Access to sequences.

    Args:
        below: the documents.
        bounds: where documents start and end if they are concatenated in the order below, shape ``(n_documents + 1,)``.
        dtype: of tokens.
        options: the arguments of the layer.
    """

    fixed_columns = True

    def __init__(
        self, below: SampleAccess, bounds: _Bounds, dtype: np.dtype[Any], options: Mapping[str, Any]
    ) -> None:
        self._below, self._bounds_below, self._dtype = below, bounds, dtype
        self._length, self._column, seed = options["length"], options["column"], options.get("seed")
        key = None if seed is None else check_draw("packed", seed, options["epoch"]).key
        self._order = None if key is None else KeyedPermutation(len(bounds) - 1, key)
        self._end = np.array([options["end_token"]] if "end_token" in options else [], dtype)
        self._n_tokens = int(bounds[-1])
        self.n_samples = (
            self._n_tokens // self._length
            if options["drop_last"]
            else -(-self._n_tokens // self._length)
        )
        self.releases_gil, self.prefers_blocks = below.releases_gil, below.prefers_blocks

    @cached_property
    def _bounds(self) -> _Bounds:
        """Where documents start and end in the order here."""
        if self._order is None:
            return self._bounds_below
        lengths = np.diff(self._bounds_below)
        return _bounds_of(lengths[self._order.take(np.arange(len(lengths)))])

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Any:
        return self.samples(np.array([position], dtype=np.intp))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return list_samples(self.batch(positions))

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        step = max(1, _TOKENS_AT_ONCE // self._length)
        for first in range(start, stop, step):
            yield from self.samples(np.arange(first, min(first + step, stop), dtype=np.intp))

    def batch(self, positions: IndexArrayOfInts) -> Any:
        return _FORM.make(self.columns(_FORM.keys, positions)) if self.n_samples else ()

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        wanted = [_FORM.find(key) for key in keys]
        starts = (np.arange(self.n_samples) if positions is None else positions).astype(
            np.int64
        ) * self._length
        stops = np.minimum(starts + self._length, self._n_tokens)
        # a piece for each document in each sequence
        firsts = self._document_of(starts)
        rows = np.repeat(np.arange(len(starts)), self._document_of(stops - 1) - firsts + 1)
        documents = firsts[rows] + _count_in_row(rows)
        is_filled = self._bounds[documents] < self._bounds[documents + 1]
        rows, documents = rows[is_filled], documents[is_filled]
        begins = np.maximum(starts[rows], self._bounds[documents])
        sizes = np.minimum(stops[rows], self._bounds[documents + 1]) - begins
        offsets = begins - self._bounds[documents]  # in the document
        segment_ids = np.repeat(_count_in_row(rows).astype(np.int32) + np.int32(1), sizes)
        places = np.arange(len(segment_ids)) - np.repeat(np.cumsum(sizes) - sizes - offsets, sizes)
        found: dict[Any, Column] = {
            "segment_ids": segment_ids,
            "positions": places.astype(np.int32),
        }
        if "tokens" in wanted:
            found["tokens"] = self._read(documents, offsets, sizes)
        return [self._as_rows(found[key], stops - starts) for key in wanted]

    def _document_of(self, tokens: _Bounds) -> npt.NDArray[np.intp]:
        """The document, in the order here, that has each token."""
        return self._bounds.searchsorted(tokens, "right") - 1

    def _read(self, documents: IndexArrayOfInts, offsets: _Bounds, sizes: _Bounds) -> _Tokens:
        """The tokens of the pieces, end to end; each document is read once, all in one request."""
        wanted, inverse = np.unique(documents, return_inverse=True)
        places = self._places_of(wanted)
        values = _read_documents(self._below, self._column, places) if len(places) else []
        lengths = (self._bounds[wanted + 1] - self._bounds[wanted]).tolist()
        for place, value, length in zip(places.tolist(), values, lengths, strict=True):
            if len(value) + len(self._end) != length:
                was = f"{_name(self._below, place)} had {length - len(self._end)} tokens when it was packed, and {len(value)} now"
                raise ConfigError(
                    f"{was}: pack what is the same at each reading, and pack again what has changed"
                )
        pieces = [self._end[:0]]  # of a request for nothing, too
        for number, start, stop in zip(
            inverse.tolist(), offsets.tolist(), (offsets + sizes).tolist(), strict=True
        ):
            pieces.append(values[number][start:stop])
            if stop == lengths[number]:
                pieces.append(self._end)
        return np.concatenate(pieces, dtype=self._dtype)

    def _as_rows(self, flat: Column, lengths: _Bounds) -> Column:
        if len(flat) == len(lengths) * self._length:
            return flat.reshape(len(lengths), self._length)
        padded = np.zeros((len(lengths), self._length), flat.dtype)
        padded[np.arange(self._length) < lengths[:, np.newaxis]] = flat
        return padded

    # ------------------------------------------------------------------ what is known of them

    def _places_of(self, documents: IndexArrayOfInts) -> IndexArrayOfInts:
        """The positions of documents below."""
        return documents if self._order is None else self._order.take(documents)

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Of each block of documents the sequences that start in it."""
        below = self._below.blocks() if self._order is None else None
        if below is None:
            return None
        n_before: npt.NDArray[np.int64] = np.minimum(
            -(-self._bounds[np.cumsum(below)] // self._length), self.n_samples
        )
        return np.diff(n_before, prepend=0)

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        firsts = self._document_of(positions.astype(np.int64) * self._length)
        self._below.prefetch(
            self._places_of(firsts), None if self._column is None else [self._column]
        )

    def locate(self, position: int) -> str | None:
        first = self._document_of(np.array([position * self._length], dtype=np.int64))
        return self._below.locate(int(self._places_of(first)[0]))

    def declare_columns(self) -> Mapping[str, DeclaredColumn]:
        dtypes = {"tokens": self._dtype.name, "segment_ids": "int32", "positions": "int32"}
        return {key: DeclaredColumn(dtype, (self._length,)) for key, dtype in dtypes.items()}


# ---------------------------------------------------------------------- documents


def _find_column(
    iterator: DatasetIteratorIF, below: SampleAccess, column: ColumnKey | None
) -> ColumnKey | None:
    """The column of tokens; None where samples are documents."""
    if column is not None or not below.n_samples:
        return column_key(iterator, column)  # type: ignore[no-any-return]  # of one key one
    sample = below.sample(0)
    form = SampleForm.of(sample)
    if form.kind == "bare" or type(sample) is list:
        return None
    proper = getattr(getattr(iterator, "dataset_meta", None), "sample_pos", 0)
    key: ColumnKey = form.keys[0] if len(form.keys) == 1 else form.normal(proper)
    if key in form.keys:
        return key
    raise ConfigError(
        f'name the column of the tokens, pack(length, column="tokens"): {form.describe()}'
    )


def _measure(
    below: SampleAccess, column: ColumnKey | None, end_token: int | None
) -> tuple[_Bounds, np.dtype[Any]]:
    """Where each document starts and ends if all are concatenated, shape ``(n + 1,)``, and the dtype of tokens; reads all."""
    lengths = np.zeros(below.n_samples, dtype=np.int64)
    dtypes: set[np.dtype[Any]] = set()
    for start, block in in_blocks(
        below.n_samples, lambda positions: _read_documents(below, column, positions)
    ):
        lengths[start : start + len(block)] = [len(document) for document in block]
        dtypes.update(document.dtype for document in block if len(document))
    dtype = np.result_type(*dtypes) if dtypes else np.dtype(np.int64)
    if dtype.kind not in "iu":
        names = " and ".join(sorted(map(str, dtypes)))
        raise ConfigError(
            f"documents of {names} have no common integer dtype; map them to one of these before pack()"
        )
    if int(lengths.max(initial=0)) >= _MAX_TOKENS:
        raise ConfigError(
            f"{_name(below, int(lengths.argmax()))} has {lengths.max()} tokens, more than int32 counts; divide it"
        )
    if end_token is not None:
        limits = np.iinfo(dtype)
        check_integer(
            f"end_token, of {dtype} as the documents,",
            end_token,
            at_least=limits.min,
            at_most=limits.max,
        )
        lengths[lengths > 0] += 1
    return _bounds_of(lengths), dtype


def _read_documents(
    below: SampleAccess, column: ColumnKey | None, positions: IndexArrayOfInts
) -> list[_Tokens]:
    values: Any = (
        below.samples(positions) if column is None else below.columns([column], positions)[0]
    )
    documents: list[_Tokens] = []
    for place, value in zip(positions.tolist(), values, strict=True):
        document = value if type(value) is np.ndarray else exact_array(value)
        if (
            document is None
            or document.ndim != 1
            or (document.dtype.kind not in "iu" and len(document))
        ):
            if len(positions) > 1:  # the values may be floats only because another one is
                for one in positions:
                    _read_documents(below, column, np.array([one]))
            array = (
                f"{document.ndim}-dimensional, of {document.dtype}"
                if document is not None
                else f"{value!r:.60}"
            )
            raise ConfigError(
                f"{_name(below, place)} must be a one-dimensional array or list of integers; it is {array}"
            )
        documents.append(document)
    return documents


def _name(below: SampleAccess, place: int) -> str:
    where = below.locate(place)
    return f"document {place}" if where is None else f"document {place} ({where})"


def _bounds_of(lengths: npt.NDArray[np.int64]) -> _Bounds:
    return np.append(0, np.cumsum(lengths))


def _count_in_row(rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The number of each piece in its row, from 0."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)
