"""Programs that train on JPEGs: decode, crop, flip, batches of 128."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from training_peers.program import BATCH, N_WORKERS, Program
from training_peers.stand_ins import use_stand_ins

_BATCH = BATCH["images"]
Epochs = Callable[[], Iterator[Any]]


def _paths(data: Path) -> list[tuple[Path, int]]:
    return [
        (path, int(path.parent.name.partition("_")[2])) for path in sorted(data.glob("*/*.jpg"))
    ]


def by_hand(data: Path, _: Path) -> Epochs:
    import numpy as np
    import torch

    from training_peers.augment import Augmentation

    paths, augmentation = _paths(data), Augmentation()

    def epoch() -> Iterator[Any]:
        order = random.sample(paths, len(paths))
        batches = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]
        with ThreadPoolExecutor(N_WORKERS) as pool:
            for batch in batches:
                images = list(pool.map(lambda pair: augmentation(pair[0].read_bytes()), batch))
                yield (
                    torch.from_numpy(np.stack(images)),
                    torch.tensor([label for _, label in batch]),
                )

    return epoch


class Files:
    """Map-style, for torch and Grain."""

    def __init__(self, data: Path) -> None:
        from training_peers.augment import Augmentation

        self._paths, self._augmentation = _paths(data), Augmentation()

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self._paths[index]
        return self._augmentation(path.read_bytes()), label


def _torch_loader(dataset: Any, **options: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(dataset, _BATCH, num_workers=N_WORKERS, persistent_workers=True, **options)


def by_torch(data: Path, _: Path) -> Epochs:
    loader = _torch_loader(Files(data), shuffle=True)
    return lambda: iter(loader)


def by_grain(data: Path, _: Path) -> Epochs:
    import grain

    def epoch() -> Iterator[Any]:
        import numpy as np
        import torch

        dataset = grain.MapDataset.source(Files(data)).seed(0).shuffle()  # type: ignore[arg-type]
        batches = dataset.to_iter_dataset(grain.ReadOptions(num_threads=0)).batch(_BATCH)
        options = grain.MultiprocessingOptions(num_workers=N_WORKERS)
        for images, labels in batches.mp_prefetch(options):
            yield torch.from_numpy(np.asarray(images)), torch.from_numpy(np.asarray(labels))

    return epoch


def write_huggingface(data: Path, folder: Path) -> None:
    import datasets

    folder.mkdir()
    rows = [{"image": path.read_bytes(), "label": label} for path, label in _paths(data)]
    datasets.Dataset.from_list(rows).save_to_disk(folder / "hf")


def by_huggingface(_: Path, folder: Path) -> Epochs:
    import datasets

    from training_peers.augment import Augmentation

    augmentation = Augmentation()

    def augmented(rows: dict[str, Any]) -> dict[str, Any]:
        return {"image": [augmentation(data) for data in rows["image"]], "label": rows["label"]}

    dataset = datasets.load_from_disk(folder / "hf").with_transform(augmented)
    loader = _torch_loader(dataset, shuffle=True)
    return lambda: iter(loader)


def write_webdataset(data: Path, folder: Path) -> None:
    import webdataset

    folder.mkdir()
    pairs = _paths(data)
    random.Random(0).shuffle(pairs)
    with webdataset.ShardWriter(f"{folder}/%04d.tar", maxcount=250, verbose=0) as writer:
        for number, (path, label) in enumerate(pairs):
            writer.write({"__key__": f"{number:06}", "jpg": path.read_bytes(), "cls": str(label)})


def by_webdataset(_: Path, folder: Path) -> Epochs:
    import webdataset

    from training_peers.augment import Augmentation

    urls = [str(path) for path in sorted(folder.glob("*.tar"))]
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=len(urls), nodesplitter=None)
        .shuffle(1000)
        .to_tuple("jpg", "cls")
        .map_tuple(Augmentation(), int)
        .batched(_BATCH)
    )
    loader = webdataset.WebLoader(
        dataset, batch_size=None, num_workers=N_WORKERS, persistent_workers=True
    )
    return lambda: iter(loader)


def _read(pair: tuple[Path, int]) -> dict[str, Any]:
    return {"image": pair[0].read_bytes(), "label": pair[1]}


def write_litdata(data: Path, folder: Path) -> None:
    import litdata

    litdata.optimize(
        _read,
        inputs=_paths(data),
        output_dir=str(folder),
        chunk_bytes="16MB",
        num_workers=1,
        verbose=False,
    )


def by_litdata(_: Path, folder: Path) -> Epochs:
    import litdata

    from training_peers.augment import Augmentation

    augmentation = Augmentation()

    class Augmented(litdata.StreamingDataset):
        def __getitem__(self, index: Any) -> Any:
            row = super().__getitem__(index)
            return augmentation(row["image"]), row["label"]

    dataset = Augmented(str(folder), shuffle=True)
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=_BATCH, num_workers=N_WORKERS, persistent_workers=True
    )
    return lambda: iter(loader)


def write_mosaicml(data: Path, folder: Path) -> None:
    use_stand_ins()
    from streaming import MDSWriter

    with MDSWriter(
        out=str(folder), columns={"image": "bytes", "label": "int"}, size_limit="16mb"
    ) as writer:
        for path, label in _paths(data):
            writer.write({"image": path.read_bytes(), "label": label})


def by_mosaicml(_: Path, folder: Path) -> Epochs:
    use_stand_ins()
    from streaming import StreamingDataset

    from training_peers.augment import Augmentation

    augmentation = Augmentation()

    class Augmented(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            row = super().__getitem__(index)
            return augmentation(row["image"]), row["label"]

    loader = _torch_loader(Augmented(local=str(folder), batch_size=_BATCH, shuffle=True))
    return lambda: iter(loader)


def write_records(data: Path, folder: Path) -> None:
    from data_stack.formats import convert

    convert(data, folder, verify=False, progress=False)


#: The column of the pictures in each source of ours.
_IMAGE_COLUMNS = {"records": "image", "folder": "image", "tars": "jpg"}


def by_ours(data: Path, folder: Path, *, source: str, kind: str) -> Epochs:
    import data_stack
    from training_peers.augment import augment

    dataset = data_stack.load(data if source == "folder" else folder)
    if source == "tars":
        dataset = dataset.select("jpg", "cls")
    augmented = dataset.map(augment, column=_IMAGE_COLUMNS[source], seed=0)
    loader = data_stack.Loader(augmented, _BATCH, shuffle=True, workers=N_WORKERS, worker_kind=kind)  # type: ignore[arg-type]
    loader.__enter__()
    made = loader.torch()
    return lambda: iter(made)


PROGRAMS = {
    "OpenCV in two threads": Program("limit", by_hand),
    "torch": Program("peer", by_torch, settings="map-style over the files, 2 persistent workers"),
    "Hugging Face": Program(
        "peer",
        by_huggingface,
        write_huggingface,
        settings="bytes in Arrow, with_transform, torch's loader",
    ),
    "webdataset": Program(
        "peer",
        by_webdataset,
        write_webdataset,
        settings="16 shards, shuffle(1000), batched in the workers",
    ),
    "Grain": Program("peer", by_grain, settings="the files, mp_prefetch of 2 workers, no threads"),
    "litdata": Program(
        "peer",
        by_litdata,
        write_litdata,
        settings="chunks of 16 MB, StreamingDataLoader, 2 workers",
    ),
    "MosaicML Streaming": Program(
        "peer", by_mosaicml, write_mosaicml, settings="shards of 16 MB, torch's loader, 2 workers"
    ),
    **{
        f"ours, records, {kind}": Program(
            "ours", partial(by_ours, source="records", kind=kind), write_records
        )
        for kind in ("threads", "processes", "auto")
    },
    **{
        f"ours, tars, {kind}": Program(
            "ours",
            partial(by_ours, source="tars", kind=kind),
            write_webdataset,
            settings="the 16 shards of webdataset, in a random order of all samples",
        )
        for kind in ("threads", "auto")
    },
    **{
        f"ours, folder, {kind}": Program("ours", partial(by_ours, source="folder", kind=kind))
        for kind in ("threads", "auto")
    },
}
