"""Makes up raw files for new plugins."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence

import numpy as np

from data_stack.codecs import codec_of

_CLASSES = ("dark", "grey", "bright")
_N_OF_CLASS = 4


def make_up(kind: str, splits: Sequence[str]) -> tuple[str, bytes]:
    """Make up a small file with different samples of ``kind`` in each of ``splits``; returns its name and bytes, always the same.

    Raises:
        MissingDependencyError: a package for such files is missing; the message names the extra.
    """
    random = np.random.default_rng(7)
    if kind == "images":
        return "images.zip", _images(splits, random)
    if kind == "text":
        rows = [
            json.dumps({"split": split, "class": name, "text": text.format(random.integers(1000), random.integers(1000))})
            for split in splits
            for name, text in [("question", "Is {} more than {}?"), ("statement", "{} is not {}.")] * _N_OF_CLASS
        ]
        return "texts.jsonl", "\n".join([*rows, ""]).encode()
    rows = [
        f"{split},{label}," + ",".join(f"{value:.2f}" for value in random.normal(10 * label + 10, 2, 3))
        for split in splits
        for label in [0, 1, 2] * _N_OF_CLASS
    ]
    return "table.csv", "\n".join(["split,class,length,width,weight", *rows, ""]).encode()


def _images(splits: Sequence[str], random: np.random.Generator) -> bytes:
    """A ZIP file of PNG files of 32 × 32 pixels, in a folder for each split and class."""
    png, file = codec_of("png"), io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for split in splits:
            for number in range(len(_CLASSES) * _N_OF_CLASS):
                label = number % len(_CLASSES)
                name = zipfile.ZipInfo(f"{split}/{_CLASSES[label]}/{number}.png")  # has a constant time
                archive.writestr(name, png.encode(random.integers(80 * label, 80 * label + 80, (32, 32, 3), dtype=np.uint8)))
    return file.getvalue()
