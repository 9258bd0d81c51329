"""Granular's loader, which makes endless batches of a source in worker processes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import data_stack.loader
from data_stack.loader.ranks import warn_without_shard
from data_stack.util.executor import n_processors
from data_stack_granular.sources import Source, convert

#: The length of a sequence that is longer than any training: nine years at a million a second.
_ENDLESS = 2**48


class Loader:
    """Batches of a source: dicts of arrays of shape ``(batch, ...)``.

    Their dtypes and shapes are those of :attr:`spec`. Step t of rank ``shard_id`` has the
    datapoints from ``(t * num_shards + shard_id) * batch`` on. ``iter(loader)`` is the loader
    itself. Workers prefetch batches.

    Args:
        source: a function from a step to a dict, or an object with ``[step]``. It must pickle.
        batch: number of datapoints of a batch.
        prefetch: number of batches that all workers together prefetch, at least one each.
        workers: number of processes; 0: no processes; None: one per processor.
        recycle_after: ignored; batches are the caller's own.
        shard_id, num_shards: this rank and the number of ranks; None: one rank, with a warning if
            there are several processes.
        mp: ignored; workers are forks of a fresh interpreter.

    Attributes:
        consumed: number of datapoints that all ranks together have received.

    Raises:
        ConfigError: an argument is out of range.
        TypeError: ``source`` is not a source.
        RuntimeError (while iterating): a datapoint could not be made; the message names its step.
    """

    source: Source
    batch: int
    prefetch: int
    shard_id: int
    num_shards: int
    consumed: int
    #: Makes the batches.
    _loader: data_stack.loader.Loader
    #: The batches from :attr:`consumed` on; None until the next batch is asked for.
    _batches: Iterator[Any] | None

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
            num_shards = 1
            warn_without_shard(
                "this loader has no num_shards",
                "Pass shard_id=rank, num_shards=world; "
                "or num_shards=1 if each process needs all datapoints",
                stacklevel=2,
            )
        self.source = convert(source)
        self.batch = batch
        self.prefetch = prefetch
        self.shard_id = shard_id
        self.num_shards = num_shards
        self.consumed = 0
        self._batches = None

        # data_stack's loader counts the batches that each worker prefetches.
        prefetch_per_worker = split_prefetch(prefetch, workers)
        self._loader = data_stack.loader.Loader(
            _Datapoints(self.source),
            batch,
            workers=workers,
            worker_kind="inline" if workers == 0 else "processes",
            shard=(shard_id, num_shards),
            prefetch=prefetch_per_worker,
        )

    @functools.cached_property
    def spec(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of each value of a datapoint, from step 0."""
        datapoint = self._make_first_datapoint()
        return {key: (value.dtype, value.shape) for key, value in datapoint.items()}

    def _make_first_datapoint(self) -> dict[str, npt.NDArray[Any]]:
        """Return the datapoint of step 0.

        Raises:
            RuntimeError: the source raised StopIteration, which would end a loop over the loader.
        """
        try:
            return _convert_to_arrays(self.source(0))
        except StopIteration as error:
            raise RuntimeError("the source raised StopIteration at step 0") from error

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> dict[str, npt.NDArray[Any]]:
        if self._batches is None:
            self._loader.seek(0, self.consumed, 0)
            self._batches = iter(self._loader)
        batch = next(self._batches)
        self.consumed += self.batch * self.num_shards
        return {
            key: _cast_to_spec(key, batch[key], dtype, shape)
            for key, (dtype, shape) in self.spec.items()
        }

    def save(self) -> dict[str, int]:
        """Return the state, ``{"step": consumed}``, which Granular's loader also loads."""
        return {"step": self.consumed}

    def load(self, d: dict[str, int]) -> None:
        """Resume from a state of any loader of the same source.

        Args:
            d: the state, as :meth:`save` returns it.
        """
        self.consumed = d["step"]
        self._batches = None

    def close(self) -> None:
        """End the workers."""
        self._loader.close()
        self._batches = None


def split_prefetch(prefetch: int, workers: int | None) -> int:
    """Return how many batches each worker prefetches, at least one.

    Args:
        prefetch: number of batches that all workers together prefetch.
        workers: number of processes; 0: no processes; None: one per processor.
    """
    n_workers = n_processors() if workers is None else max(1, workers)
    return max(1, math.ceil(prefetch / n_workers))


class _Datapoints:
    """The datapoints of a source as an endless sequence."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, step: int) -> dict[str, npt.NDArray[Any]]:
        return _convert_to_arrays(self._source(step))


def _convert_to_arrays(datapoint: Any) -> dict[str, npt.NDArray[Any]]:
    """Convert the values of a datapoint to arrays.

    Raises:
        TypeError: it is not a dict.
    """
    if not isinstance(datapoint, dict):
        raise TypeError(f"datapoints must be dicts, got {type(datapoint).__name__}")
    return {key: np.asarray(value) for key, value in datapoint.items()}


def _cast_to_spec(
    key: str, values: Any, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Cast a column of a batch to the dtype of datapoint 0.

    Args:
        key: name of the column, for the message.
        values: array of shape ``(batch, *shape)``.
        dtype: that of the value in datapoint 0.
        shape: that of the value in datapoint 0.

    Raises:
        RuntimeError: the shape differs, or the cast could lose more than precision.
    """
    is_same_kind = values.dtype.kind == dtype.kind
    is_castable = is_same_kind or np.can_cast(values.dtype, dtype, "same_kind")
    if values.shape[1:] != shape or not is_castable:
        raise RuntimeError(
            f"{key!r} is {values.dtype} {values.shape[1:]} in a batch, "
            f"but {dtype} {shape} in datapoint 0"
        )
    is_text = dtype.kind in "SU"
    if is_text:  # texts of a batch may be longer than that of datapoint 0
        return values  # type: ignore[no-any-return]  # an array
    return values.astype(dtype, copy=False)  # type: ignore[no-any-return]  # an array
