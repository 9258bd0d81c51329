"""Refuses column chunks that claim much more memory than their footer states."""

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

#: Pages may claim this many bytes without a check; some writers count wrong.
_HARMLESS_BYTES: Final = 64 << 20
#: Pages may claim this many times the bytes that the footer states.
_MAX_FACTOR: Final = 4


class PageChecks:
    """Compares page headers with the footer: pyarrow allocates what a header claims.

    Each column chunk is checked once. Threads may share it.

    Args:
        footers: of all files.
    """

    def __init__(self, footers: Footers) -> None:
        self._footers = footers
        #: Row groups and numbers of columns that were checked.
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
        facts = self._footers.facts(int(self._footers.file_of[group]))
        chunk = facts.chunks[self._footers.index_of[group], number]
        start = int(chunk["start"])
        n_raw_bytes = int(chunk["n_raw_bytes"])
        claimed = read_claimed_bytes(source, start, start + int(chunk["n_bytes"]))
        if claimed.all_pages > max(_HARMLESS_BYTES, _MAX_FACTOR * n_raw_bytes):
            raise DatasetFileCorruptError(
                f"{self._footers.name_of(group)}, column {number} claims "
                f"{claimed.all_pages:,} bytes, the footer {n_raw_bytes:,}"
            )
        # A long text of the dictionary may repeat in every row.
        has_texts = facts.value_bytes[number] == 0
        most_bytes = claimed.largest_dictionary * int(chunk["n_values"])
        if has_texts and most_bytes > limit_bytes():
            self._check_decoded_bytes(source, group, number)

    def _check_decoded_bytes(self, source: Any, group: int, number: int) -> None:
        """Count the bytes of all texts of a column, without making them."""
        metadata = self._footers.of(int(self._footers.file_of[group]))
        path = metadata.schema.column(number).path
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=[path], pre_buffer=False)
        table = file.reader.read_row_group(
            int(self._footers.index_of[group]), column_indices=[number], use_threads=False
        )
        n_bytes = 0
        for chunk in table.column(0).chunks:
            if isinstance(chunk, pa.DictionaryArray):
                lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
                n_bytes += pc.sum(lengths.take(chunk.indices.drop_null())).as_py() or 0
        check_request(n_bytes, f"{self._footers.name_of(group)}, column {path!r}")
