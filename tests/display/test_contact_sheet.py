"""Contact sheets: which samples are drawn, how pictures of any layout and range look, and tables for the rest."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from data_stack.dataset.iterator import DatasetIterator, InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.meta import DatasetMeta, MetaFactory
from data_stack.display import contact_sheet
from data_stack.display.samples import as_label, as_picture, default_positions, text_of, to_bytes, value_range
from data_stack.exception import ConfigError

Pixels = npt.NDArray[np.uint8]


class Watched(DatasetIterator):
    """Remembers which samples were read."""

    def __init__(self, samples: npt.NDArray[Any], targets: Sequence[Any]) -> None:
        self.samples, self.targets = samples, targets
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.seen.append(index)
        return self.samples[index], self.targets[index]

    def read_column(self, key: Any, indices: Any = None) -> Any:
        column = np.asarray((self.samples, self.targets)[key])
        return column if indices is None else column[indices]


class Dicts(DatasetIterator):
    """Samples as dicts."""

    def __init__(self, samples: Sequence[dict[str, Any]]) -> None:
        self.samples_of_test = samples

    def __len__(self) -> int:
        return len(self.samples_of_test)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples_of_test[index]


def pixels_of(sheet: Image.Image) -> Pixels:
    return np.asarray(sheet.convert("RGB"))


def has_color(sheet: Image.Image, color: tuple[int, int, int]) -> bool:
    return bool((pixels_of(sheet) == np.array(color, np.uint8)).all(axis=2).any())


def block_of(sheet: Image.Image, color: tuple[int, int, int]) -> tuple[int, int]:
    """Height and width of the box around everything of one color."""
    rows, columns = np.nonzero((pixels_of(sheet) == np.array(color, np.uint8)).all(axis=2))
    return int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1


def red(layout: str) -> Any:
    picture = np.zeros((6, 5, 3), np.uint8)
    picture[..., 0] = 255
    channels_first = np.ascontiguousarray(np.moveaxis(picture, 2, 0))
    return {
        "hwc": picture,
        "chw": channels_first,
        "tensor": torch.from_numpy(channels_first),
        "float": channels_first.astype(np.float32) / 255,
        "rgba": np.concatenate([picture, np.full((6, 5, 1), 255, np.uint8)], axis=2),
    }[layout]


@pytest.mark.parametrize("layout", ["hwc", "chw", "tensor", "float", "rgba"])
def test_a_red_picture_is_red_in_every_layout(layout: str) -> None:
    sheet = contact_sheet(SequenceDatasetIterator([[red(layout)] * 2, [0, 1]]))

    assert has_color(sheet, (255, 0, 0))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.float16, np.float64])
def test_an_enlarged_pixel_stays_a_square_of_one_color(dtype: Any) -> None:
    picture = np.zeros((8, 8), dtype)
    picture[3, 4] = 1

    sheet = contact_sheet(SequenceDatasetIterator([[picture], [""]]), title="")

    cut = pixels_of(sheet)[94:174]
    left = int(np.nonzero((cut == 0).all(axis=2).any(axis=0))[0][0])
    picture_drawn = cut[:, left : left + 80]
    assert (picture_drawn[30:40, 40:50] == 255).all()
    assert int((picture_drawn == 255).all(axis=2).sum()) == 100


def test_a_picture_with_one_channel_looks_like_one_without() -> None:
    picture = np.arange(64, dtype=np.uint8).reshape(8, 8)

    sheets = [contact_sheet(SequenceDatasetIterator([[each], [0]])) for each in (picture, picture[..., None], picture[None])]

    assert len({sheet.tobytes() for sheet in sheets}) == 1


@given(hnp.arrays(st.sampled_from([np.uint8, np.int32, np.float32, np.float64, np.bool_]), (2, 3)))
def test_every_range_of_values_becomes_bytes_in_the_same_order(picture: npt.NDArray[Any]) -> None:
    low, high = value_range([picture])
    grey = to_bytes(picture, low, high)

    finite = np.isfinite(picture)
    order = np.argsort(picture[finite].astype(np.float64), kind="stable")
    assert grey.dtype == np.uint8
    assert (np.diff(grey[finite][order].astype(int)) >= 0).all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 16]], np.uint8), (0, 16)),
        (np.array([[0, 200]], np.uint8), (0, 255)),
        (np.array([[0.0, 0.9]]), (0, 1)),
        (np.array([[-1.0, 1.0]]), (-1, 1)),
        (np.array([[0.0, 255.0]]), (0, 255)),
        (np.array([[np.nan, np.inf, 3.0]]), (0, 3)),
        (np.array([[np.nan]]), (0, 1)),
        (np.zeros((1, 2)), (0, 1)),
        (np.array([[True, True]]), (0, 1)),
    ],
)
def test_black_and_white_follow_type_and_values(values: npt.NDArray[Any], expected: tuple[float, float]) -> None:
    assert value_range([values]) == expected


def test_one_range_holds_for_all_pictures_of_a_sheet() -> None:
    dim, bright = np.full((4, 4), 10, np.int32), np.full((4, 4), 100, np.int32)

    sheet = contact_sheet(SequenceDatasetIterator([[dim, bright], [0, 1]]), title="")

    assert has_color(sheet, (26, 26, 26))


def test_each_class_gets_the_same_number_of_samples() -> None:
    targets = [0] * 900 + [1] * 50 + [2] * 50
    iterator = Watched(np.zeros((1000, 2, 2), np.uint8), targets)

    contact_sheet(iterator, n_samples=30)

    drawn = Counter(targets[index] for index in iterator.seen[1:])
    assert drawn == {0: 10, 1: 10, 2: 10}


def test_a_class_with_few_samples_leaves_its_places_to_the_others() -> None:
    targets = [0] * 20 + [1] * 2
    iterator = Watched(np.zeros((22, 2, 2), np.uint8), targets)

    contact_sheet(iterator, n_samples=10)

    assert Counter(targets[index] for index in iterator.seen[1:]) == {0: 8, 1: 2}


def test_measured_targets_are_drawn_evenly_over_the_dataset() -> None:
    iterator = Watched(np.zeros((101, 2, 2), np.uint8), np.linspace(0.5, 0.9, 101).tolist())

    contact_sheet(iterator, n_samples=5)

    assert iterator.seen[1:] == [0, 25, 50, 75, 100]


def test_only_the_samples_on_the_sheet_are_read() -> None:
    iterator = Watched(np.zeros((50_000, 2, 2), np.uint8), list(range(10)) * 5_000)

    contact_sheet(iterator, n_samples=20)

    assert len(set(iterator.seen)) <= 21


def test_a_sheet_is_the_same_each_time() -> None:
    iterator = SequenceDatasetIterator([np.random.default_rng(0).random((40, 8, 8)), list(range(4)) * 10])

    assert contact_sheet(iterator).tobytes() == contact_sheet(iterator).tobytes()


def test_a_seed_draws_other_samples_and_the_same_ones_again() -> None:
    iterator = Watched(np.zeros((400, 2, 2), np.uint8), list(range(4)) * 100)
    drawn = []

    for seed in (1, 1, 2):
        iterator.seen.clear()
        contact_sheet(iterator, n_samples=8, seed=seed)
        drawn.append(iterator.seen[1:])

    assert drawn[0] == drawn[1] != drawn[2]


def test_the_columns_of_the_sheet_are_the_classes_where_these_are_few() -> None:
    iterator = SequenceDatasetIterator([np.full((60, 8, 8), 255, np.uint8), list(range(6)) * 10])

    narrow, wide = contact_sheet(iterator, title=""), contact_sheet(iterator, title="", n_columns=10)

    assert (narrow.width < wide.width, narrow.height > wide.height) == (True, True)


def test_labels_show_the_names_of_the_classes() -> None:
    iterator = SequenceDatasetIterator([np.zeros((2, 8, 8), np.uint8), [0, 1]])
    names = [None, ("cat", "dog")]

    sheets = [contact_sheet(InformedDatasetIterator(iterator, DatasetMeta(class_names=each)), title="") for each in names]

    assert sheets[0].tobytes() != sheets[1].tobytes()


def test_the_title_is_the_name_of_the_dataset() -> None:
    samples = SequenceDatasetIterator([np.zeros((2, 8, 8), np.uint8), [0, 1]])
    meta = MetaFactory.get_dataset_meta("id", "digits", "train", MetaFactory.get_iterator_meta(0, 1, 2))

    informed = contact_sheet(InformedDatasetIterator(samples, meta))

    assert informed.tobytes() == contact_sheet(samples, title="digits · train").tobytes()


def test_large_pictures_are_made_smaller_and_keep_their_shape() -> None:
    picture = np.zeros((400, 800, 3), np.uint8)
    picture[..., 1] = 255

    sheet = contact_sheet(SequenceDatasetIterator([[picture], [0]]), title="")

    assert block_of(sheet, (0, 255, 0)) == (80, 160)


def test_pictures_of_different_sizes_share_a_sheet() -> None:
    pictures = [np.full((4, 9), 255, np.uint8), np.zeros((30, 3), np.uint8)]

    sheet = contact_sheet(SequenceDatasetIterator([pictures, [0, 1]]), title="")

    assert block_of(sheet, (0, 0, 0)) == (90, 9)


def test_vectors_become_a_table_with_a_row_for_each_sample() -> None:
    features, targets = np.arange(40.0).reshape(10, 4), [0, 1] * 5

    few, all_rows = (contact_sheet(SequenceDatasetIterator([features, targets]), n_samples=n) for n in (2, 10))

    assert all_rows.height - few.height == 8 * 28


def test_the_columns_of_a_table_have_the_names_of_the_features() -> None:
    iterator = SequenceDatasetIterator([np.zeros((3, 2)), [0, 1, 2]])
    meta = DatasetMeta(feature_names=("petal length (cm)", "petal width (cm)"))

    named, unnamed = contact_sheet(InformedDatasetIterator(iterator, meta)), contact_sheet(iterator)

    assert named.width > unnamed.width


@pytest.mark.parametrize(
    "samples",
    [
        [("a text", "yes"), ("another, which is rather longer than what a cell has room for", "no")],
        [(np.arange(1000), 1), (np.arange(1000), 2)],
        [(np.zeros(2), 1), (np.zeros(3), 2)],
        [(np.zeros((2, 2)), 1), ("no picture", 2)],
        [(None, None), (None, None)],
        [({"age": 3, "name": "Zoë"}, 0), ({"age": 4, "name": "李"}, 1)],
        [np.zeros((4, 4)), np.ones((4, 4))],
        [1, 2],
        [(b"\xff\x00", 1.5), (b"", float("nan"))],
    ],
    ids=["text", "long vectors", "ragged vectors", "mixed", "none", "dicts in tuples", "bare pictures", "bare numbers", "bytes"],
)
def test_samples_of_any_kind_can_be_drawn(samples: list[Any]) -> None:
    class Anything(DatasetIterator):
        def __len__(self) -> int:
            return len(samples)

        def __getitem__(self, index: int) -> Any:
            return samples[index]

    sheet = contact_sheet(Anything())

    assert pixels_of(sheet)[90:].min() < 128


def test_dict_samples_are_drawn_by_their_keys() -> None:
    samples = [{"image": red("hwc"), "label": 0, "caption": "red"}, {"image": red("hwc"), "label": 1, "caption": "red"}]

    by_order, as_table = contact_sheet(Dicts(samples)), contact_sheet(Dicts(samples), sample_pos="caption", target_pos="label")

    assert (has_color(by_order, (255, 0, 0)), has_color(as_table, (255, 0, 0))) == (True, False)


GREEN = np.zeros((6, 5, 3), np.uint8) + np.array([0, 255, 0], np.uint8)


@pytest.mark.parametrize(
    "others",
    [
        {"id": 7, "caption": "text"},
        {"mask": np.ones((6, 5), bool), "depth": np.ones((6, 5), np.float32)},
        {"boxes": np.ones((9, 4), np.float32), "points": np.ones((2, 3), np.uint8)},
        {"vector": np.ones(30), "volume": np.ones((2, 6, 5, 3))},
        {},
    ],
)
def test_the_picture_of_dict_samples_is_found_wherever_it_stands(others: dict[str, Any]) -> None:
    sheet = contact_sheet(Dicts([{**others, "frame": GREEN, "label": 3}] * 2))

    assert has_color(sheet, (0, 255, 0))


def test_what_the_meta_calls_the_sample_is_drawn_before_what_looks_like_a_picture() -> None:
    meta = MetaFactory.get_dataset_meta(iterator_meta=MetaFactory.get_iterator_meta("mask", "label", "label"))
    iterator = Dicts([{"frame": GREEN, "mask": np.ones((6, 5), bool), "label": 3}] * 2)

    assert not has_color(contact_sheet(InformedDatasetIterator(iterator, meta)), (0, 255, 0))


@pytest.mark.parametrize(
    ("sample", "target"),
    [
        ({"id": 7, "label": "cat", "image": GREEN}, "label"),
        ({"speed": 1.5, "frame": GREEN, "kind": "cat"}, "kind"),
        ({"image": GREEN, "vector": np.ones(3)}, "vector"),
        ({"image": GREEN}, 1),
    ],
)
def test_the_label_of_dict_samples_is_found(sample: dict[str, Any], target: Any) -> None:
    assert default_positions(Dicts([sample]), sample)[1] == target


def test_a_table_of_named_columns_has_their_names() -> None:
    meta = replace(MetaFactory.get_dataset_meta(), column_names=("measured", "species", "number"))
    iterator = InformedDatasetIterator(SequenceDatasetIterator([np.ones((3, 2)), [0, 1, 2], [0, 1, 2]]), meta)

    called_target = InformedDatasetIterator(iterator, replace(meta, column_names=("measured", "target", "number")))

    named, as_ever = contact_sheet(iterator), contact_sheet(called_target)

    without_names = contact_sheet(InformedDatasetIterator(iterator, replace(meta, column_names=None)))
    assert as_ever.tobytes() == without_names.tobytes() != named.tobytes()
    assert contact_sheet(iterator, target_pos="number").tobytes() != named.tobytes()


def test_a_sheet_whose_letters_no_font_has_is_drawn_all_the_same() -> None:
    labels = ["\U000e0001\ud800", "\x00\x07", "\U0001f600", "plain"]

    sheet = contact_sheet(SequenceDatasetIterator([np.zeros((4, 6, 6), np.uint8), labels]), title="\u200b \u9f98")

    assert sheet.width > 300


def test_an_empty_dataset_gives_a_sheet_that_says_so() -> None:
    sheet = contact_sheet(SequenceDatasetIterator([[], []]), title="nothing yet")

    assert pixels_of(sheet).min() < 128


@pytest.mark.parametrize("arguments", [{"n_samples": 0}, {"n_columns": 0}, {"seed": -1}, {"n_samples": -5}])
def test_numbers_without_meaning_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(arguments))} must be at least"):
        contact_sheet(SequenceDatasetIterator([[1]]), **arguments)  # type: ignore[arg-type]  # one int by name


@pytest.mark.parametrize(
    ("target", "label"),
    [
        (np.int64(3), 3),
        (torch.tensor(3), 3),
        (np.array([3.0]), 3),
        (np.array([0, 0, 1]), 2),
        (torch.tensor([0.0, 1.0, 0.0]), 1),
        (np.float32(0.5), 0.5),
        ("cat", "cat"),
        (np.str_("cat"), "cat"),
        (b"cat", "cat"),
        (True, True),
        (None, None),
        (np.array([1.0, 2.0]), "1.0, 2.0"),
    ],
)
def test_targets_of_every_kind_have_one_label(target: Any, label: Any) -> None:
    assert (as_label(target), type(as_label(target))) == (label, type(label))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (3.0, "3.0"),
        (0.123456, "0.1235"),
        (True, "True"),
        ("a\n b", "a b"),
        (np.zeros((9, 9)), "float64 9x9"),
        ("x" * 99, "x" * 27 + "…"),
    ],
)
def test_values_are_written_in_one_short_line(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    "value",
    ["text", b"bytes", None, 3, np.zeros(4), np.zeros((2, 5, 5)), np.zeros((0, 4)), np.zeros((1, 2, 3, 4)), [[1], [1, 2]]],
)
def test_what_is_no_picture_is_not_taken_for_one(value: Any) -> None:
    assert as_picture(value) is None


def test_without_pillow_the_error_names_the_extra() -> None:
    program = """
        import sys
        sys.modules["PIL"] = None
        from data_stack.display import DatasetReport
        from data_stack.exception import MissingDependencyError
        try:
            from data_stack.display import contact_sheet
        except MissingDependencyError as error:
            print(error)
    """

    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == (
        "contact_sheet needs Pillow: pip install 'Pillow', or pip install '.[images]' in a clone of data_stack"
    )


@pytest.fixture(autouse=True)
def no_random_state_is_touched() -> Iterator[None]:
    before = np.random.get_state()[1].tolist()  # type: ignore[index]  # the legacy tuple
    yield
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]  # the legacy tuple
