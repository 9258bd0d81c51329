"""WebDataset: eight tars, read in a random order, and a buffer of 5,000 samples that mixes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import webdataset
from record_peers.system import Packed
from record_peers.workload import Schema, Workload

from loader_peers.loading import BATCH, N_WORKERS, LoaderSystem, Loading
from loader_peers.torch_loading import tensors

_N_SHARDS = 8


class Unpacked:
    """A batch out of the members of a tar, each of which holds all fields end to end."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __call__(self, samples: list[dict[str, Any]]) -> Any:
        return tensors(Packed(self._schema).batch([sample["bin"] for sample in samples]))


class WebDatasetLoading(Loading):
    """Batches are made in the workers, whose incomplete ones come at the end of an epoch."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        torch.set_num_threads(1)
        urls = [str(folder / f"samples-{number}.tar") for number in range(_N_SHARDS)]
        samples = webdataset.WebDataset(urls, shardshuffle=_N_SHARDS, seed=1).shuffle(5000)
        batches = samples.batched(BATCH, collation_fn=Unpacked(schema))
        self._loader = webdataset.WebLoader(batches, batch_size=None, num_workers=N_WORKERS, persistent_workers=True)

    def epoch(self) -> Iterator[Any]:
        return iter(self._loader)


def write(work: Workload, folder: Path) -> None:
    """Members without the extended headers that a time in fractions of a second takes."""
    folder.mkdir()
    writers = [webdataset.TarWriter(str(folder / f"samples-{number}.tar"), mtime=0) for number in range(_N_SHARDS)]
    for number, record in enumerate(work.packed_records()):
        writers[number % _N_SHARDS].write({"__key__": f"{number:09d}", "bin": record})
    for writer in writers:
        writer.close()


SYSTEMS = {"webdataset": LoaderSystem(WebDatasetLoading, stored="webdataset", write_files=write)}
