"""Reports of datasets: counts, ranges, names, and text of every width."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import data_stack
from data_stack.dataset.iterator import DatasetIterator, InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.meta import MetaFactory
from data_stack.display import DatasetReport, SplitReport
from data_stack.display.text import columns, size_text
from data_stack.exception import DatasetNotFoundError, UnknownSplitError


class Plain(DatasetIterator):
    """Samples as a third party gives them: three methods and no more."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self.my_samples = samples

    def __len__(self) -> int:
        return len(self.my_samples)

    def __getitem__(self, index: int) -> Any:
        return self.my_samples[index]


@pytest.mark.parametrize(
    ("targets", "classes"),
    [
        (np.array([2, 0, 2]), ((0, 1), (2, 2))),
        ([torch.tensor(1), torch.tensor(0), torch.tensor(1)], ((0, 1), (1, 2))),
        (["b", "a", "b"], (("a", 1), ("b", 2))),
        ([np.array([0, 1]), np.array([1, 0]), np.array([0, 1])], ((0, 1), (1, 2))),
        ([True, False, True], ((False, 1), (True, 2))),
        ([1, "a", None], ((1, 1), (None, 1), ("a", 1))),
    ],
    ids=["numpy", "tensors", "text", "one-hot", "bools", "mixed"],
)
def test_classes_are_counted_whatever_kind_they_are_of(targets: Any, classes: Any) -> None:
    report = SplitReport.of("train", SequenceDatasetIterator([[0, 0, 0], targets]))

    assert report.classes == classes


def test_samples_that_differ_are_told_by_what_differs() -> None:
    pictures = [np.zeros((4 + n % 2, 5), np.uint8) for n in range(9)]

    report = SplitReport.of("train", SequenceDatasetIterator([pictures, [None, *"aabbccdd"]]))

    assert (report.sample, report.target) == ("uint8 of various shapes", "text or None")
    assert report.classes == ((None, 1), ("a", 2), ("b", 2), ("c", 2), ("d", 2))


def test_measured_targets_are_reported_by_their_range() -> None:
    report = SplitReport.of("train", SequenceDatasetIterator([[0, 0, 0], [0.5, float("nan"), -2.25]]))

    assert (report.classes, report.target_range) == (None, (-2.25, 0.5))


def test_targets_that_are_all_different_are_no_classes() -> None:
    report = SplitReport.of("train", SequenceDatasetIterator([range(100), range(100)]))

    assert (report.classes, report.target_range) == (None, (0.0, 99.0))


@pytest.mark.parametrize(
    ("sample", "kind"),
    [
        (np.zeros((8, 8), np.uint8), "uint8 8×8"),
        (torch.zeros(3, 4), "float32 3×4"),
        (3, "int"),
        ("text", "text"),
        (b"bytes", "bytes"),
        ({"age": 3, "name": "Zoë"}, "age: int, name: text"),
        (None, ""),
        (object, "type"),
    ],
)
def test_the_kind_of_samples_is_told(sample: Any, kind: str) -> None:
    report = SplitReport.of("train", Plain([(sample, 0, 0)]))

    assert report.sample == kind


@pytest.mark.parametrize(
    "samples",
    [[], [5, 6], [np.zeros(3)], [{}], [{"only": 1}], [()]],
    ids=["none", "bare", "arrays", "no keys", "one key", "empty"],
)
def test_samples_without_targets_are_reported_all_the_same(samples: list[Any]) -> None:
    report = SplitReport.of("train", Plain(samples))

    assert (report.n_samples, report.target) == (len(samples), "")


def test_the_meta_of_an_iterator_says_where_the_target_is() -> None:
    samples = SequenceDatasetIterator([["x", "x"], ["tag", "tag"], [1, 2]])
    meta = MetaFactory.get_dataset_meta(iterator_meta=MetaFactory.get_iterator_meta(0, 2, 1))

    report = SplitReport.of("train", InformedDatasetIterator(samples, meta))

    assert report.classes == ((1, 1), (2, 1))


def test_dict_samples_are_reported_by_their_keys() -> None:
    report = SplitReport.of("train", Plain([{"image": np.zeros((2, 2)), "label": 7}] * 3))

    assert (report.sample, report.classes) == ("float64 2×2", ((7, 3),))


def test_a_report_of_a_registered_dataset_uses_its_own_store(tmp_path: Path) -> None:
    report = DatasetReport.of("iris", storage=tmp_path)

    assert report.storage == f"FileStorageConnector('{tmp_path}')"
    assert [(split.name, split.n_samples) for split in report.splits] == [("all", 150)]
    assert report.class_names == ("setosa", "versicolor", "virginica")


def test_a_report_prepares_once_and_then_only_opens() -> None:
    storage = data_stack.InMemoryStorageConnector()

    steps = [[name for name, _ in DatasetReport.of("digits", storage=storage).steps] for _ in range(2)]

    assert "retrieve" in steps[0]
    assert steps[1] == ["open", "read all targets"]


def test_a_report_is_plain_json_data() -> None:
    report = DatasetReport.of("digits", "test", storage="memory://").to_dict()

    assert json.loads(json.dumps(report)) == json.loads(json.dumps(report, default=str))
    assert [split["n_samples"] for split in report["splits"]] == [360]


def test_a_report_of_something_unknown_raises_as_loading_does() -> None:
    with pytest.raises(DatasetNotFoundError, match="did you mean 'digits'"):
        DatasetReport.of("digit", storage="memory://")
    with pytest.raises(UnknownSplitError):
        DatasetReport.of("digits", "validation", storage="memory://")


def test_a_report_as_text_has_short_lines() -> None:
    lines = str(DatasetReport.of("digits", storage="memory://")).splitlines()

    assert max(map(len, lines)) <= 120
    assert not any(line.endswith(" ") for line in lines)


def test_many_classes_are_cut_short_in_text_only(tmp_path: Path) -> None:
    class Many(data_stack.DatasetFactory):
        """Fifty classes."""

        card = data_stack.DatasetCard(name="many", version="1")
        splits = ("all",)

        def open(self, split: str, prepared: data_stack.Resources) -> data_stack.DatasetIteratorIF:
            targets = [index % 50 for index in range(500)]
            return SequenceDatasetIterator([targets, targets, targets])

    repository = data_stack.default_repository()
    repository.register("many-classes", Many)
    try:
        report = DatasetReport.of("many-classes", storage=tmp_path)
    finally:
        repository.remove("many-classes")

    assert "… and 30 more classes" in str(report)
    assert len(report.to_dict()["splits"][0]["classes"]) == 50


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (57523, "57.5 kB"),
        (999_960, "1.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (10**15, "1000.0 TB"),
    ],
)
def test_sizes_are_told_in_words(n_bytes: int | None, text: str) -> None:
    assert size_text(n_bytes) == text


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    lines = list(columns([("name", "n", ""), ("a", "10", ""), ("bcdef", "1", "x")], right={1}))

    assert lines == ["name    n", "-----  --", "a      10", "bcdef   1  x"]
