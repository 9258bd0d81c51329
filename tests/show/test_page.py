"""What notebooks show of iterators, splits, loaders, recipes and descriptions: complete, small, and
safe from hostile values.
"""

from __future__ import annotations

import base64
import io
import pickle
import re
import time
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import soundfile
from layer_laws import Samples
from PIL import Image

import data_stack
from data_stack.dataset.iterator import InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.loader import Loader
from data_stack.show.splits import Splits

PHOTOS = np.random.default_rng(0).integers(0, 256, (20, 40, 60, 3), np.uint8)
META = DatasetMeta(
    IteratorMeta(),
    "photos/train",
    "photos",
    "train",
    class_names=("cat", "dog"),
    column_names=("photo", "label"),
)
EVIL = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202egnp.exe\x1b[2J"]


class Client(Samples):
    """An iterator of somebody else's; a sample that is a function is called."""

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        return sample() if callable(sample) else sample


def photos(**changes: Any) -> InformedDatasetIterator:
    return InformedDatasetIterator(
        SequenceDatasetIterator([PHOTOS, np.arange(20) % 2]), replace(META, **changes)
    )


def shown(it: Any) -> str:
    """The HTML, which is well-formed, small, and has nothing that a browser would run or fetch."""
    html: str = it._repr_html_()
    root = ElementTree.fromstring(html.replace("<style scoped>", "<style>"))
    for element in root.iter():
        assert element.tag in {
            "div", "style", "h2", "h3", "h4", "p", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "img",
            "b", "br", "audio", "span", "details", "summary", "pre",
        }  # fmt: skip
        assert not any(name.startswith("on") for name in element.attrib)
        assert element.get("src", "data:").startswith("data:")
    assert len(html.encode()) <= 200_000
    assert not re.search(r"https?://|@import|url\(", html.partition("</style>")[0])
    return html


def pictures_in(html: str) -> list[np.ndarray[Any, Any]]:
    pictures = []
    for encoded in re.findall(r"data:image/(?:png|jpeg);base64,([^\"]+)", html):
        file = io.BytesIO(base64.b64decode(encoded))
        pictures.append(np.asarray(Image.open(file)))
    return pictures


def test_a_page_has_name_length_samples_columns_classes_stack() -> None:
    html = shown(photos().shuffle(seed=3).take(15))

    for part in (
        "photos, train",
        "15 samples",
        "<b>cat</b>",
        "40 × 60 × 3",
        "uint8",
        "2 classes",
        "view",
        "shuffled",
        'class="bar"',
    ):
        assert part in html
    assert len(pictures_in(html)) == 8
    evil = photos(
        dataset_name=EVIL[0],
        dataset_tag=EVIL[1],
        class_names=EVIL[:2],
        column_names=("photo", EVIL[1]),
    )
    assert "&lt;script&gt;" in shown(evil)


def test_the_text_has_name_length_stack_and_reads_nothing() -> None:
    client = Client([1, 2])

    text = str(InformedDatasetIterator(client, META).take(1))

    for part in (
        "photos, train\n====",
        "1 sample",
        "view(indices=range(0, 1))",
        "Client  2 samples",
    ):
        assert part in text
    assert client.read == []
    assert (
        repr(photos())
        == "<InformedDatasetIterator: 20 samples of 'photos/train', columns photo, label>"
    )


def test_only_eight_samples_of_a_client_iterator_are_read() -> None:
    client = Client([(number, "a") for number in range(1000)])

    html = shown(client)

    assert client.read == [0, 142, 285, 428, 570, 713, 856, 999]
    assert "#999" in html


def test_targets_are_counted_where_that_reads_no_samples() -> None:
    columns = SequenceDatasetIterator([PHOTOS, ["a"] * 15 + ["b"] * 5])

    assert "75.0 %" in shown(columns)
    assert "75.0 %" in shown(columns.shuffle(1).take(20))
    assert "2 classes" not in shown(columns.map(lambda sample: sample))
    assert "2 classes" in shown(photos().map(lambda sample: sample))  # by the meta
    assert "classes" not in shown(
        SequenceDatasetIterator([range(300_000), np.zeros(300_000, np.int64)])
    )


@pytest.mark.parametrize(
    "sample",
    [
        *EVIL,
        "a" * 10_000_000,
        b"\x00" * 1000,
        np.zeros((1, 1_000_000), np.uint8),
        np.full((30, 30), np.nan),
        np.array([np.inf, -np.inf, np.nan] * 20),
        np.array([{"a": EVIL[0]}, None], object),
        np.zeros((0, 5)),
        {EVIL[0]: EVIL[1]},
        (),
        None,
        10**5000,
        [[1, 2], [3]],
        (np.zeros(5), 8000),
        {"array": EVIL[0], "sampling_rate": 16000},
    ],
    ids=lambda sample: type(sample).__name__,
)
def test_hostile_values_are_escaped_and_shortened(sample: Any) -> None:
    for samples in ([sample] * 9, [(sample, sample)] * 9, [{"x": sample, EVIL[0]: 1}] * 9):
        html = shown(Client(samples))

        assert str(Client(samples))
        assert "<script>" not in html
        assert "\x1b" not in html


def test_what_cannot_be_read_is_said_in_its_place() -> None:
    def fail() -> Any:
        raise OSError("block 7 is <damaged>")

    html = shown(Client([(PHOTOS[0], 1), fail, (PHOTOS[2], 0)]))

    assert "OSError: block 7 is &lt;damaged&gt;" in html
    assert len(pictures_in(html)) == 2
    assert "OSError" in shown(Client([fail] * 3))


@pytest.mark.parametrize("name", ["__len__", "__getitem__", "dataset_meta"])
def test_a_broken_iterator_still_shows(name: str) -> None:
    def fail(*arguments: Any) -> Any:
        raise RuntimeError("it is closed")

    broken: Any = type(
        "Broken", (Client,), {name: fail if name.startswith("__") else property(fail)}
    )

    assert "Broken" in shown(broken([1, 2]))
    assert "Broken" in str(broken([1, 2]))
    assert (repr(broken([1, 2])) == "<Broken: unknown length>") == (name == "__len__")


def test_slow_samples_are_not_all_waited_for() -> None:
    reads: list[int] = []

    def read_slowly() -> int:
        reads.append(1)
        time.sleep(0.6)
        return 7

    html = shown(Client([read_slowly] * 100))

    assert len(reads) < 8
    assert html.count("#") < 8


def test_sound_plays_and_a_long_one_is_cut() -> None:
    meta = DatasetMeta(IteratorMeta("sound", "word", "-"), column_kinds=(("sound", "audio 16000"),))
    tone = np.sin(np.arange(16_000 * 30) / 5) * 20_000
    sounds = SequenceDatasetIterator([[tone.astype(np.int16)] * 3, ["a", "b", "c"]]).as_dict(
        "sound", "word"
    )

    html = shown(InformedDatasetIterator(sounds, meta))

    players = re.findall(r"data:audio/wav;base64,([^\"]+)", html)
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(players[0])))
    assert len(players) == 3
    assert rate == 8000
    assert 0.55 < np.abs(samples).max() < 0.65
    assert "s of 30.0 s" in html


