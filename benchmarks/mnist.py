"""Preparing 60,000 MNIST-like images: seconds and peak memory, ours beside the original's in the same run.

    python benchmarks/mnist.py [--original FOLDER] [--images 60000] [--repeats 3]

FOLDER holds an unpacked ``datastack-0.0.13`` wheel. It needs torchvision for one download helper and one division; a
stand-in for these two is written, so that no GPU build of torchvision is needed. Targets: at most 0.7 × its time, and a
peak of at most 250 MiB above the imports.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

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
import sys, time
import torch
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.mnist.preprocessor import MNISTPreprocessor
def peak_mib():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
connector, before, started = FileStorageConnector(sys.argv[1]), peak_mib(), time.perf_counter()
MNISTPreprocessor(connector).preprocess("raw/samples.gz", "raw/labels.gz", "made/samples.pt", "made/targets.pt")
print(time.perf_counter() - started, peak_mib() - before)
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
            centres_x, centres_y = random.uniform(9, 19, (n_block, 1, 1, 6)), random.uniform(6, 22, (n_block, 1, 1, 6))
            distance = ((x[None, :, :, None] - centres_x) ** 2 + (y[None, :, :, None] - centres_y) ** 2).min(-1)
            ink = np.clip(300 - 40 * distance, 0, 255)
            noisy = np.clip(ink - random.integers(0, 60, ink.shape), 1, 255)
            file.write(np.where(ink > 0, noisy, 0).astype(np.uint8).tobytes())
    with gzip.open(folder / "labels.gz", "wb") as file:
        file.write(np.array([2049, n_images], ">i4").tobytes() + random.integers(0, 10, n_images, dtype=np.uint8).tobytes())


def measure(package_folder: Path, store: Path, *also_importable: Path) -> tuple[float, float]:
    """Seconds, and MiB of peak memory above that after the imports, of one preparation in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (package_folder, *also_importable)))}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(store)], env=environment, capture_output=True, text=True, check=True, cwd=store
    )
    seconds, mib = map(float, done.stdout.split())
    return seconds, mib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", type=Path, help="folder with the original's package data_stack")
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in TORCHVISION.items():
            path = root / "standin" / "torchvision" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        packages: dict[str, tuple[Path, ...]] = {"data_stack": (Path(__file__).resolve().parent.parent,)}
        if arguments.original is not None:
            packages["original"] = (arguments.original.resolve(), root / "standin")
        for name in packages:
            write_images(root / name / "raw", arguments.images)
        size = sum(path.stat().st_size for path in (root / "data_stack" / "raw").iterdir())
        print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        print(f"{arguments.images} images of 28 × 28, {size / 1e6:.1f} MB gzipped; best and median of {arguments.repeats}")
        best: dict[str, float] = {}
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in packages}
        for _ in range(arguments.repeats):  # alternately, so that a busy machine is busy for both
            for name, paths in packages.items():
                runs[name].append(measure(paths[0], root / name, *paths[1:]))
        for name, figures in runs.items():
            seconds, mib = zip(*figures, strict=True)
            best[name] = min(seconds)
            print(
                f"{name:12} {min(seconds):6.2f} s  {statistics.median(seconds):6.2f} s  "
                f"peak {max(mib):6.0f} MiB above the imports"
            )
        if "original" in best:
            print(f"ratio of the best times: {best['data_stack'] / best['original']:.2f} (target: at most 0.70)")
            made = [(root / name / "made" / "samples.pt") for name in packages]
            same = torch.equal(*(torch.load(path) for path in made))
            print(f"samples are {'the same to the bit' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
