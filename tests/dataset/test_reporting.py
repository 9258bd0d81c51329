"""Reports tell what a stack is made of, quickly, in plain values."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    InMemoryDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, MetaFactory
from data_stack.dataset.reporting import DatasetIteratorReportGenerator

FORMATS = DatasetIteratorReportGenerator.ReportFormat
META = DatasetMeta(IteratorMeta(), "id", "digits", "train")


def with_targets(targets: Any) -> InformedDatasetIterator:
    return InformedDatasetIterator(SequenceDatasetIterator([list(range(len(targets))), targets]), META)


def distribution(targets: Any) -> dict[Any, int]:
    result: dict[Any, int] = DatasetIteratorReportGenerator.generate_report(with_targets(targets)).target_dist
    return result


def test_a_report_has_the_fields_of_the_original() -> None:
    report = DatasetIteratorReportGenerator.generate_report(with_targets([1, 0, 1]), report_format=FORMATS.DICT)

    assert report == {
        "identifier": "id",
        "name": "digits",
        "tag": "train",
        "length": 3,
        "sample_pos": 0,
        "target_pos": 1,
        "tag_pos": 2,
        "target_dist": {0: 1, 1: 2},
        "iteration_speed": None,
        "sub_reports": [],
    }


def test_a_report_can_be_asked_of_the_class_and_of_an_instance() -> None:
    iterator = with_targets([1])

    on_instance = DatasetIteratorReportGenerator().generate_report(iterator, FORMATS.DATA_CLASS)

    assert on_instance == DatasetIteratorReportGenerator.generate_report(iterator)


def test_a_combination_is_reported_with_its_parts() -> None:
    parts = [with_targets([0, 1]), with_targets([1, 1])]
    meta = MetaFactory.get_dataset_meta_from_existing(META, dataset_name="combined", dataset_tag=None)

    report = DatasetIteratorReportGenerator.generate_report(InformedDatasetIterator(CombinedDatasetIterator(parts), meta))

    assert (report.name, report.tag, report.length, report.target_dist) == ("combined", None, 4, {0: 1, 1: 3})
    assert [(sub.length, sub.target_dist) for sub in report.sub_reports] == [(2, {0: 1, 1: 1}), (2, {1: 2})]


def test_iterators_without_meta_are_reported_by_class() -> None:
    source = SequenceDatasetIterator([[0, 1], [1, 1]])
    root = InMemoryDatasetIterator(InformedDatasetIterator(DatasetIteratorView(source, [1]), META))

    report = DatasetIteratorReportGenerator.generate_report(root)

    assert (report.name, report.length, report.target_dist, report.target_pos) == ("InMemoryDatasetIterator", 1, {}, None)
    (informed,) = report.sub_reports
    assert (informed.name, informed.target_dist) == ("digits", {1: 1})
    assert informed.sub_reports[0].name == "SequenceDatasetIterator"


def test_speed_is_measured_only_when_asked_and_briefly() -> None:
    class Slow(DatasetIterator):
        n_read = 0

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> Any:
            type(self).n_read += 1
            time.sleep(0.05)
            return index, 0, 0

        def read_column(self, key: Any, indices: Any = None) -> Any:
            return np.zeros(1000, dtype=int)

    iterator = InformedDatasetIterator(Slow(), META)

    assert DatasetIteratorReportGenerator.generate_report(iterator).iteration_speed is None
    assert Slow.n_read == 0
    assert 0 < DatasetIteratorReportGenerator.generate_report(iterator, measure_speed=True).iteration_speed <= 20
    assert Slow.n_read <= 5
    assert DatasetIteratorReportGenerator.generate_report(with_targets([]), measure_speed=True).iteration_speed == 0


def test_a_shared_iterator_is_read_once() -> None:
    class Counting(DatasetIterator):
        n_columns_read = 0
        dataset_meta = META

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("a sample was read")

        def read_column(self, key: Any, indices: Any = None) -> Any:
            type(self).n_columns_read += 1
            return np.arange(4)

    source = Counting()
    stack: DatasetIteratorIF = CombinedDatasetIterator([DatasetIteratorView(source, [i]) for i in range(4)])

    report = DatasetIteratorReportGenerator.generate_report(stack)

    assert Counting.n_columns_read == 1
    assert [sub.sub_reports[0].target_dist for sub in report.sub_reports] == [{0: 1, 1: 1, 2: 1, 3: 1}] * 4


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ([torch.tensor(1), torch.tensor(0), torch.tensor(1)], {0: 1, 1: 2}),
        (torch.tensor([2, 2]), {2: 2}),
        (np.array([3, 3, 1], dtype=np.uint8), {1: 1, 3: 2}),
        (np.eye(3)[[2, 0, 2]], {0: 1, 2: 2}),
        (list(torch.eye(3)[[2, 0, 2]]), {0: 1, 2: 2}),
        (np.array([[1], [1], [0]]), {0: 1, 1: 2}),
        ([1, "a", 1], {1: 2, "a": 1}),
        (["b", "a", None], {"a": 1, "b": 1, None: 1}),
        ([b"x", b"\xff"], {"\\xff": 1, "x": 1}),
        ([0.0, 1.0, 1.0], {0.0: 1, 1.0: 2}),
        ([float("nan"), 0.5, float("nan")], {0.5: 1, "nan": 2}),
        ([np.array(["mel", "nv"]), np.array(["mel", "nv"])], {("mel", "nv"): 2}),
        ([[0.5, 1.0], [0.5, 2.0]], {(0.5, 1.0): 1, (0.5, 2.0): 1}),
        ([np.zeros(1), np.zeros(2)], {(0.0,): 1, (0.0, 0.0): 1}),
        ([True, False, True], {False: 1, True: 2}),
        ([], {}),
    ],
)
def test_targets_are_counted_as_plain_values_in_order(targets: Any, expected: dict[Any, int]) -> None:
    counts = distribution(targets)

    assert list(counts.items()) == list(expected.items())
    assert {type(key) for key in counts} <= {int, float, str, bool, tuple, type(None)}


def test_samples_without_a_target_have_no_distribution() -> None:
    unlabelled = InformedDatasetIterator(SequenceDatasetIterator([[1, 2]]), META)
    keyless = InformedDatasetIterator(InMemoryDatasetIterator([{"image": 1}]), META)

    assert DatasetIteratorReportGenerator.generate_report(unlabelled).target_dist == {}
    assert DatasetIteratorReportGenerator.generate_report(keyless).target_dist == {}


def test_continuous_targets_are_counted_in_ranges() -> None:
    counts = distribution([*np.linspace(0, 10, 201).tolist(), float("nan"), float("inf")])

    assert [list(counts)[i] for i in (0, 9, 10, 11)] == ["[0, 1)", "[9, 10]", "inf", "nan"]
    assert sum(counts.values()) == 203


@pytest.mark.parametrize(
    "targets", [1e9 + np.arange(200) / 1e6, np.linspace(-1, 1, 200) * 1.7e308, np.arange(200) * 5e-324, np.arange(5000)]
)
def test_no_number_is_lost_in_the_ranges(targets: Any) -> None:
    counts = distribution(targets)

    assert sum(counts.values()) == len(targets)
    assert len(counts) <= 10


def test_of_countless_labels_the_frequent_ones_are_counted() -> None:
    counts = distribution([f"name {i}" for i in range(3000)] + ["often"] * 5)

    assert counts["often"] == 5
    assert counts["(others)"] == 3005 - 5 - 999
    assert len(counts) == 1001


@pytest.mark.parametrize(
    "targets", [np.array([1, 1, 0]), [1, "1", None], ["é\x7f", "😀", "1e10"], [("a", 1), ("a", 1)], [float("nan")]]
)
def test_json_and_yaml_hold_what_the_dict_holds(targets: Any) -> None:
    iterator = InformedDatasetIterator(DatasetIteratorView(with_targets(targets), range(len(targets))), META)

    as_dict = DatasetIteratorReportGenerator.generate_report(iterator, FORMATS.DICT)
    from_json = json.loads(DatasetIteratorReportGenerator.generate_report(iterator, FORMATS.JSON))
    from_yaml = yaml.safe_load(DatasetIteratorReportGenerator.generate_report(iterator, "yaml"))

    for report in (from_json, from_yaml):
        assert list(report["target_dist"].values()) == list(as_dict["target_dist"].values())
        assert [sub["length"] for sub in report["sub_reports"]] == [len(targets)]
        assert {**report, "target_dist": 0, "sub_reports": 0} == {**as_dict, "target_dist": 0, "sub_reports": 0}
    assert all(isinstance(key, str) for key in from_json["target_dist"])
    if not any(isinstance(key, tuple) for key in as_dict["target_dist"]):
        assert from_yaml["target_dist"] == as_dict["target_dist"]


def test_yaml_without_its_package_says_what_to_install() -> None:
    program = """
import sys
sys.modules["yaml"] = None  # as if it were not installed
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.reporting import DatasetIteratorReportGenerator
DatasetIteratorReportGenerator.generate_report(SequenceDatasetIterator([[1]]), "json")
DatasetIteratorReportGenerator.generate_report(SequenceDatasetIterator([[1]]), "yaml")
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr

    assert "MissingDependencyError: a report in YAML needs PyYAML" in said


def test_the_module_can_be_run_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "data_stack.dataset.reporting"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
