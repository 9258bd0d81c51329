"""Writes a page for each kind of value that notebooks show: the pictures of
docs/reference/shown_values.md.

    python tools/display_examples.py FOLDER

The values are made up, the same each time. ``examples()`` gives the iterators by the names of the
pages.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from data_stack.dataset.iterator import (
    DatasetIterator,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta

_N = 8
_PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"/><meta name="color-scheme" content="light dark"/>
<style>body {{font-family: system-ui, sans-serif; margin: 16px}}</style><title>{name}</title></head><body>{shown}</body></html>
"""


class _Broken(DatasetIterator):
    """Samples of which some cannot be read."""

    def __init__(self, pictures: Any) -> None:
        self._pictures = pictures

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> Any:
        if index % 3 == 1:
            raise OSError(f"block {index} of images.bag is damaged")
        return self._pictures[index], [
            "<script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "a" * 10_000,
        ][index % 3]


def examples() -> dict[str, Any]:
    """An iterator for each kind of value, by its name."""
    random = np.random.default_rng(0)
    photos, masks, boxes = _scenes(random)
    labels = ["circle", "square"] * (_N // 2)
    hearts = [
        np.sin(np.arange(400) / 9 + phase)[:, None] * [1, 0.6, 0.3]
        + random.normal(0, 0.05, (400, 3))
        for phase in range(_N)
    ]
    heat = [
        np.abs(
            np.fft.rfft(random.normal(size=(60, 80)) + np.sin(np.arange(80) * each / 8), axis=1)
        ).T
        - 9
        for each in range(_N)
    ]
    texts = [
        f"{word.title()} is a word of {len(word)} letters. " * (3 + 2 * number)
        for number, word in enumerate(_WORDS)
    ]
    rows = {
        "id": np.arange(_N),
        "price": random.normal(100, 20, _N).round(2),
        "town": _WORDS,
        "sold": random.random(_N) > 0.5,
        "note": [None, "", *_WORDS[2:]],
    }
    return {
        "images": _tuples("images", photos, labels),
        "grey_16_bit": _tuples("depth", (photos[..., 0] * 200.0).astype(np.uint16), labels),
        "boxes_and_masks": _dicts(
            "scenes",
            {"image": photos, "boxes": boxes, "mask": masks, "label": labels},
            boxes="boxes",
            mask="mask",
        ),
        "masks": _dicts("masks", {"mask": masks, "label": labels}, sample="mask", mask="mask"),
        "series": _tuples("hearts", hearts, labels),
        "arrays": _tuples("spectra", heat, labels),
        "text": _tuples("texts", texts, labels),
        "table": _dicts("sales", rows, sample="town", target="sold"),
        "failures": _Broken(photos),
    }


_WORDS = ["river", "mountain", "sea", "forest", "meadow", "desert", "island", "valley"]


def _scenes(random: np.random.Generator) -> tuple[Any, Any, Any]:
    """Pictures of a circle and a square, their masks, and their boxes."""
    y, x = np.mgrid[:90, :120]
    photos, masks, boxes = [], [], []
    for _ in range(_N):
        cx, cy, left, top = (
            random.integers(20, 60),
            random.integers(25, 65),
            random.integers(66, 90),
            random.integers(8, 50),
        )
        circle, square = (
            (x - cx) ** 2 + (y - cy) ** 2 < 324,
            (abs(x - left - 14) < 14) & (abs(y - top - 14) < 14),
        )
        ground = np.stack([80 + y, 120 + x // 2, 200 - y], axis=2)
        colours = random.integers(60, 250, (2, 3))
        photo = np.where(
            circle[..., None], colours[0], np.where(square[..., None], colours[1], ground)
        )
        photos.append((photo + random.normal(0, 6, photo.shape)).clip(0, 255).astype(np.uint8))
        masks.append(np.where(circle, 1, np.where(square, 2, 0)).astype(np.uint8))
        boxes.append([[cx - 18, cy - 18, cx + 18, cy + 18], [left, top, left + 28, top + 28]])
    return np.array(photos), np.array(masks), np.array(boxes)


def _tuples(name: str, samples: Any, labels: Any) -> InformedDatasetIterator:
    meta = DatasetMeta(
        IteratorMeta(), f"{name}/train", name, "train", column_names=("sample", "label")
    )
    return InformedDatasetIterator(SequenceDatasetIterator([samples, labels]), meta)


def _dicts(
    name: str, columns: dict[str, Any], sample: str = "image", target: str = "label", **kinds: str
) -> InformedDatasetIterator:
    meta = DatasetMeta(
        IteratorMeta(sample, target, "tag"),
        f"{name}/train",
        name,
        "train",
        column_kinds=tuple(kinds.items()),
    )
    return InformedDatasetIterator(
        SequenceDatasetIterator(list(columns.values())).as_dict(*columns), meta
    )


def write_examples(folder: Path) -> list[Path]:
    """Write ``NAME.html`` for each example.

    Args:
        folder: is made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, iterator in examples().items():
        path = folder / f"{name}.html"
        path.write_text(_PAGE.format(name=name, shown=iterator._repr_html_()), encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    for written in write_examples(Path(sys.argv[1])):
        print(written)
