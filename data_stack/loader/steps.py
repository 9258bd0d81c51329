"""Functions of a step that give a sample, and the iterators over all their steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.dataset.iterator import AccessedDatasetIterator, ColumnKey, DatasetIteratorIF, SampleAccess
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.stacking import Batch, Column, stack_samples
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError

__all__ = ["KINDS", "StepIterator", "StepSource"]

_ENDLESS = 2**62
"""The length of an iterator over all steps of a source that has no end."""

KINDS: dict[str, type[StepSource]] = {}
"""The sources of this package by their names in a recipe."""


class StepSource(ABC):
    """A sequence of samples, as a rule an endless one: a pure function of a step.

    A subclass defines ``__call__``; one that can read many steps at once :meth:`read_steps`, too. To reach worker processes it
    must pickle, and what it does must depend on nothing but what it was made with and the step.
    """

    @abstractmethod
    def __call__(self, step: int) -> Any:
        """The sample of a step, which is at least 0.

        Raises:
            DatasetOutOfBoundsError: the source has ended before.
        """
        raise NotImplementedError

    @property
    def n_steps(self) -> int | None:
        """How many steps there are; None if it has no end."""
        return None

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        """The samples of many steps.

        Args:
            steps: shape ``(n,)``, each in ``[0, n_steps)``.
        """
        return [self(step) for step in steps.tolist()]

    def read_steps(self, steps: IndexArrayOfInts) -> Batch:
        """The samples of many steps as columns, each of shape ``(n, ...)``.

        Args:
            steps: shape ``(n,)``, each in ``[0, n_steps)``.
        """
        return stack_samples(self.read_samples(steps))

    def as_iterator(self) -> StepIterator:
        """All steps as an iterator, for a loader; of a source without an end, 2**62 of them."""
        return StepIterator(self)

    def _stacked_on(self) -> list[DatasetIteratorIF]:
        """The iterators below it, for a recipe."""
        return []

    def _arguments(self) -> dict[str, Any]:
        """What it was made with besides, for a recipe."""
        return {}

    @classmethod
    def _rebuilt(cls, sources: list[Any], arguments: Mapping[str, Any]) -> StepSource:
        """The source of these, and of what :meth:`_arguments` gave."""
        raise NotImplementedError


@layer("steps")
class StepIterator(AccessedDatasetIterator):
    """All steps of a source: sample i is ``source(i)``.

    Args:
        source: any; it stays the caller's.

    Raises:
        ConfigError: it is none.
    """

    def __init__(self, source: StepSource) -> None:
        if not isinstance(source, StepSource):
            raise ConfigError(f"an iterator over steps is made of a StepSource, not of {source!r:.80}")
        self.source = source
        self._below: list[DatasetIteratorIF] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "_below": None}

    def make_access(self) -> SampleAccess:
        return _StepAccess(self.source)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """What the source is stacked on: iterators, and other sources as such."""
        if self._below is None:  # whoever walks through a stack knows its iterators by identity
            self._below = [] if self._kind is None else self.source._stacked_on()
        return list(self._below)

    def _arguments(self) -> dict[str, Any]:
        if self._kind is None:
            return {"source": None, "object": self.source}
        return {"source": self._kind, **self.source._arguments()}

    @property
    def _kind(self) -> str | None:
        """The name of the source's class; of a class that is none of ours, which nobody could make again, None."""
        return next((name for name, kind in KINDS.items() if type(self.source) is kind), None)

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        given = dict(arguments)
        name = given.pop("source", None)
        if name is None:
            return cls(given["object"])
        if name not in KINDS:
            raise ConfigError(f"there is no source {name!r:.40}; there are {', '.join(KINDS)}")
        rebuilt = cls(KINDS[name]._rebuilt(underlying, given))
        rebuilt._below = underlying
        return rebuilt


class _StepAccess(SampleAccess):
    """Access to the steps of a source, many in one request."""

    def __init__(self, source: StepSource) -> None:
        self._source = source

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        n_steps = self._source.n_steps
        return _ENDLESS if n_steps is None else n_steps

    def sample(self, position: int) -> Any:
        return self._source(position)

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return self._source.read_samples(positions)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self._source.read_steps(positions) if len(positions) else self.empty_batch()

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        if positions is None and self._source.n_steps is None:
            raise ConfigError("a source without an end has no whole column; ask for that of some steps")
        return super().columns(keys, positions)
