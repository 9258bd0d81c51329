"""torch's DataLoader with two workers that stay, over any dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from loader_peers.loading import BATCH, N_WORKERS, Loading


class TorchLoading(Loading):
    """A DataLoader over a map-style dataset, shuffled by its own sampler.

    Args:
        dataset: of ``__getitem__``, or of ``__getitems__`` that gives finished batches.
        is_batched: the latter: nothing is collated.
        start: how workers start.
        n_workers: how many.
    """

    def __init__(self, dataset: Any, *, is_batched: bool, start: str = "fork", n_workers: int = N_WORKERS) -> None:
        torch.set_num_threads(1)
        self.loader: DataLoader[Any] = DataLoader(
            dataset,
            BATCH,
            shuffle=True,
            num_workers=n_workers,
            collate_fn=as_it_is if is_batched else None,
            persistent_workers=n_workers > 0,
            multiprocessing_context=start if n_workers else None,
        )

    def epoch(self) -> Iterator[Any]:
        return iter(self.loader)

    def close(self) -> None:
        iterator = self.loader._iterator
        if iterator is not None and hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()


def as_it_is(batch: Any) -> Any:
    """Collates nothing: it is a batch already."""
    return batch


def tensors(batch: dict[str, Any]) -> dict[str, Any]:
    """Arrays as tensors, which a worker puts into shared memory; blobs end to end with their lengths, for the same reason."""
    found = {}
    for name, values in batch.items():
        if isinstance(values, list):
            found["bytes"] = torch.frombuffer(bytearray(b"".join(values)), dtype=torch.uint8)
            found["lengths"] = torch.tensor([len(value) for value in values])
        else:
            found[name] = torch.from_numpy(values if values.flags.writeable else values.copy())
    return found
