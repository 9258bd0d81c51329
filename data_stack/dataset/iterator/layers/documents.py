"""Documents of tokens, which are the samples of an iterator, or the values of a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.meta import column_key
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import exact_array
from data_stack.values.stacking import SampleForm

TOKENS = "tokens"
"""The name that the column of tokens has in packed sequences."""

Values = npt.NDArray[Any]
"""The values of a column in one document, one for each token, shape ``(n_tokens, ...)``."""

Bounds = npt.NDArray[np.int64]
"""Where documents start and end in all tokens, shape ``(n_documents + 1,)``."""

DocumentLengths = npt.NDArray[np.int32]
"""The number of tokens of each document, shape ``(n_documents,)``."""

#: Tokens of a document or a sequence: places in it are int32.
MAX_TOKENS = 2**31 - 1

#: Kinds of dtypes, as numpy calls them, whose members can be mixed in a column: one dtype holds the
#: values of all exactly.
_KINDS = [frozenset("b"), frozenset("iu"), frozenset("f"), frozenset("c")]


@dataclass(frozen=True)
class Documents:
    """Documents of tokens.

    Attributes:
        samples: the access that reads the documents.
        keys: the column of the tokens, under :data:`TOKENS`, and those of other values of each
            token, by name. None as the column of the tokens if the samples are the documents.
    """

    samples: SampleAccess
    keys: Mapping[str, ColumnKey | None]

    def read(
        self, positions: IndexArrayOfInts, names: Sequence[str] = (TOKENS,)
    ) -> dict[str, list[Values]]:
        """Read columns of documents, all in one request.

        Args:
            positions: the positions of the documents.
            names: the names of the columns.

        Returns:
            For each name the values of each document.

        Raises:
            ConfigError: tokens are not a one-dimensional array of integers, or other values are not
                an array of numbers.
        """
        keys = [self.keys[name] for name in names]
        columns: Sequence[Any]
        if keys == [None]:
            columns = [self.samples.samples(positions)]
        else:
            columns = self.samples.columns([key for key in keys if key is not None], positions)
        return {
            name: self._as_arrays(name, column, positions)
            for name, column in zip(names, columns, strict=True)
        }

    def _as_arrays(self, name: str, column: Any, positions: IndexArrayOfInts) -> list[Values]:
        arrays: list[Values] = []
        is_allowed = _has_tokens if name == TOKENS else _has_values
        for position, value in zip(positions.tolist(), column, strict=True):
            array = value if type(value) is np.ndarray else exact_array(value)
            if array is None or not is_allowed(array):
                if len(positions) > 1:
                    # A column may have floats only because of another document. That one is found
                    # when the documents are read one by one, and has the error.
                    self._read_one_by_one(positions, name)
                raise self._make_error(name, position, value, array)
            arrays.append(array)
        return arrays

    def _read_one_by_one(self, positions: IndexArrayOfInts, name: str) -> None:
        for position in positions:
            self.read(np.array([position]), [name])

    def _make_error(
        self, name: str, position: int, value: Any, array: Values | None
    ) -> ConfigError:
        if array is None:
            description = f"{value!r:.60}"
        else:
            description = f"{array.ndim}-dimensional, of {array.dtype}"
        if name == TOKENS:
            return ConfigError(
                f"{self.describe(position)} must be a one-dimensional array or list of integers; "
                f"it is {description}"
            )
        return ConfigError(
            f"column {name!r} of {self.describe(position)} must be an array or list of numbers, "
            f"one for each token; it is {description}"
        )

    def describe(self, position: int) -> str:
        """Return the name of a document in messages, with its place if that is known."""
        place = self.samples.locate(position)
        if place is None:
            return f"document {position}"
        return f"document {position} ({place})"


def _has_tokens(array: Values) -> bool:
    if array.ndim != 1:
        return False
    # numpy makes floats of an empty list
    return array.dtype.kind in "iu" or len(array) == 0


def _has_values(array: Values) -> bool:
    return array.ndim >= 1 and array.dtype.kind in "biufc"


def find_column(
    iterator: DatasetIteratorIF, samples: SampleAccess, column: ColumnKey | None
) -> ColumnKey | None:
    """Return the column of tokens; None where samples are documents.

    Args:
        iterator: the samples, with their meta if they have one.
        samples: the access to the samples.
        column: the column that the caller named; None to find it by sample 0.

    Raises:
        ConfigError: there is no such column, several may be meant, or a list of columns is passed.
    """
    if isinstance(column, (list, tuple)):
        raise ConfigError(
            f"pack() takes one column of tokens, got {list(column)}; pass the columns that have a "
            f"value for each token as with_columns={list(column[1:])}"
        )
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


@dataclass(frozen=True)
class ColumnOfTokens:
    """What all values of a column have in common.

    Attributes:
        dtype: holds the values of all documents exactly.
        shape: the shape of the value of one token; ``()`` for a number.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Measures:
    """What is known of all documents once they were read.

    Attributes:
        lengths: the number of tokens of each document.
        columns: for each column what its values have in common.
    """

    lengths: DocumentLengths
    columns: Mapping[str, ColumnOfTokens]


