"""Makes up raw files for new plugins."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs import codec_of
from data_stack.formats.hdf5 import write_hdf5
from data_stack.formats.numpy_arrays import write_npz

_SHAPES = ("circle", "square", "stripes")
_N_OF_CLASS = 4
_RATE = 8000


def make_up(kind: str, splits: Sequence[str]) -> tuple[str, bytes]:
    """Make up a small file with different samples of ``kind`` in each of ``splits``; returns its name and bytes, always the same.

    Raises:
        MissingDependencyError: a package for such files is missing; the message names the extra.
    """
    random = np.random.default_rng(7)
    if kind == "images":
        png, files = codec_of("png"), {}
        for split in splits:
            for number, (image, label) in enumerate(zip(*_draw(random), strict=True)):
                files[f"{split}/{_SHAPES[label]}/{number}.png"] = png.encode(image)
        return "images.zip", _zip(files)
    if kind == "audio":
        return "sounds.zip", _zip(_sounds(splits, random))
    if kind == "text":
        rows = [
            {"split": split, "class": name, "text": text.format(random.integers(1000), random.integers(1000))}
            for split in splits
            for name, text in [("question", "Is {} more than {}?"), ("statement", "{} is not {}.")] * _N_OF_CLASS
        ]
        return "texts.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()
    if kind == "table":
        measured = [
            f"{split},{label}," + ",".join(f"{value:.2f}" for value in random.normal(10 * label + 10, 2, 3))
            for split in splits
            for label in [0, 1, 2] * _N_OF_CLASS
        ]
        return "table.csv", ("\n".join(["split,class,length,width,weight", *measured]) + "\n").encode()
    separator, write, ending = ("_", write_npz, "npz") if kind == "records" else ("/", write_hdf5, "h5")
    drawn = {split: _draw(random) for split in splits}
    file = io.BytesIO()
    write(file, {f"{split}{separator}{name}": drawn[split][i] for split in splits for i, name in enumerate(("images", "labels"))})
    return f"images.{ending}", file.getvalue()


def _draw(random: np.random.Generator) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Images of one split, uint8 ``(n, 32, 32, 3)``, and their classes."""
    (rows, columns), images = np.mgrid[:32, :32], []
    labels = np.tile(np.arange(len(_SHAPES)), _N_OF_CLASS)
    for label in labels:
        row, column = random.integers(10, 22, 2)
        size, (paper, ink) = random.integers(5, 10), random.integers(0, 256, (2, 3), dtype=np.uint8)
        distances = np.abs(rows - row), np.abs(columns - column)
        drawn = np.hypot(*distances) < size, np.maximum(*distances) < size, (rows + columns) % size < size // 2
        images.append(np.where(drawn[label][..., None], ink, paper))
    return np.stack(images), labels


def _sounds(splits: Sequence[str], random: np.random.Generator) -> dict[str, bytes]:
    """WAV files of tones, a tenth of a second each."""
    times, sounds = np.arange(_RATE // 10) / _RATE, {}
    for split in splits:
        for name, lowest in (("low", 200), ("high", 1500)):
            for i in range(_N_OF_CLASS):
                tone = np.sin(2 * np.pi * times * (lowest + random.integers(500)))
                sounds[f"{split}/{name}/{i}.wav"] = codec_of("wav").encode(((tone * 20_000).astype(np.int16), _RATE))
    return sounds


def _zip(files: Mapping[str, bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # has a constant time
    return memory.getvalue()
