"""A ResNet-18 on a GPU: which share of the time it waits for batches in page-locked memory, ours
and torch's.

Run, on a machine with CUDA and torchvision: python benchmarks/gpu.py [--workers N] [--rounds N]
[--small] [--folder DIR]

Cases:
  jpegs    photographs of 500 × 375: decoded, random resized crop to 224, flip on the processor; the model computes in float32
  jpegs, tf32    the same with the GPU's faster products: then decoding may be the limit
  pixels, tf32   arrays of uint8[256, 256, 3], of which a random 224 × 224 is cut

Batches of 128, SGD. The limit takes as many steps with one batch that lies on the GPU; the share is
what an epoch takes longer.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from harness import Results, in_turn, parser_of
from training_peers import images
from training_peers.data import make_images

import data_stack
from data_stack.formats import convert

_BATCH = 128
CASES = ("jpegs", "jpegs, tf32", "pixels, tf32")


class Training:
    """A model on the GPU, and its steps."""

    def __init__(self) -> None:
        import torchvision

        torch.backends.cudnn.benchmark = True
        self._model = (
            torchvision.models.resnet18(num_classes=10).cuda().to(memory_format=torch.channels_last)
        )
        self._optimizer = torch.optim.SGD(self._model.parameters(), 0.01, momentum=0.9)

    def _step(self, pictures: torch.Tensor, labels: torch.Tensor) -> None:
        pixels = pictures.permute(0, 3, 1, 2).float().div_(255).sub_(0.5)
        self._optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(self._model(pixels), labels.long()).backward()
        self._optimizer.step()

    def seconds_a_picture(self, batches: Iterable[Any]) -> float:
        """Train on all of them but the first three, which warm up."""
        n_pictures, started = 0, 0.0
        for number, (pictures, labels) in enumerate(batches):
            if number == 3:
                torch.cuda.synchronize()
                n_pictures, started = 0, time.perf_counter()
            self._step(pictures.cuda(non_blocking=True), labels.cuda(non_blocking=True))
            n_pictures += len(labels)
        torch.cuda.synchronize()
        return (time.perf_counter() - started) / n_pictures


class Pixels:
    """Pictures that are decoded, map-style."""

    def __init__(self, folder: Path) -> None:
        self._records = data_stack.load(folder)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        sample = self._records[index]
        return cut(sample["image"]), sample["label"]


def cut(image: Any) -> Any:
    """A random 224 × 224."""
    top, left = random.randrange(33), random.randrange(33)
    return image[top : top + 224, left : left + 224]


def write_pixels(data: Path, folder: Path) -> None:
    """The photographs, resized."""
    import cv2

    shrunk = data_stack.load(data).map(lambda image: cv2.resize(image, (256, 256)), column="image")
    convert(shrunk, folder, verify=False, progress=False)


def batches_of_torch(dataset: Any, n_workers: int, epochs: int) -> Callable[[], Iterator[Any]]:
    """What torch's loader reads."""
    from torch.utils.data import DataLoader

    options: dict[str, Any] = {
        "num_workers": n_workers,
        "persistent_workers": True,
        "pin_memory": True,
        "prefetch_factor": 4,
    }
    loader = DataLoader(dataset, _BATCH, shuffle=True, drop_last=True, **options)
    return lambda: (batch for _ in range(epochs) for batch in loader)


def batches_of_ours(
    iterator: Any, n_workers: int, epochs: int, kind: Any
) -> Callable[[], Iterator[Any]]:
    """What our loader reads."""
    options: dict[str, Any] = {"workers": n_workers, "worker_kind": kind, "epochs": epochs}
    loader = data_stack.Loader(iterator, _BATCH, shuffle=True, drop_last=True, **options)
    loader.__enter__()  # keeps the workers
    made = loader.torch(device="cuda", pin_memory=True)
    return lambda: ((batch["image"], batch["label"]) for batch in made)


def measure(case: str, files: Any, folder: Path, arguments: Any, results: Results) -> None:
    """All ways of a case in turn."""
    from training_peers.augment import augment

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "tf32" in case
    n_workers, epochs = arguments.workers, arguments.epochs
    iterator = data_stack.load(folder).select("image", "label")
    mapped = iterator.map(
        augment if "jpegs" in case else cut,
        column="image",
        **({"seed": 0} if "jpegs" in case else {}),
    )
    dataset = files if "jpegs" in case else Pixels(folder)
    training, batch = (
        Training(),
        [each.cuda() for each in next(batches_of_torch(dataset, n_workers, 1)())],
    )
    limit, kinds = "one batch on the GPU", ("threads", "processes", "auto")
    sources: dict[str, Callable[[], Iterable[Any]]] = {
        **{f"ours, {kind}": batches_of_ours(mapped, n_workers, epochs, kind) for kind in kinds},
        "torch": batches_of_torch(dataset, n_workers, epochs),
        limit: lambda: [batch] * (len(iterator) // _BATCH * epochs),
    }
    results.kinds.update({"torch": "peer", limit: "limit"})
    ways = {
        way: lambda make=make: training.seconds_a_picture(make()) for way, make in sources.items()
    }
    for way, seconds in in_turn(case, ways, arguments.rounds, results).items():
        results.keep(case, way, seconds)
    results.print(case, limit)
    best = results.median(case, limit) or 0.0
    for way in sources:
        if seconds_each := results.median(case, way):
            share = max(0.0, 1 - best / seconds_each)
            results.judge(
                f"{case}: share of time waiting", way, "", f"{share:.2%}", "<= 1 %", share <= 0.01
            )


def main() -> None:
    """Measure, and print the shares."""
    parser = parser_of(__doc__, CASES, rounds=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--epochs", type=int, default=4, help="that one round trains")
    arguments, results = parser.parse_args(), Results()
    if not torch.cuda.is_available():
        print("there is no CUDA here")
        return
    print(
        torch.cuda.get_device_name(),
        os.cpu_count(),
        "cores,",
        arguments.workers,
        "workers",
        flush=True,
    )
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        data, folders = (
            Path(name, "images"),
            {"jpegs": Path(name, "records"), "pixels": Path(name, "pixels")},
        )
        make_images(data, arguments.small)
        images.write_records(data, folders["jpegs"])
        if "pixels, tf32" in arguments.only:
            write_pixels(data, folders["pixels"])
        for case in arguments.only:
            measure(case, images.Files(data), folders[case.split(",")[0]], arguments, results)
    results.save(arguments.json)


if __name__ == "__main__":
    main()