def test_boxes_and_masks_overlay_the_picture_under_new_names() -> None:
    plain = np.full((3, 50, 50), 90, np.uint8)
    boxes, masks = np.tile([[10, 10, 40, 40]], (3, 1, 1)), np.zeros((3, 50, 50), np.uint8)
    meta = DatasetMeta(
        IteratorMeta(0, 3),
        column_names=("x", "b", "m", "y"),
        column_kinds=(("b", "boxes"), ("m", "mask")),
    )
    iterator = InformedDatasetIterator(
        SequenceDatasetIterator([plain, boxes, masks, [1, 2, 3]]), meta
    )

    stacks: list[Any] = [iterator, iterator.as_dict().rename({"b": "where"}).select("x", "where")]
    for stack in stacks:
        drawn = pictures_in(shown(stack))

        assert len(drawn) == 3
        assert drawn[0].shape == (200, 200, 3)
    assert stacks[1].dataset_meta.column_kinds == (("where", "boxes"),)


def test_splits_are_a_dict_that_shows_them_side_by_side() -> None:
    splits = Splits({"train": photos(), "test": photos(dataset_tag="test").take(5)})

    html = shown(splits)

    assert isinstance(splits, dict)
    assert repr(splits) == repr(dict(splits))
    assert splits == dict(splits)
    assert type(pickle.loads(pickle.dumps(splits))) is Splits
    assert html.count("<h3>Columns</h3>") == 1
    assert "<h3>train</h3>" in html
    assert "<h3>test</h3>" in html
    assert "5 samples" in str(splits)
    assert "no splits" in shown(Splits())
    assert type(photos().split({"a": 0.5, "b": 0.5})) is Splits


def test_a_loader_shows_what_it_is_and_the_samples() -> None:
    page = shown(Loader(photos(), 8, shuffle=True, seed=5, epochs=None, shard=(1, 2)))

    for part in ("batches of 8", "Shuffled(), seed 5", "rank 1 of 2", "photos, train"):
        assert part in page


def test_show_draws_named_columns_and_rows_of_classes() -> None:
    grid = photos().show(6, seed=0, n_columns=3, columns=("photo", "label"))
    rows = photos().show(per_class=4)

    assert grid.width < rows.width
    assert grid.height == rows.height
    assert np.array_equal(np.asarray(grid), np.asarray(photos().show(6, seed=0, n_columns=3)))
    with pytest.raises(data_stack.exception.ConfigError, match="per_class=2"):
        photos().show(per_class=2, columns="photo")
