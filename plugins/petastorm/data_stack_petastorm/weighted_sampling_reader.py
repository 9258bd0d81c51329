"""Rows of several readers, drawn by weights."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal

import numpy as np

from data_stack.dataset.randomness.seeds import derive_seed
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.loader.state import check_seal, seal
from data_stack_petastorm.iteration import Reader

__all__ = ["WeightedSamplingReader"]

_STATE: Final = "data_stack_petastorm_weighted_reader"


class WeightedSamplingReader:
    """The next row of one of several readers, drawn for each row anew; a reader itself.

    ::

        with WeightedSamplingReader([day, night], [0.7, 0.3], seed=1) as reader:
            for row in reader: ...

    Args:
        readers: with the same fields and n-gram, and all with rows or all with row groups; they are stopped with this one.
        probabilities: of each, not negative; they need not have the sum 1.
        seed: of the draws; with it and those of the readers, all rows are decided. None: others at each start.
        stop: "first_exhausted": it ends when the reader that was drawn has no more rows, as in Petastorm; "all_exhausted": a
            reader without more rows is drawn no more, and it ends when none has any, so that each row is given.

    Raises:
        ConfigError: the readers differ, or these are no probabilities.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        probabilities: Sequence[float],
        seed: int | None = None,
        *,
        stop: Literal["first_exhausted", "all_exhausted"] = "first_exhausted",
    ) -> None:
        self._readers, self._weights, self._stop = list(readers), np.array(probabilities, dtype=np.float64), stop
        weights = self._weights
        if not self._readers or weights.shape != (len(readers),) or not np.isfinite(weights).all() or (weights < 0).any():
            raise ConfigError(f"there is one probability, not below 0, for each of {len(readers)} readers: {probabilities!r:.80}")
        if not weights.any() or stop not in ("first_exhausted", "all_exhausted"):
            raise ConfigError(f"not all probabilities are 0, and stop is 'first_exhausted' or 'all_exhausted', not {stop!r:.40}")
        first = readers[0]
        for other in readers[1:]:
            if (other.batched_output, other.ngram) != (first.batched_output, first.ngram):
                raise ConfigError("all readers give rows, or all row groups, or all the same n-gram")
            if list(other.schema.fields) != list(first.schema.fields):
                raise ConfigError("all readers have the same fields in the same order: name them with schema_fields=")
        self.seed = secrets.randbits(63) if seed is None else seed
        self.schema, self.ngram, self.batched_output = first.schema, first.ngram, first.batched_output
        self.num_epochs = None if any(reader.num_epochs is None for reader in readers) else 1
        self._begin()

    def _begin(self, n_drawn: int = 0) -> None:
        self._n_drawn = n_drawn
        self._alive = self._weights.copy()
        self._draws = np.random.Generator(np.random.PCG64(derive_seed("weighted", self.seed)).advance(n_drawn))
        self._is_over = False

    # ------------------------------------------------------------------ iteration

    def __iter__(self) -> WeightedSamplingReader:
        return self

    def __next__(self) -> Any:
        """The next row of the reader that is drawn."""
        while not self._is_over:
            number = self._draw()
            try:
                return next(self._readers[number])
            except StopIteration:
                self._alive[number] = 0.0
                self._is_over = self._stop == "first_exhausted" or not self._alive.any()
        raise StopIteration

    def next(self) -> Any:
        """The next row, as ``next(reader)``."""
        return self.__next__()

    def __len__(self) -> int:
        """How many rows there are in all readers; with "first_exhausted" it may give fewer.

        Raises:
            TypeError: one of them never ends.
        """
        return sum(len(reader) for reader, weight in zip(self._readers, self._weights, strict=True) if weight)

    def _draw(self) -> int:
        self._n_drawn += 1
        ends = np.cumsum(self._alive)
        number = int(np.searchsorted(ends, self._draws.random() * ends[-1], side="right"))
        return min(number, int(np.flatnonzero(self._alive)[-1]))  # the product may be rounded up to the sum

    @property
    def last_row_consumed(self) -> bool:
        """Whether there are no more rows."""
        return self._is_over

    def reset(self) -> None:
        """Begin anew, with the next epoch of each reader, and other draws."""
        for reader in self._readers:
            reader.reset()
        self.seed = derive_seed("another pass", self.seed)
        self._begin()

    def stop(self) -> None:
        """Stop all readers."""
        for reader in self._readers:
            reader.stop()

    def join(self) -> None:
        """Nothing is left to wait for after :meth:`stop`."""

    def cleanup_cache(self) -> None:
        """Nothing is deleted."""

    def __enter__(self) -> WeightedSamplingReader:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Where it is, and where each reader is: plain JSON data."""
        exhausted = np.flatnonzero((self._alive == 0) & (self._weights > 0)).tolist()
        own = {"seed": self.seed, "drawn": self._n_drawn, "exhausted": exhausted, "is_over": self._is_over}
        return seal({_STATE: 1, **own, "readers": [reader.state_dict() for reader in self._readers]})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken, with the same readers and probabilities.

        Raises:
            LoaderStateError: that is no such state, or one of other readers.
        """
        given: Any = state
        if not isinstance(given, Mapping) or given.get(_STATE) != 1:
            raise LoaderStateError(f"this is not the state of a weighted reader: {state!r:.120}; state_dict() gives one")
        check_seal(given, "a weighted reader")
        if len(state["readers"]) != len(self._readers):
            raise LoaderStateError(f"this state is of {len(state['readers'])} readers, there are {len(self._readers)}")
        for reader, its_state in zip(self._readers, state["readers"], strict=True):
            reader.load_state_dict(its_state)
        self.seed = state["seed"]
        self._begin(state["drawn"])
        self._is_over = state["is_over"]
        self._alive[list(state["exhausted"])] = 0.0
