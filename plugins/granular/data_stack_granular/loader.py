"""Granular's loader: endless batches of a source, made in processes, which resume from any step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import data_stack.loader
from data_stack.loader.ranks import warn_without_shard
from data_stack_granular.sources import convert


class Loader:
    """Batches of a source: dicts of arrays of shape ``(batch, ...)``, with the dtypes and shapes of :attr:`spec`.

    Step t of rank ``shard_id`` has the datapoints from ``(t * num_shards + shard_id) * batch`` on. ``iter(loader)`` is the loader
    itself; workers prefetch batches.

    Args:
        source: a function from a step to a dict, or an object with ``[step]``. It must pickle.
        batch: number of datapoints of a batch.
        prefetch: number of batches that all workers together prefetch, at least one each.
        workers: number of processes; 0: no processes; None: one per processor.
        recycle_after: ignored; batches are the caller's own.
        shard_id, num_shards: this rank and the number of ranks; None: one rank, with a warning if there are several processes.
        mp: ignored; workers are forks of a fresh interpreter.

    Attributes:
        consumed: number of datapoints that all ranks together have received.

    Raises:
        ConfigError: an argument is out of range.
        RuntimeError (while iterating): a datapoint could not be made; the message names its step.
    """

    def __init__(
        self,
        source: Any,
        batch: int,
        prefetch: int = 8,
        workers: int | None = None,
        recycle_after: int | bool = False,
        shard_id: int = 0,
        num_shards: int | None = None,
        mp: Any = None,
    ) -> None:
        if num_shards is None:
            num_shards, remedy = (
                1,
                "Pass shard_id=rank, num_shards=world; or num_shards=1 if each process needs all datapoints",
            )
            warn_without_shard("this loader has no num_shards", remedy, stacklevel=2)
        self.source = convert(source)
        self.batch, self.prefetch, self.shard_id, self.num_shards = (
            batch,
            prefetch,
            shard_id,
            num_shards,
        )
        options: dict[str, Any] = {
            "workers": workers,
            "worker_kind": "inline" if workers == 0 else "processes",
        }
        options |= {
            "shard": (shard_id, num_shards),
            "prefetch": max(1, -(-prefetch // (workers or 1))),
        }
        self._loader = data_stack.loader.Loader(_Datapoints(self.source), batch, **options)
        self._batches: Iterator[Any] | None = None
        self.consumed = 0

    @functools.cached_property
    def spec(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of each value of a datapoint, from step 0."""
        return {key: (value.dtype, value.shape) for key, value in self._datapoint(0).items()}

    def _datapoint(self, step: int) -> dict[str, npt.NDArray[Any]]:
        try:
            return _arrays_of(self.source(step))
        except StopIteration as error:  # of a function of the program; it would end the loader
            raise RuntimeError(f"the source raised StopIteration at step {step}") from error

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> dict[str, npt.NDArray[Any]]:
        if self._batches is None:
            self._loader.seek(0, self.consumed, 0)
            self._batches = iter(self._loader)
        given = next(self._batches)
        self.consumed += self.batch * self.num_shards
        return {key: _fit(key, given[key], *expected) for key, expected in self.spec.items()}

    def save(self) -> dict[str, int]:
        """Return the state, ``{"step": consumed}``, which Granular's loader also loads."""
        return {"step": self.consumed}

    def load(self, d: dict[str, int]) -> None:
        """Resume from a state of any loader of the same source."""
        self.consumed, self._batches = d["step"], None

    def close(self) -> None:
        """End the workers."""
        self._loader.close()
        self._batches = None


class _Datapoints:
    """The datapoints of a source as a sequence that is longer than any training: at a million a second, nine years."""

    def __init__(self, source: Callable[[int], Any]) -> None:
        self._source = source

    def __len__(self) -> int:
        return 2**48

    def __getitem__(self, step: int) -> dict[str, npt.NDArray[Any]]:
        return _arrays_of(self._source(step))


def _arrays_of(datapoint: Any) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(datapoint, dict):
        raise TypeError(f"datapoints must be dicts, got {type(datapoint).__name__}")
    return {key: np.asarray(value) for key, value in datapoint.items()}


def _fit(key: str, values: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Cast values of a batch to the dtype of datapoint 0."""
    if values.shape[1:] != shape or not (
        values.dtype.kind == dtype.kind or np.can_cast(values.dtype, dtype, "same_kind")
    ):
        raise RuntimeError(
            f"{key!r} is {values.dtype} {values.shape[1:]} in a batch, but {dtype} {shape} in datapoint 0"
        )
    array: npt.NDArray[Any] = values if dtype.kind in "SU" else values.astype(dtype, copy=False)
    return array
