"""Makes up the samples of a new package, until its author adds a source."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from typing import Any

#: The number of samples of each split.
_SAMPLES_PER_SPLIT = 12

#: The names of the classes of images, each brighter than the one before.
_CLASSES_OF_IMAGES = ("dark", "grey", "bright")

#: The names of the classes of texts, each with the form of its texts.
_CLASSES_OF_TEXTS = (("question", "Is {} more than {}?"), ("statement", "{} is not {}."))


def make_up_samples(kind: str, splits: Sequence[str]) -> tuple[str, bytes]:
    """Make up a small file with different samples in each split.

    The file is always the same.

    Args:
        kind: ``"images"``, ``"table"`` or ``"text"``.
        splits: the names of the splits.

    Returns:
        The name of the file, and its bytes.

    Raises:
        MissingDependencyError: a package for such files is missing; the message names the extra.
    """
    import numpy as np

    random = np.random.default_rng(7)
    if kind == "images":
        return "images.zip", _make_up_images(splits, random)
    if kind == "text":
        return "texts.jsonl", _make_up_texts(splits, random)
    return "table.csv", _make_up_table(splits, random)


def _make_up_images(splits: Sequence[str], random: Any) -> bytes:
    """Return a zip archive with a folder for each split and class: ``train/dark/0.png``."""
    import numpy as np

    from data_stack.codecs import codec_of

    png = codec_of("png")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for split in splits:
            for number in range(_SAMPLES_PER_SPLIT):
                label = number % len(_CLASSES_OF_IMAGES)
                darkest = 80 * label
                image = random.integers(darkest, darkest + 80, (32, 32, 3), dtype=np.uint8)
                path = f"{split}/{_CLASSES_OF_IMAGES[label]}/{number}.png"
                # A ZipInfo has a constant date, so the bytes of the archive are always the same.
                archive.writestr(zipfile.ZipInfo(path), png.encode(image))
    return file.getvalue()


def _make_up_texts(splits: Sequence[str], random: Any) -> bytes:
    """Return lines of JSON with the fields split, class, text."""
    lines = []
    for split in splits:
        for number in range(_SAMPLES_PER_SPLIT):
            class_name, form = _CLASSES_OF_TEXTS[number % len(_CLASSES_OF_TEXTS)]
            text = form.format(*random.integers(1000, size=2))
            lines.append(json.dumps({"split": split, "class": class_name, "text": text}))
    return _join_lines(lines)


def _make_up_table(splits: Sequence[str], random: Any) -> bytes:
    """Return a CSV file: three classes, whose measurements are larger from class to class."""
    lines = ["split,class,length,width,weight"]
    for split in splits:
        for number in range(_SAMPLES_PER_SPLIT):
            label = number % 3
            measurements = random.normal(10 * label + 10, 2, 3)
            cells = [f"{value:.2f}" for value in measurements]
            lines.append(f"{split},{label},{','.join(cells)}")
    return _join_lines(lines)


def _join_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
