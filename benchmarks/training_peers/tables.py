"""Programs that train on a table in Parquet, shuffled by row groups, batches of 4,096 rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from training_peers.program import BATCH, N_WORKERS, Program

_BATCH = BATCH["tables"]
_N_GROUPS_MIXED = 4
Epochs = Callable[[], Iterator[Any]]


def by_hand(data: Path, _: Path) -> Epochs:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    files = [pq.ParquetFile(path) for path in sorted(data.glob("*.parquet"))]
    groups = [(file, group) for file in files for group in range(file.num_row_groups)]

    def epoch() -> Iterator[Any]:
        rng = np.random.default_rng()
        order = rng.permutation(len(groups))
        for start in range(0, len(order), _N_GROUPS_MIXED):
            tables = [
                groups[number][0].read_row_group(groups[number][1])
                for number in order[start : start + _N_GROUPS_MIXED]
            ]
            table = pa.concat_tables(tables)
            columns = {name: table.column(name).to_numpy() for name in table.column_names}
            rows = rng.permutation(len(table))
            for first in range(0, len(rows), _BATCH):
                chosen = rows[first : first + _BATCH]
                yield {
                    name: torch.from_numpy(column.take(chosen)) for name, column in columns.items()
                }

    return epoch


def by_huggingface(data: Path, folder: Path) -> Epochs:
    import datasets
    from torch.utils.data import DataLoader

    paths = sorted(map(str, data.glob("*.parquet")))
    dataset = datasets.load_dataset(
        "parquet", data_files=paths, split="train", streaming=True, cache_dir=str(folder)
    )
    mixed = dataset.shuffle(seed=0, buffer_size=_BATCH * 10).with_format("torch")
    loader = DataLoader(mixed, _BATCH, num_workers=N_WORKERS, persistent_workers=True)  # type: ignore[arg-type]
    return lambda: iter(loader)


def by_torch(data: Path, _: Path) -> Epochs:
    """As many write it: an iterable dataset that reads row groups by pyarrow in each worker, and
    makes the batches itself.
    """
    import numpy as np
    import pyarrow.parquet as pq
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    paths = sorted(data.glob("*.parquet"))

    class Groups(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            info, rng = get_worker_info(), np.random.default_rng()
            groups = [
                (path, group)
                for path in paths
                for group in range(pq.ParquetFile(path).num_row_groups)
            ]
            own = groups[info.id :: info.num_workers] if info is not None else groups
            for number in rng.permutation(len(own)):
                path, group = own[number]
                table = pq.ParquetFile(path).read_row_group(group)
                columns = {name: table.column(name).to_numpy() for name in table.column_names}
                rows = rng.permutation(len(table))
                for first in range(0, len(rows), _BATCH):
                    yield {
                        name: torch.from_numpy(column[rows[first : first + _BATCH]])
                        for name, column in columns.items()
                    }

    loader = DataLoader(Groups(), batch_size=None, num_workers=N_WORKERS, persistent_workers=True)
    return lambda: iter(loader)


def by_ours(data: Path, _: Path) -> Epochs:
    import data_stack
    from data_stack.loader import BlockShuffled

    order = BlockShuffled(window=_N_GROUPS_MIXED)
    loader = data_stack.Loader(
        data_stack.load(data, nulls="nan"), _BATCH, shuffle=order, workers=N_WORKERS
    )
    loader.__enter__()
    made = loader.torch()
    return lambda: iter(made)


PROGRAMS = {
    "pyarrow, permuted by hand": Program("limit", by_hand),
    "torch": Program(
        "peer",
        by_torch,
        settings="an IterableDataset of row groups by pyarrow, 2 persistent workers",
    ),
    "Hugging Face": Program(
        "peer", by_huggingface, settings="streaming, shuffle buffer, torch format, 2 workers"
    ),
    "ours": Program("ours", by_ours),
}