def measure_documents(documents: Documents) -> Measures:
    """Read all documents to know how long they are, and of which dtypes.

    Raises:
        ConfigError: tokens are not one-dimensional arrays of integers, or other values not arrays
            of numbers; a document is too long; a column has another number of values than tokens;
            values have no common dtype, or are not of one shape.
    """
    names = list(documents.keys)
    n_documents = documents.samples.n_samples
    lengths = np.zeros(n_documents, dtype=np.int64)
    dtypes: dict[str, set[np.dtype[Any]]] = {name: set() for name in names}
    shapes: dict[str, tuple[int, ...]] = {}

    def read(positions: npt.NDArray[np.intp]) -> dict[str, list[Values]]:
        return documents.read(positions, names)

    for start, block in in_blocks(n_documents, read):
        for position, columns in enumerate(zip(*block.values(), strict=True), start):
            # The tokens are the first column.
            n_tokens = len(columns[0])
            lengths[position] = n_tokens
            if n_tokens >= MAX_TOKENS:
                raise ConfigError(
                    f"{documents.describe(position)} has {n_tokens} tokens, more than int32 "
                    f"counts; divide it"
                )
            for name, values in zip(names, columns, strict=True):
                check_n_values(documents, position, name, len(values), n_tokens)
                if n_tokens == 0:
                    continue
                dtypes[name].add(values.dtype)
                shape = shapes.setdefault(name, values.shape[1:])
                if values.shape[1:] != shape:
                    raise ConfigError(
                        f"column {name!r} of {documents.describe(position)} has values of shape "
                        f"{values.shape[1:]}, expected {shape} as in the documents before"
                    )
    column_types = {
        name: ColumnOfTokens(_common_dtype(name, dtypes[name]), shapes.get(name, ()))
        for name in names
    }
    return Measures(lengths.astype(np.int32), column_types)


def check_n_values(
    documents: Documents, position: int, name: str, n_values: int, n_tokens: int
) -> None:
    """Check that a column of a document has a value for each token.

    Raises:
        ConfigError: it has more or fewer.
    """
    if n_values != n_tokens:
        raise ConfigError(
            f"column {name!r} of {documents.describe(position)} has {n_values} values for "
            f"{n_tokens} tokens; a column of with_columns= has one value for each token"
        )


def _common_dtype(name: str, dtypes: set[np.dtype[Any]]) -> np.dtype[Any]:
    if not dtypes:
        return np.dtype(np.int64)
    kinds = {dtype.kind for dtype in dtypes}
    dtype: np.dtype[Any] = np.result_type(*dtypes)
    # Integers of 64 bits, signed and not, would become floats.
    is_exact = dtype.kind in kinds and any(kinds <= group for group in _KINDS)
    if not is_exact:
        names = " and ".join(sorted(map(str, dtypes)))
        if name == TOKENS:
            raise ConfigError(
                f"documents of {names} have no common integer dtype; map them to one of these "
                f"before pack()"
            )
        raise ConfigError(
            f"column {name!r} has values of {names}, which no dtype holds exactly; map them to one "
            f"of these before pack()"
        )
    return dtype
