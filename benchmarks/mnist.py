"""Preparing 60,000 MNIST-like images: seconds and peak memory, ours beside the original's in the
same run.

    python benchmarks/mnist.py [--original FOLDER]

FOLDER holds an unpacked ``datastack-0.0.13`` wheel. It needs torchvision for one download helper
and one division; a stand-in for these two is written, so that no GPU build of torchvision is
needed. Targets: at most 0.7 × its time, and a peak of at most 250 MiB above the imports.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from harness import HERE, MIB, Results, answer_of, in_turn, machine, parser_of

TORCHVISION = {
    "__init__.py": "",
    "datasets/__init__.py": "",
    "datasets/utils.py": "def download_url(*args, **kwargs): raise NotImplementedError\n",
    "transforms.py": (
        "import torch\n"
        "class ToTensor:\n"
        "    def __call__(self, image):  # as torchvision 0.29 treats a (height, width) array of uint8\n"
        "        return torch.from_numpy(image[:, :, None].transpose((2, 0, 1))).contiguous().to(torch.float32).div(255)\n"
    ),
}
MEASURED = """
import time
import torch
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.mnist.preprocessor import MNISTPreprocessor
def peak_mib():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
connector, before, started = FileStorageConnector(STORE), peak_mib(), time.perf_counter()
MNISTPreprocessor(connector).preprocess("raw/samples.gz", "raw/labels.gz", "made/samples.pt", "made/targets.pt")
print([time.perf_counter() - started, peak_mib() - before])
"""


def write_images(folder: Path, n_images: int) -> None:
    """Blobs of ink on paper, about as compressible as MNIST (14 % ink), in gzipped IDX files."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    y, x = np.mgrid[:28, :28]
    header = np.array([2051, n_images, 28, 28], ">i4").tobytes()
    with gzip.open(folder / "samples.gz", "wb", 6) as file:
        file.write(header)
        for start in range(0, n_images, 1000):
            n_block = min(1000, n_images - start)
            centres_x, centres_y = (
                random.uniform(9, 19, (n_block, 1, 1, 6)),
                random.uniform(6, 22, (n_block, 1, 1, 6)),
            )
            distance = (
                (x[None, :, :, None] - centres_x) ** 2 + (y[None, :, :, None] - centres_y) ** 2
            ).min(-1)
            ink = np.clip(300 - 40 * distance, 0, 255)
            noisy = np.clip(ink - random.integers(0, 60, ink.shape), 1, 255)
            file.write(np.where(ink > 0, noisy, 0).astype(np.uint8).tobytes())
    with gzip.open(folder / "labels.gz", "wb") as file:
        file.write(
            np.array([2049, n_images], ">i4").tobytes()
            + random.integers(0, 10, n_images, dtype=np.uint8).tobytes()
        )


def measure(package_folder: Path, store: Path, *also_importable: Path) -> tuple[float, float]:
    """Seconds, and bytes of peak memory above that after the imports, of one preparation in a
    process of its own.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (package_folder, *also_importable))),
    }
    program = MEASURED.replace("STORE", repr(str(store)))
    seconds, mib = answer_of([sys.executable, "-P", "-c", program], environment)
    return seconds, mib * MIB


def main() -> None:
    """Prepare in turn."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument(
        "--original", type=Path, help="folder with the original's package data_stack"
    )
    given, results = parser.parse_args(), Results()
    n_images = 3000 if given.small else 60_000
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        root = Path(folder)
        for name, text in TORCHVISION.items():
            path = root / "standin" / "torchvision" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        packages: dict[str, tuple[Path, ...]] = {"ours": (HERE.parent,)}
        if given.original is not None:
            packages["the original"] = (given.original.resolve(), root / "standin")
        for name in packages:
            write_images(root / name / "raw", n_images)
        ways = {
            name: lambda name=name, paths=paths: measure(paths[0], root / name, *paths[1:])  # type: ignore[misc]
            for name, paths in packages.items()
        }
        answers = in_turn("mnist", ways, given.rounds, results)
        for name, kept in answers.items():
            results.keep(
                f"preparing {n_images} images", name, [seconds for seconds, _ in kept], "s"
            )
            results.keep(
                "peak memory above the imports", name, [max(n_bytes for _, n_bytes in kept)], "MiB"
            )
        for case in (f"preparing {n_images} images", "peak memory above the imports"):
            results.print(case, "ours")
        results.at_least(
            "preparing", f"preparing {n_images} images", "ours", "the original", 1 / 0.7
        )
        results.at_most("peak memory", "peak memory above the imports", "ours", 250 * MIB)
        if len(packages) == 2 and not torch.equal(
            *(torch.load(root / name / "made" / "samples.pt") for name in packages)
        ):
            raise SystemExit("the samples differ")
    results.save(given.json)


if __name__ == "__main__":
    main()
