"""Samples of which some cannot be read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from data_stack.dataset.iterator import AccessedDatasetIterator, SourceAccess
from data_stack.exception import DatasetFileCorruptError


class _Access(SourceAccess):
    """The access to :class:`DamagedNumbers`."""

    def __init__(self, source: DamagedNumbers) -> None:
        super().__init__(source)
        self.n_samples = source.n

    def sample(self, position: int) -> Any:
        return self.source.read(position)

    def locate(self, position: int) -> str:
        return f"row {position} of numbers.bin"


class DamagedNumbers(AccessedDatasetIterator):
    """The samples ``(0,)`` to ``(n - 1,)``, of which some are damaged.

    Args:
        n: the number of samples.
        damaged: those that cannot be read.
        reads: a file to which the number of each sample that is read is appended; None for none.
        error: the error of a damaged sample.
    """

    _keeps_access = False

    def __init__(
        self,
        n: int,
        damaged: Collection[int],
        reads: Path | None = None,
        error: type[Exception] = DatasetFileCorruptError,
    ) -> None:
        self.n = n
        self.damaged = frozenset(damaged)
        self.reads = reads
        self.error = error

    @property
    def underlying_iterators(self) -> list[Any]:
        return []

    def make_access(self) -> _Access:
        return _Access(self)

    def read(self, position: int) -> tuple[int]:
        """Return a sample."""
        if self.reads is not None:
            with self.reads.open("a") as file:
                file.write(f"{position}\n")
        if position in self.damaged:
            raise self.error(f"number {position} is damaged")
        return (position,)

    def numbers_read(self) -> list[int]:
        """Return the numbers of the samples that were read, in every process."""
        assert self.reads is not None
        if not self.reads.exists():
            return []
        return [int(line) for line in self.reads.read_text().split()]
