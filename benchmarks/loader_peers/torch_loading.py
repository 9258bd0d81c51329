"""torch's DataLoader with two workers that stay, over any dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from loader_peers.loading import BATCH, N_WORKERS, Loading


class TorchLoading(Loading):
    """A DataLoader, with shuffling by its own sampler unless the dataset is iterable.

    Args:
        dataset: of ``__getitem__``, of ``__getitems__`` that gives finished batches, or iterable.
        collate: turns samples into a batch; None for torch's function.
        n_workers: how many.
    """

    def __init__(self, dataset: Any, collate: Any = None, n_workers: int = N_WORKERS) -> None:
        torch.set_num_threads(1)
        shuffle = not isinstance(dataset, IterableDataset)
        self.loader: DataLoader[Any] = DataLoader(
            dataset,
            BATCH,
            shuffle,
            num_workers=n_workers,
            collate_fn=collate,
            persistent_workers=n_workers > 0,
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
    """Arrays as tensors, which a worker puts into shared memory; blobs end to end with their
    lengths, for the same reason.
    """
    found = {}
    for name, values in batch.items():
        if isinstance(values, list):
            found["bytes"] = torch.frombuffer(bytearray(b"".join(values)), dtype=torch.uint8)
            found["lengths"] = torch.tensor([len(value) for value in values])
        else:
            found[name] = torch.from_numpy(values if values.flags.writeable else values.copy())
    return found
