"""Programs that train on windows of 1,024 tokens (uint16), in random order, batches of 16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from training_peers.program import BATCH, N_WORKERS, WINDOW, Program
from training_peers.stand_ins import use_stand_ins

_BATCH = BATCH["tokens"]
Epochs = Callable[[], Iterator[Any]]


def _map(data: Path) -> Any:
    import numpy as np

    return np.load(data / "tokens.npy", mmap_mode="r")


def by_hand(data: Path, _: Path) -> Epochs:
    import numpy as np
    import torch

    windows = np.asarray(_rows(data))

    def epoch() -> Iterator[Any]:
        order = np.random.default_rng().permutation(len(windows))
        for start in range(0, len(order), _BATCH):
            yield torch.from_numpy(windows.take(order[start : start + _BATCH], 0))

    return epoch


class _Windows:
    def __init__(self, data: Path) -> None:
        self._tokens = _map(data)

    def __len__(self) -> int:
        return len(self._tokens) // WINDOW

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.from_numpy(self._tokens[index * WINDOW : (index + 1) * WINDOW].copy())


def by_torch(data: Path, _: Path, *, n_workers: int) -> Epochs:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _Windows(data),  # type: ignore[arg-type]
        _BATCH,
        shuffle=True,
        num_workers=n_workers,
        persistent_workers=n_workers > 0,
    )
    return lambda: iter(loader)


def _read_part(start: int, data: Path) -> Any:
    import torch

    return torch.from_numpy(_map(data)[start : start + WINDOW * 1000].astype("int32"))


def write_litdata(data: Path, folder: Path) -> None:
    import litdata

    litdata.optimize(
        partial(_read_part, data=data),
        inputs=list(range(0, len(_map(data)), WINDOW * 1000)),
        output_dir=str(folder),
        chunk_bytes="64MB",
        num_workers=1,
        item_loader=litdata.TokensLoader(),
        verbose=False,
    )


def by_litdata(_: Path, folder: Path) -> Epochs:
    import litdata

    dataset = litdata.StreamingDataset(
        str(folder), item_loader=litdata.TokensLoader(block_size=WINDOW), shuffle=True
    )
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=_BATCH, num_workers=N_WORKERS, persistent_workers=True
    )
    return lambda: iter(loader)


def by_grain(data: Path, _: Path) -> Epochs:
    import grain

    def epoch() -> Iterator[Any]:
        dataset = grain.MapDataset.source(_Windows(data)).seed(0).shuffle()  # type: ignore[arg-type]
        options = grain.MultiprocessingOptions(num_workers=N_WORKERS)
        yield from (
            dataset.to_iter_dataset(grain.ReadOptions(num_threads=0))
            .batch(_BATCH, batch_fn=_stack)
            .mp_prefetch(options)
        )

    return epoch


def _stack(windows: Any) -> Any:
    import torch

    return torch.stack(list(windows))


def _rows(data: Path) -> Any:
    tokens = _map(data)
    return tokens[: len(tokens) // WINDOW * WINDOW].reshape(-1, WINDOW)


def write_huggingface(data: Path, folder: Path) -> None:
    import datasets
    import pyarrow as pa

    rows = _rows(data)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), WINDOW)
    dataset = datasets.Dataset(pa.table({"tokens": column}))
    dataset.save_to_disk(folder / "hf", max_shard_size="1GB")


def by_huggingface(_: Path, folder: Path) -> Epochs:
    import datasets
    from torch.utils.data import DataLoader

    dataset = datasets.load_from_disk(folder / "hf").with_format("torch")
    loader = DataLoader(
        dataset, _BATCH, shuffle=True, num_workers=N_WORKERS, persistent_workers=True
    )
    return lambda: iter(loader)


def write_mosaicml(data: Path, folder: Path) -> None:
    use_stand_ins()
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"tokens": f"ndarray:uint16:{WINDOW}"}) as writer:
        for row in _rows(data):
            writer.write({"tokens": row})


def by_mosaicml(_: Path, folder: Path) -> Epochs:
    use_stand_ins()
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(local=str(folder), batch_size=_BATCH, shuffle=True)
    loader = DataLoader(dataset, _BATCH, num_workers=N_WORKERS, persistent_workers=True)
    return lambda: iter(loader)


def write_records(data: Path, folder: Path) -> None:
    from data_stack.formats import records

    rows = _rows(data)
    with records.RecordWriter(
        folder, {"tokens": records.ColumnType("array", "uint16", (WINDOW,))}
    ) as writer:
        for start in range(0, len(rows), 10_000):
            writer.extend({"tokens": rows[start : start + 10_000]})


def by_ours(data: Path, folder: Path, *, source: str) -> Epochs:
    import data_stack

    if source == "records":
        windows = data_stack.load(folder)
    else:
        windows = data_stack.load(data / "tokens.npy").windows(WINDOW, stride=WINDOW)
    loader = data_stack.Loader(windows, _BATCH, shuffle=True, workers=N_WORKERS)
    loader.__enter__()
    made = loader.torch()
    return lambda: iter(made)


PROGRAMS = {
    "numpy.take on the map": Program("limit", by_hand),
    "torch, no workers": Program(
        "peer", partial(by_torch, n_workers=0), settings="map-style over the memory map"
    ),
    "torch": Program(
        "peer", partial(by_torch, n_workers=N_WORKERS), settings="the same, 2 persistent workers"
    ),
    "litdata": Program(
        "peer",
        by_litdata,
        write_litdata,
        settings="TokensLoader of int32, StreamingDataLoader, 2 workers",
    ),
    "Grain": Program(
        "peer", by_grain, settings="the same windows, mp_prefetch of 2 workers, no threads"
    ),
    "Hugging Face": Program(
        "peer",
        by_huggingface,
        write_huggingface,
        settings="rows in Arrow, torch format, torch's loader",
    ),
    "MosaicML Streaming": Program(
        "peer",
        by_mosaicml,
        write_mosaicml,
        settings="MDS of uint16 rows, torch's loader, 2 workers",
    ),
    "ours, records": Program("ours", partial(by_ours, source="records"), write_records),
    "ours, windows": Program("ours", partial(by_ours, source="windows")),
}
