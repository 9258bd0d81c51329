"""Reports tell what a stack is made of, quickly, in plain values."""

from __future__ import annotations

import json
import math
import re
import signal
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import hypothesis.extra.numpy as hnp
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import object_column
from torch_or_stand_in import torch

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
    blocks,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.dataset.reporting import DatasetIteratorReportGenerator

FORMATS = DatasetIteratorReportGenerator.ReportFormat
META = DatasetMeta(IteratorMeta(), "id", "digits", "train")


def with_targets(targets: Any) -> InformedDatasetIterator:
    return InformedDatasetIterator(
        SequenceDatasetIterator([list(range(len(targets))), targets]), META
    )


def distribution(targets: Any) -> dict[Any, int]:
    result: dict[Any, int] = DatasetIteratorReportGenerator.generate_report(
        with_targets(targets)
    ).target_dist
    return result


def columns_in(report: Any) -> dict[Any, tuple[str, Any]]:
    return {column.key: (column.dtype, column.shape) for column in report.columns}


def test_without_a_schema_several_samples_tell_what_a_column_holds() -> None:
    values = [None, 1.5, 2.5, *[3.5] * 20]
    texts = ["a"] * 22 + [None]
    arrays = [np.zeros(3)] * 22 + [np.zeros(4)]

    report = SequenceDatasetIterator([values, texts, arrays, list(range(23)), [None] * 23]).report()

    expected = {
        0: ("float64 or None", ()),
        1: ("str or None", ()),
        2: ("float64", (None,)),
        3: ("int64", ()),
        4: ("NoneType", ()),
    }
    assert columns_in(report) == expected
    assert columns_in(SequenceDatasetIterator([[np.zeros(3), np.zeros((3, 1))]]).report()) == {
        0: ("float64", None)
    }


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ([torch.tensor(1), torch.tensor(0), torch.tensor(1)], {0: 1, 1: 2}),
        (np.eye(3)[[2, 0, 2]], {0: 1, 2: 2}),
        (["b", "a", None], {"a": 1, "b": 1, None: 1}),
        ([b"x", b"\xff"], {"\\xff": 1, "x": 1}),
        ([float("nan"), 0.5, float("nan")], {0.5: 1, "nan": 2}),
        ([np.array(["mel", "nv"]), np.array(["mel", "nv"])], {("mel", "nv"): 2}),
        ([True, False, True], {False: 1, True: 2}),
        ([], {}),
    ],
)
def test_targets_are_counted_as_plain_values_in_order(
    targets: Any, expected: dict[Any, int]
) -> None:
    counts = distribution(targets)

    assert list(counts.items()) == list(expected.items())
    assert {type(key) for key in counts} <= {int, float, str, bool, tuple, type(None)}


def test_continuous_targets_are_counted_in_ranges_labels_by_frequency() -> None:
    counts = distribution([*np.linspace(0, 10, 201).tolist(), float("nan"), float("inf")])

    assert [list(counts)[i] for i in (0, 9, 10, 11)] == ["[0, 1)", "[9, 10]", "inf", "nan"]
    assert sum(counts.values()) == 203
    labels = distribution([f"name {i}" for i in range(3000)] + ["often"] * 5)
    assert (labels["often"], labels["(others)"], len(labels)) == (5, 3005 - 5 - 999, 1001)


class Colour(str, Enum):
    RED = "red"


