"""Contact sheets: which samples are drawn, how pictures of any layout and range look, and lines of
text for the rest.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from layer_laws import Samples
from PIL import Image

from data_stack.dataset.iterator import InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.meta import MetaFactory
from data_stack.exception import ConfigError
from data_stack.show import contact_sheet

GREEN = np.zeros((6, 5, 3), np.uint8) + np.array([0, 255, 0], np.uint8)


class Watched(Samples):
    """Columns are not samples."""

    def read_column(self, key: Any, indices: Any = None) -> Any:
        return SequenceDatasetIterator(list(zip(*self.samples, strict=True))).read_column(
            key, indices
        )


def colors_of(sheet: Image.Image) -> set[tuple[int, ...]]:
    return set(map(tuple, np.asarray(sheet.convert("RGB")).reshape(-1, 3).tolist()))


def test_classes_take_turns_and_large_ones_fill_the_rest() -> None:
    targets = [0] * 900 + [1] * 50 + [2] * 3
    watched = Watched([(np.zeros((4, 4), np.uint8), target) for target in targets])

    contact_sheet(watched, n_samples=30)

    assert Counter(targets[index] for index in watched.read[1:]) == {0: 14, 1: 13, 2: 3}


@pytest.mark.parametrize(
    "items",
    [
        [
            ("a text", "yes"),
            ("another, which is rather longer than what a line has room for" * 3, "no"),
        ],
        [(np.zeros((8, 8)), 1), ("no picture", 2)],
        [(None, None), (None, None)],
        [({"age": 3, "name": "Zoë"}, 0), ({"age": 4, "name": "李"}, 1)],
        [{"vector": [[1], [1, 2]], "label": "\U000e0001\ud800\x00"}],
        [1, 2],
        [(b"\xff\x00", 1.5), (b"", float("nan"))],
        [],
    ],
)
def test_samples_of_any_kind_can_be_drawn(items: list[Any]) -> None:
    sheet = contact_sheet(Samples(items), title="\u200b \u9f98")

    assert min(map(min, colors_of(sheet))) < 128


@pytest.mark.parametrize(
    "others", [{"id": 7, "caption": "text"}, {"boxes": np.ones((2, 4)), "vector": np.ones(30)}, {}]
)
def test_the_picture_of_dict_samples_is_found_wherever_it_stands(others: dict[str, Any]) -> None:
    samples = Samples([{**others, "frame": GREEN, "mask": np.ones((6, 5), bool), "label": 3}] * 2)
    meta = MetaFactory.get_dataset_meta(
        iterator_meta=MetaFactory.get_iterator_meta("mask", "label", "label")
    )

    found, by_meta = contact_sheet(samples), contact_sheet(InformedDatasetIterator(samples, meta))

    assert (0, 255, 0) in colors_of(found) - colors_of(by_meta)
    assert contact_sheet(samples, columns=["mask", "label"], title="").tobytes() != found.tobytes()


@pytest.mark.parametrize("arguments", [{"n_samples": 0}, {"seed": -1}])
def test_numbers_without_meaning_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(arguments))} must be at least"):
        contact_sheet(SequenceDatasetIterator([[1]]), **arguments)  # type: ignore[arg-type]  # one int by name
