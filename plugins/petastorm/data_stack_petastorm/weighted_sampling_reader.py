"""Rows of several readers, sampled by weights."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from data_stack.dataset.randomness import derive_seed
from data_stack.exception import ConfigError
from data_stack_petastorm.base_reader import BaseReader
from data_stack_petastorm.iteration import Reader


class WeightedSamplingReader(BaseReader):
    """A reader that draws, for each row, one of several readers by weights.

    ::

        with WeightedSamplingReader([day, night], [0.7, 0.3], seed=1) as reader:
            for row in reader: ...

    Args:
        readers: two or more readers with the same fields and n-gram, all of rows or all of row groups; they stop with this one.
        probabilities: the weight of each reader, at least 0; the sum need not be 1.
        seed: seed of the draws; with the seeds of the readers, it determines all rows. None: other draws at each start.

    Raises:
        ConfigError: the readers differ, or the probabilities are invalid.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        probabilities: Sequence[float],
        seed: int | None = None,
    ) -> None:
        self._readers, self._weights = list(readers), np.array(probabilities, dtype=np.float64)
        weights = self._weights
        if len(self._readers) < 2:
            raise ConfigError(f"Two or more readers must be specified. Got {len(self._readers)}.")
        if (
            weights.shape != (len(readers),)
            or not np.isfinite(weights).all()
            or (weights < 0).any()
        ):
            raise ConfigError(
                f"expected {len(readers)} probabilities, each at least 0, got {probabilities!r:.80}"
            )
        if not weights.any():
            raise ConfigError("at least one probability must be above 0")
        first = readers[0]
        for other in readers[1:]:
            if (other.batched_output, other.ngram) != (first.batched_output, first.ngram):
                raise ConfigError(
                    "all readers must read rows, or all row groups, or all the same ngram"
                )
            if set(other.schema.fields) != set(first.schema.fields):
                raise ConfigError(
                    "All readers should have the same schema: pass the same schema_fields="
                )
        self.seed = secrets.randbits(63) if seed is None else seed
        self.schema, self.ngram, self.batched_output = (
            first.schema,
            first.ngram,
            first.batched_output,
        )
        self.fills_nulls = any(getattr(reader, "fills_nulls", False) for reader in readers)
        self.num_epochs = (
            None if any(getattr(reader, "num_epochs", None) is None for reader in readers) else 1
        )
        self._begin()

    def _begin(self) -> None:
        self._draws = np.random.default_rng(derive_seed("weighted", self.seed))
        self._is_over = False

    # ------------------------------------------------------------------ iteration

    def __next__(self) -> Any:
        """Return the next row of the drawn reader; the end of that reader is the end, as in Petastorm."""
        if self._is_over:
            raise StopIteration
        try:
            return next(
                self._readers[
                    self._draws.choice(len(self._readers), p=self._weights / self._weights.sum())
                ]
            )
        except StopIteration:
            self._is_over = True
            raise

    def __len__(self) -> int:
        """The number of rows of all readers; an iteration may end earlier.

        Raises:
            TypeError: a reader is endless.
        """
        return sum(
            len(reader)
            for reader, weight in zip(self._readers, self._weights, strict=True)
            if weight
        )

    @property
    def last_row_consumed(self) -> bool:
        """Whether a reader has no more rows."""
        return self._is_over or any(
            getattr(reader, "last_row_consumed", False) for reader in self._readers
        )

    def reset(self) -> None:
        """Restart, with the next epoch of each reader and other draws."""
        for reader in self._readers:
            getattr(reader, "restart", reader.reset)()
        self.seed = derive_seed("another pass", self.seed)
        self._begin()

    def stop(self) -> None:
        """Stop all readers."""
        for reader in self._readers:
            reader.stop()
            reader.join()