HOSTILE = [
    "a|b",
    "<script>alert('x')</script>",
    "two\nlines",
    "",
    " ",
    "`*_[x](y)_*`",
    "\x00\x1b",
    "\u2028",
    "x" * 500,
]
EVERY_KIND = {
    "huge ints": [10**30, 2**63, -(10**400)],
    "floats": [0.5, -math.inf, math.nan, -0.0],
    "strings": HOSTILE,
    "mixed": [
        1,
        "1",
        '"1"',
        1.5,
        None,
        "None",
        b"1",
        True,
        (1, 2),
        "(1, 2)",
        [1, 2],
        {"a": 1},
        (1, ("b", math.nan)),
    ],
    "tensors": [torch.tensor(1), torch.tensor([1, 2])],
    "subclasses": [Colour.RED, Colour.RED, signal.SIGINT],
    "times": [datetime(2020, 1, 2, 3), datetime(2020, 1, 2, 3, tzinfo=timezone.utc), pd.NaT],
    "times of several values": np.array([["2020-01-02", "NaT"]], dtype="M8[ns]"),
    "objects": [Decimal("1.5"), Path("/x"), {1, 2}, pd.NA],
    "nothing": [],
}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_label_is_reported_in_every_format(kind: str) -> None:
    targets: Any = EVERY_KIND[kind]
    iterator = InformedDatasetIterator(
        DatasetIteratorView(with_targets(targets), range(len(targets))), META
    )

    report = iterator.report(statistics=True, measure_speed=True)
    as_dict = iterator.report("dict", statistics=True)
    from_json = json.loads(
        iterator.report("json"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )
    from_yaml = yaml.safe_load(iterator.report("yaml"))

    assert sum(as_dict["target_dist"].values()) == len(targets)
    for parsed in (from_json, from_yaml):
        assert list(parsed["target_dist"].values()) == list(as_dict["target_dist"].values())
        assert [sub["length"] for sub in parsed["sub_reports"]] == [len(targets)]
    assert all(isinstance(key, str) for key in from_json["target_dist"])
    for text in (str(report), report.to_html()):
        text.encode("utf-8")
        assert all(character.isprintable() or character == "\n" for character in text)
    assert "<script>" not in report.to_html()
    ElementTree.fromstring(
        report.to_html().replace("<br>", "<br/>").replace("<style scoped>", "<style>")
    )


def test_a_report_has_the_original_fields_and_the_meta() -> None:
    meta = replace(
        META,
        target_kind="label",
        class_names=("cat", "dog"),
        feature_names=("a", "b"),
        provenance=("mapped", "view"),
    )
    iterator = InformedDatasetIterator(SequenceDatasetIterator([np.zeros((3, 2)), [1, 0, 1]]), meta)

    report = DatasetIteratorReportGenerator.generate_report(iterator, report_format=FORMATS.DICT)
    text = str(iterator.report())

    assert list(report.items())[:14] == [
        ("identifier", "id"),
        ("name", "digits"),
        ("tag", "train"),
        ("length", 3),
        ("sample_pos", 0),
        ("target_pos", 1),
        ("tag_pos", 2),
        ("target_dist", {0: 1, 1: 2}),
        ("iteration_speed", None),
        ("sub_reports", []),
        ("target_kind", "label"),
        ("class_names", ["cat", "dog"]),
        ("feature_names", ["a", "b"]),
        ("provenance", ["mapped", "view"]),
    ]
    assert re.search(r"^1 +dog +2 +66.7 %", text, re.MULTILINE)
    assert "mapped → view" in text


@pytest.mark.parametrize(
    ("kind", "names", "targets", "shown"),
    [
        ("label", ("cat", "dog"), ["dog"], None),
        ("one_hot", (3, 5, 8), np.eye(3)[[1]], "5"),
        ("label", ("a|b",), [0], "a|b"),
    ],
)
def test_classes_are_named_where_targets_are_their_numbers(
    kind: Any, names: Any, targets: Any, shown: str | None
) -> None:
    iterator = InformedDatasetIterator(
        SequenceDatasetIterator([[0], targets]), replace(META, target_kind=kind, class_names=names)
    )

    text = str(iterator.report())

    assert ("target  name" in text) == (shown is not None)
    assert shown is None or re.search(rf" {re.escape(shown)} +1 ", text)


def test_a_shared_iterator_stands_once_in_json() -> None:
    source = with_targets([0, 1])
    pair = CombinedDatasetIterator([source, source, DatasetIteratorView(source, [1])])

    as_object = pair.report()
    texts = [json.loads(pair.report("json")), yaml.safe_load(pair.report("yaml"))]

    assert (
        as_object.sub_reports[0]
        is as_object.sub_reports[1]
        is as_object.sub_reports[2].sub_reports[0]
    )
    assert pair.report("dict")["sub_reports"][0] is not None
    for report in texts:
        first, second, view = report["sub_reports"]
        assert (first["target_dist"], first["report_number"]) != ({}, None)
        assert second == {
            "identifier": "id",
            "name": "digits",
            "tag": "train",
            "length": 2,
            "see_report": first["report_number"],
        }
        assert view["sub_reports"] == [second]


COLUMNS = st.sampled_from([np.uint8, np.int16, np.int64, np.float16, np.float64, np.bool_]).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        st.one_of(
            st.tuples(st.integers(1, 30)),
            st.tuples(st.integers(1, 30), st.integers(1, 4)),
            st.just((7, 2, 3)),
        ),
        elements=st.one_of(
            st.integers(-1000, 1000).map(lambda x: x / 8),
            st.sampled_from([math.nan, math.inf, -math.inf]),
        )
        if np.dtype(dtype).kind == "f"
        else None,
    )
)


