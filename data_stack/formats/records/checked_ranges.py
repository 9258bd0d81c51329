"""Reads a file by range, and checks its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.formats.records.block_checks import BlockChecks
from data_stack.io.positional import PositionalFile


class CheckedRanges(PositionalFile):
    """Reads a file by range, and checks each block on its first read, which fetches it whole.

    Attributes:
        checks: which blocks are checked. Whoever opens the file assigns it before the first read.
    """

    checks: BlockChecks

    @property
    def name(self) -> str:
        return self.checks.name

    def read_at(self, offset: int, size: int) -> bytes:
        if self.checks.is_done:
            return super().read_at(offset, size)
        return self.read_ranges([(offset, size)])[0]

    def readinto_at(self, offset: int, buffer: Any, /) -> int:
        if self.checks.is_done:
            return super().readinto_at(offset, buffer)
        view = memoryview(buffer).cast("B")
        data = self.read_at(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if self.checks.is_done:
            return super().read_ranges(ranges)
        return [bytes(view) for view in self.read_views(ranges)]

    def read_views(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        checks = self.checks
        if checks.is_done:
            return super().read_views(ranges)

        wide_ranges = [checks.widen(offset, size) for offset, size in ranges]
        ranges_to_read = []
        for given_range, wide_range in zip(ranges, wide_ranges, strict=True):
            ranges_to_read.append(given_range if wide_range is None else wide_range)
        views = super().read_views(ranges_to_read)

        for index, wide_range in enumerate(wide_ranges):
            if wide_range is None:
                continue
            wide_start, _ = wide_range
            checks.check_blocks(wide_start, views[index])
            offset, size = ranges[index]
            start = offset - wide_start
            views[index] = views[index][start : start + size]
        return views
