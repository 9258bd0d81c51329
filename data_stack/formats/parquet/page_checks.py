"""Refuses column chunks that would take much more memory than their footer states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.page_headers import read_claimed_bytes
from data_stack.util.request_limit import check_request, limit_bytes

#: The pages of a column chunk may claim this many bytes in any case: some writers state the size of
#: a column chunk wrong in the footer.
_HARMLESS_BYTES: Final = 64 << 20
#: The pages of a larger column chunk may claim this many times the bytes that the footer states.
_MAX_FACTOR: Final = 4


class PageChecks:
    """Compares the sizes in page headers with those in the footer.

    pyarrow allocates the size that a page header claims, whatever the footer states. Each column
    chunk is checked once, or by each of several threads that come first. Threads may share the
    checks.

    Args:
        footers: the footers of all files of the dataset.
    """

    def __init__(self, footers: Footers) -> None:
        self._footers = footers
        #: The column chunks that were checked: number of the row group in the dataset, and number
        #: of the column in the file.
        self._checked: set[tuple[int, int]] = set()

    def check(self, source: Any, group: int, numbers: Sequence[int]) -> None:
        """Check column chunks of a row group.

        Args:
            source: the file of the row group, open for pyarrow.
            group: number of the row group in the dataset.
            numbers: numbers of the columns in the file.

        Raises:
            DatasetFileCorruptError: the headers claim far more than the footer.
            RequestLimitError: the decoded column exceeds the limit of a request.
            ValueError: a header is damaged.
        """
        for number in numbers:
            if (group, number) not in self._checked:
                self._check_chunk(source, group, number)
                self._checked.add((group, number))

    def _check_chunk(self, source: Any, group: int, number: int) -> None:
        """Check a column chunk, see :meth:`check`."""
        file = int(self._footers.file_of[group])
        facts = self._footers.facts(file)
        chunk = facts.chunks[self._footers.index_of[group], number]
        start = int(chunk["start"])
        n_raw_bytes = int(chunk["n_raw_bytes"])
        claimed = read_claimed_bytes(source, start, start + int(chunk["n_bytes"]))
        if claimed.all_pages > max(_HARMLESS_BYTES, _MAX_FACTOR * n_raw_bytes):
            raise DatasetFileCorruptError(
                f"{self._footers.name_of(group)}, column {number} claims "
                f"{claimed.all_pages:,} bytes, the footer {n_raw_bytes:,}"
            )
        # A text is stored once in the dictionary, and every row may repeat it. So the decoded texts
        # may take much more memory than the pages. They are counted only if they may exceed the
        # limit of a request.
        is_of_texts = facts.value_bytes[number] == 0
        max_decoded_bytes = claimed.largest_dictionary * int(chunk["n_values"])
        if is_of_texts and max_decoded_bytes > limit_bytes():
            self._check_decoded_bytes(source, group, number)

    def _check_decoded_bytes(self, source: Any, group: int, number: int) -> None:
        """Check the decoded size of a column of texts, without decoding the texts.

        Raises:
            RequestLimitError: it exceeds the limit of a request.
        """
        metadata = self._footers.of(int(self._footers.file_of[group]))
        path = metadata.schema.column(number).path
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=[path], pre_buffer=False)
        table = file.reader.read_row_group(
            int(self._footers.index_of[group]), column_indices=[number], use_threads=False
        )
        n_bytes = 0
        for chunk in table.column(0).chunks:
            texts = _innermost_values(chunk)
            # Decimals are stored as texts are, but pyarrow reads them as numbers.
            if isinstance(texts, pa.DictionaryArray):
                n_bytes += _decoded_bytes(texts)
        check_request(n_bytes, f"{self._footers.name_of(group)}, column {path!r}")


def _innermost_values(array: pa.Array) -> pa.Array:
    """Return the values in lists and structs, which have one field: only one column was read."""
    while True:
        if isinstance(array, pa.StructArray):
            array = array.field(0)
        elif isinstance(array, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
            array = array.flatten()
        else:
            return array


def _decoded_bytes(texts: pa.DictionaryArray) -> int:
    """Return the number of bytes of texts without their dictionary."""
    lengths_in_dictionary = pc.binary_length(texts.dictionary).cast(pa.int64())
    lengths = lengths_in_dictionary.take(texts.indices.drop_null())
    if not len(lengths):
        return 0
    return int(pc.sum(lengths).as_py())
