"""Documents of tokens, which are the samples of an iterator, or the values of a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.meta import column_key
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import exact_array
from data_stack.values.stacking import SampleForm

Tokens = npt.NDArray[Any]
"""The tokens of a document, shape ``(n,)``, of an integer dtype."""

Bounds = npt.NDArray[np.int64]
"""Where documents start and end in all tokens, shape ``(n_documents + 1,)``."""

#: Tokens of a document or a sequence: places in it are int32.
MAX_TOKENS = 2**31 - 1


@dataclass(frozen=True)
class Documents:
    """Documents of tokens.

    Attributes:
        samples: the access that reads the documents.
        column: the column of the tokens; None where the samples are the documents.
    """

    samples: SampleAccess
    column: ColumnKey | None

    def read(self, positions: IndexArrayOfInts) -> list[Tokens]:
        """Read documents, all in one request.

        Raises:
            ConfigError: one is not a one-dimensional array of integers.
        """
        values: Any
        if self.column is None:
            values = self.samples.samples(positions)
        else:
            (values,) = self.samples.columns([self.column], positions)
        documents: list[Tokens] = []
        for position, value in zip(positions.tolist(), values, strict=True):
            document = value if type(value) is np.ndarray else exact_array(value)
            if document is None or not _has_tokens(document):
                if len(positions) > 1:
                    # A column may have floats only because of another document. That one is found
                    # when the documents are read one by one, and has the error.
                    self._read_one_by_one(positions)
                raise self._make_error(position, value, document)
            documents.append(document)
        return documents

    def _read_one_by_one(self, positions: IndexArrayOfInts) -> None:
        for position in positions:
            self.read(np.array([position]))

    def _make_error(self, position: int, value: Any, document: Tokens | None) -> ConfigError:
        if document is None:
            got = f"{value!r:.60}"
        else:
            got = f"{document.ndim}-dimensional, of {document.dtype}"
        return ConfigError(
            f"{self.describe(position)} must be a one-dimensional array or list of integers; "
            f"it is {got}"
        )

    def describe(self, position: int) -> str:
        """Return the name of a document in messages, with its place if that is known."""
        place = self.samples.locate(position)
        if place is None:
            return f"document {position}"
        return f"document {position} ({place})"


def _has_tokens(document: Tokens) -> bool:
    if document.ndim != 1:
        return False
    # numpy makes floats of an empty list
    return document.dtype.kind in "iu" or len(document) == 0


def find_column(
    iterator: DatasetIteratorIF, samples: SampleAccess, column: ColumnKey | None
) -> ColumnKey | None:
    """Return the column of tokens; None where samples are documents.

    Args:
        iterator: the samples, with their meta if they have one.
        samples: the access to the samples.
        column: the column that the caller named; None to find it by sample 0.

    Raises:
        ConfigError: there is no such column, or several may be meant.
    """
    if column is not None or samples.n_samples == 0:
        key: ColumnKey | None = column_key(iterator, column)
        return key
    sample = samples.sample(0)
    form = SampleForm.of(sample)
    if form.kind == "bare" or type(sample) is list:
        return None
    if len(form.keys) == 1:
        only_key: ColumnKey = form.keys[0]
        return only_key
    meta = getattr(iterator, "dataset_meta", None)
    sample_proper: ColumnKey = form.normal(getattr(meta, "sample_pos", 0))
    if sample_proper not in form.keys:
        raise ConfigError(
            f'name the column of the tokens, pack(length, column="tokens"): {form.describe()}'
        )
    return sample_proper


def measure_documents(documents: Documents, end_token: int | None) -> tuple[Bounds, np.dtype[Any]]:
    """Read all documents to know how long they are.

    Args:
        documents: the documents.
        end_token: the token that follows each document that is not empty; None for none.

    Returns:
        Where each document starts and ends if all are concatenated with their end tokens; and the
        dtype of tokens.

    Raises:
        ConfigError: a document is not a one-dimensional array of integers or is too long, documents
            have no common integer dtype, or ``end_token`` does not fit into it.
    """
    n_documents = documents.samples.n_samples
    lengths = np.zeros(n_documents, dtype=np.int64)
    dtypes: set[np.dtype[Any]] = set()
    for start, block in in_blocks(n_documents, documents.read):
        lengths[start : start + len(block)] = [len(document) for document in block]
        dtypes.update(document.dtype for document in block if len(document))
    dtype = _common_dtype(dtypes)
    if int(lengths.max(initial=0)) >= MAX_TOKENS:
        raise ConfigError(
            f"{documents.describe(int(lengths.argmax()))} has {lengths.max()} tokens, more than "
            f"int32 counts; divide it"
        )
    if end_token is not None:
        limits = np.iinfo(dtype)
        name = f"end_token, of {dtype} as the documents,"
        check_integer(name, end_token, at_least=int(limits.min), at_most=int(limits.max))
        lengths[lengths > 0] += 1
    return concatenate_lengths(lengths), dtype


def _common_dtype(dtypes: set[np.dtype[Any]]) -> np.dtype[Any]:
    if not dtypes:
        return np.dtype(np.int64)
    dtype: np.dtype[Any] = np.result_type(*dtypes)
    if dtype.kind not in "iu":
        names = " and ".join(sorted(map(str, dtypes)))
        raise ConfigError(
            f"documents of {names} have no common integer dtype; map them to one of these before "
            f"pack()"
        )
    return dtype


def concatenate_lengths(lengths: npt.NDArray[np.int64]) -> Bounds:
    """Return where documents of these lengths start and end if they are concatenated."""
    return np.append(0, np.cumsum(lengths))
