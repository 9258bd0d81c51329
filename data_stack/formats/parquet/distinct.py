"""Finds the distinct cells of a column, by Arrow."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.parquet.codecs.cells import index_cells, numbers

#: Bytes of cells that wait until Arrow numbers them together. The time of each numbering is in
#: proportion to the number of distinct cells so far.
_MAX_PENDING_BYTES = 64 << 20


class _NumberedPart(NamedTuple):
    """Cells of some samples by numbers.

    Attributes:
        codes: for each sample the number of its cell among ``values``, shape ``(n,)``.
        values: each cell once, in the order in which they appear; null counts as a value.
        places: where the samples are among all samples, shape ``(n,)``.
    """

    codes: npt.NDArray[Any]
    values: pa.Array
    places: npt.NDArray[np.intp]


class DistinctCells:
    """Collects the cells of a column part by part, in any order, and finds the distinct ones.

    Threads may share it.

    Args:
        n_samples: of all parts together, at least 1.

    Attributes:
        n_bytes: memory of the distinct cells so far; equal ones of several parts may count several
            times.
    """

    def __init__(self, n_samples: int) -> None:
        self.n_bytes: int = 0
        self._n_samples = n_samples
        self._lock = threading.Lock()
        #: Cells that have no numbers yet, and their places.
        self._pending: list[tuple[pa.Array, npt.NDArray[np.intp]]] = []
        self._n_pending_bytes = 0
        self._parts: list[_NumberedPart] = []

    def add(self, cells: pa.Array, places: npt.NDArray[np.intp]) -> None:
        """Add a part.

        Args:
            cells: of the part, at least one.
            places: where their samples are among all samples.

        Raises:
            pyarrow.ArrowNotImplementedError: Arrow does not compare cells of this type.
        """
        with self._lock:
            self._pending.append((cells, places))
            self._n_pending_bytes += cells.nbytes
            if self._n_pending_bytes > _MAX_PENDING_BYTES:
                self._number_pending()

    def find(self) -> tuple[pa.Array, npt.NDArray[np.intp]]:
        """Find the distinct cells of all parts.

        Returns:
            The distinct cells in the order in which they appear, and the place where each appears
            first, ascending.

        Raises:
            pyarrow.ArrowNotImplementedError: Arrow does not compare cells of this type.
        """
        with self._lock:
            if self._pending:
                self._number_pending()
            codes, values = self._merge_parts()
        # Of several assignments to one element the last one stays: assign the first samples last.
        first_of_code = np.empty(len(values), np.intp)
        first_of_code[codes[::-1]] = np.arange(self._n_samples - 1, -1, -1)
        first = np.sort(first_of_code)
        return values.take(index_cells(codes[first])), first

    def _number_pending(self) -> None:
        """Number the cells that wait, and release them."""
        cells = pa.chunked_array([cells for cells, _ in self._pending])
        encoded = cells.dictionary_encode(null_encoding="encode")
        part = _NumberedPart(
            codes=np.concatenate([numbers(chunk.indices) for chunk in encoded.chunks]),
            values=encoded.chunk(0).dictionary,
            places=np.concatenate([places for _, places in self._pending]),
        )
        self._pending.clear()
        self._n_pending_bytes = 0
        self._parts.append(part)
        self.n_bytes += part.values.nbytes

    def _merge_parts(self) -> tuple[npt.NDArray[np.int32], pa.Array]:
        """Return the number of each sample's cell, shape ``(n_samples,)``, and the distinct cells.

        A cell's number is its position among the distinct cells.
        """
        codes = np.empty(self._n_samples, np.int32)
        if len(self._parts) == 1:
            (part,) = self._parts
            codes[part.places] = part.codes
            return codes, part.values

        # Two parts number the same cell differently: number the distinct cells of all parts anew.
        values = pa.concat_arrays([part.values for part in self._parts])
        merged = values.dictionary_encode(null_encoding="encode")
        merged_codes = numbers(merged.indices)
        start = 0
        for part in self._parts:
            stop = start + len(part.values)
            codes[part.places] = merged_codes[start:stop][part.codes]
            start = stop
        return codes, merged.dictionary