@given(COLUMNS)
def test_statistics_are_those_of_numpy_whatever_the_blocks(column: Any) -> None:
    values = column.astype(np.float64).ravel()
    numbers, finite = values[~np.isnan(values)], values[np.isfinite(values)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_MAX_SAMPLES", 4)
        found = (
            InformedDatasetIterator(SequenceDatasetIterator([column]), META)
            .report(statistics=True)
            .columns[0]
            .statistics
        )

    assert found.n_missing == np.isnan(values).sum()
    assert (found.n_numbers, found.n_infinite) == (len(numbers), len(numbers) - len(finite))
    assert (found.min, found.max) == (
        (numbers.min(), numbers.max()) if len(numbers) else (None, None)
    )
    # Of equal large numbers numpy's own mean is off by a rounding, and so is its deviation.
    rounding = 1e-12 * float(np.abs(finite).max(initial=0))
    assert (found.mean, found.std) == (
        pytest.approx((finite.mean(), finite.std()), abs=rounding) if len(finite) else (None, None)
    )
    assert found.n_distinct == (
        len(np.unique(column[~np.isnan(values)])) if column.ndim == 1 else None
    )


@pytest.mark.parametrize(
    ("values", "n_missing", "n_numbers", "low", "mean", "n_distinct"),
    [
        (["a", None, "b", "a"], 1, 0, None, None, 2),
        ([1, None, 3.0, math.nan], 2, 2, 1.0, 2.0, 2),
        ([10**400, 1, None], 1, 2, 1.0, 1.0, 2),
        (
            object_column(pd.NA, pd.NaT, np.datetime64("NaT"), Decimal("NaN"), "x"),
            4,
            0,
            None,
            None,
            1,
        ),
        (object_column(np.array([1.0, math.nan]), np.zeros(3), 5), 1, 5, 0.0, 1.2, None),
        (object_column(torch.tensor([1.0, 2.0]), torch.tensor(3)), 0, 3, 1.0, 2.0, None),
        (object_column(["a"], {"b": 1}), 0, 0, None, None, None),
        (np.array(["2021-01-01", "NaT", "2020-05-05"], dtype="M8[D]"), 1, 0, "2020-05-05", None, 2),
        ([1 + 1j, complex(math.nan, 0)], 1, 0, None, None, 1),
        ([None, None], 2, 0, None, None, 0),
    ],
)
def test_missing_values_and_numbers_are_found_among_objects(
    values: Any,
    n_missing: int,
    n_numbers: int,
    low: Any,
    mean: float | None,
    n_distinct: int | None,
) -> None:
    found = SequenceDatasetIterator([values]).report(statistics=True).columns[0].statistics

    assert (found.n_missing, found.n_numbers, found.n_distinct) == (
        n_missing,
        n_numbers,
        n_distinct,
    )
    assert (found.min, found.mean) == (low, None if mean is None else pytest.approx(mean))
