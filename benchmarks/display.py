"""What a notebook shows of digits, MNIST and a Parquet of 60,000 PNGs: milliseconds and kilobytes
of HTML.

    python benchmarks/display.py

*first* is in a fresh process after the dataset is loaded; *again* is the median of further calls
there. MNIST has made-up pictures in the published files' layout. Targets: at most 150 ms and 200
kB.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import Results, answer_of, in_turn, machine, parser_of
from mnist import write_images

from data_stack.formats.parquet import Field, ParquetWriter, PngCodec, Schema
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.mnist.preprocessor import MNISTPreprocessor

MAX_SECONDS, MAX_BYTES = 0.15, 200_000

#: Each makes `shown`.
SETUPS = {
    "digits, both splits": "import data_stack\nshown = data_stack.load('digits', storage=FOLDER + '/digits')",
    "digits, train": "import data_stack\nshown = data_stack.load('digits', 'train', storage=FOLDER + '/digits')",
    "MNIST": (
        "from data_stack.mnist.iterator import MNISTIterator\nfrom data_stack.io.storage_connectors import FileStorageConnector\n"
        "store = FileStorageConnector(FOLDER)\n"
        "shown = MNISTIterator(store.get_resource('made/samples.pt'), store.get_resource('made/targets.pt'))"
    ),
    "Parquet of PNGs": "from data_stack.formats.parquet import ParquetDataset\nshown = ParquetDataset(FOLDER + '/pngs')",
}
MEASURED = """
import json, statistics, time
times = []
for _ in range(6):
    started = time.perf_counter()
    text = shown._repr_html_()
    times.append(time.perf_counter() - started)
print(json.dumps([times[0], statistics.median(times[1:]), len(text.encode())]))
"""


def write_pngs(folder: Path, n_images: int) -> None:
    """Pictures of 28 × 28 with a label, in row groups of 1,000."""
    random = np.random.default_rng(0)
    pictures = random.integers(0, 256, (100, 28, 28), np.uint8) * (
        random.random((100, 28, 28)) < 0.2
    ).astype(np.uint8)
    fields = [
        Field("label", "int64"),
        Field("image", "uint8", (28, 28), PngCodec()),
    ]
    with ParquetWriter(folder, Schema("Pngs", fields), row_group_rows=1000) as writer:
        for number in range(n_images):
            writer.append({"label": number % 10, "image": pictures[number % 100]})


def main() -> None:
    """Measure in turn."""
    given, results = parser_of(__doc__, list(SETUPS)).parse_args(), Results()
    n_images = 6_000 if given.small else 60_000
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        root = Path(folder)
        write_images(root / "raw", n_images)
        MNISTPreprocessor(FileStorageConnector(root)).preprocess(
            "raw/samples.gz", "raw/labels.gz", "made/samples.pt", "made/targets.pt"
        )
        write_pngs(root / "pngs", n_images)
        programs = {name: f"FOLDER = {folder!r}\n{SETUPS[name]}{MEASURED}" for name in given.only}
        ways = {
            name: lambda code=code: answer_of([sys.executable, "-c", code])
            for name, code in programs.items()
        }  # type: ignore[misc]
        answers = in_turn("display", ways, given.rounds, results)
    for number, (case, unit) in enumerate({"first": "ms", "again": "ms", "HTML": "B"}.items()):
        for name, kept in answers.items():
            results.kinds[name] = "ours"
            results.keep(case, name, [each[number] for each in kept], unit)
        results.print(case)
    for name in answers:
        results.at_most(f"{name}, first", "first", name, MAX_SECONDS)
        results.at_most(f"{name}, weight", "HTML", name, MAX_BYTES)
    results.save(given.json)


if __name__ == "__main__":
    main()
