"""Finds the distinct cells of a column by comparing cells of Arrow."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.parquet.codecs.cells import index_cells, numbers

#: Cells wait until they have this many bytes (64 MiB), then they are numbered together. Each
#: numbering takes time for the distinct cells that it finds, so a few large ones are faster than
#: one for each row group.
_MAX_PENDING_BYTES = 64 << 20


class _NumberedPart(NamedTuple):
    """Some of the samples, with a number for each distinct cell among them.

    Attributes:
        codes: for each sample the number of its cell, a position in ``values``, shape ``(n,)``.
        values: the distinct cells in the order in which they first occur. Null is one of them, if
            it occurs.
        places: the position of each sample among all samples, shape ``(n,)``.
    """

    codes: npt.NDArray[Any]
    values: pa.Array
    places: npt.NDArray[np.intp]


class DistinctCells:
    """Collects the cells of a column part by part, in any order, and finds the distinct ones.

    All nulls are equal. Floats are equal if their bits are: 0.0 and -0.0 are distinct.

    Threads may share it.

    Args:
        n_samples: the number of samples of all parts together, at least 1.

    Attributes:
        n_bytes: bytes of the distinct cells that were found so far. A cell that occurs in several
            parts may be counted for each of them.
    """

    n_bytes: int

    _n_samples: int

    #: Protects the attributes below.
    _lock: threading.Lock

    #: Cells that have no numbers yet, with the positions of their samples.
    _pending: list[tuple[pa.Array, npt.NDArray[np.intp]]]

    #: Bytes of these cells.
    _n_pending_bytes: int

    #: Cells that have numbers.
    _parts: list[_NumberedPart]

    def __init__(self, n_samples: int) -> None:
        self.n_bytes = 0
        self._n_samples = n_samples
        self._lock = threading.Lock()
        self._pending = []
        self._n_pending_bytes = 0
        self._parts = []

    def add(self, cells: pa.Array, places: npt.NDArray[np.intp]) -> None:
        """Add the cells of some samples.

        Args:
            cells: the cells, at least one.
            places: the position of each of these samples among all samples, shape ``(n,)``. Each
                sample is added once.

        Raises:
            pyarrow.ArrowNotImplementedError: Arrow does not compare cells of this type.
        """
        with self._lock:
            self._pending.append((cells, places))
            self._n_pending_bytes += cells.nbytes
            if self._n_pending_bytes > _MAX_PENDING_BYTES:
                self._number_pending()

    def find(self) -> tuple[pa.Array, npt.NDArray[np.intp]]:
        """Find the distinct cells of all samples. All must have been added.

        Returns:
            The distinct cells, in the order in which they first occur among the samples; and the
            position of the sample in which each of them first occurs, ascending, shape
            ``(n_distinct,)``.

        Raises:
            pyarrow.ArrowNotImplementedError: Arrow does not compare cells of this type.
        """
        with self._lock:
            if self._pending:
                self._number_pending()
            codes, values = self._merge_parts()
        # The samples are assigned from last to first. So the first sample of a code is assigned
        # last, and stays.
        first_of_code = np.empty(len(values), np.intp)
        first_of_code[codes[::-1]] = np.arange(self._n_samples - 1, -1, -1)
        first = np.sort(first_of_code)
        distinct_codes = codes[first]
        return values.take(index_cells(distinct_codes)), first

    def _number_pending(self) -> None:
        """Give numbers to the cells that wait, and release the cells."""
        arrays = []
        places = []
        for cells_of_part, places_of_part in self._pending:
            arrays.append(cells_of_part)
            places.append(places_of_part)
        encoded = pa.chunked_array(arrays).dictionary_encode(null_encoding="encode")
        # Arrow numbers the cells of all chunks together: each chunk has the same dictionary.
        part = _NumberedPart(
            codes=np.concatenate([numbers(chunk.indices) for chunk in encoded.chunks]),
            values=encoded.chunk(0).dictionary,
            places=np.concatenate(places),
        )
        self._pending.clear()
        self._n_pending_bytes = 0
        self._parts.append(part)
        self.n_bytes += part.values.nbytes

    def _merge_parts(self) -> tuple[npt.NDArray[np.int32], pa.Array]:
        """Number the distinct cells of all parts together.

        Returns:
            For each sample the number of its cell, shape ``(n_samples,)``; and the distinct cells,
            in which that number is a position.
        """
        codes = np.empty(self._n_samples, np.int32)
        if len(self._parts) == 1:
            part = self._parts[0]
            codes[part.places] = part.codes
            return codes, part.values

        # Two parts have different numbers for the same cell: number their distinct cells again.
        values = pa.concat_arrays([part.values for part in self._parts])
        merged = values.dictionary_encode(null_encoding="encode")
        merged_codes = numbers(merged.indices)
        start = 0
        for part in self._parts:
            stop = start + len(part.values)
            merged_codes_of_part = merged_codes[start:stop]
            codes[part.places] = merged_codes_of_part[part.codes]
            start = stop
        return codes, merged.dictionary
