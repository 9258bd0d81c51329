"""What the pages of a browser ask for."""

from __future__ import annotations

import datetime
import time
import urllib.parse
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browse_kit import CLASSES, Samples, Serve, Served

from data_stack import SequenceDatasetIterator


def test_an_overview_names_splits_and_columns(pictures: Served) -> None:
    overview = pictures.get("/api/overview").json

    train, test = overview["splits"]
    assert (train["name"], train["n_samples"], train["class_column"]) == ("train", 120, 1)
    assert (test["name"], test["n_samples"], test["class_column"]) == ("test", 30, 1)
    image, label, tag = train["columns"]
    assert (image["name"], image["role"], image["kind"]) == ("image", "sample", "image")
    assert (label["name"], label["role"], label["kind"]) == ("label", "target", "number")
    assert (tag["name"], tag["role"], tag["kind"]) == ("tag", "tag", "text")
    assert [column["has_picture"] for column in train["columns"]] == [True, False, False]
    assert [column["is_plain"] for column in train["columns"]] == [False, True, True]


def test_samples_come_in_pages_with_the_names_of_their_classes(pictures: Served) -> None:
    found = pictures.samples(start=118, count=60)

    assert (found["n_found"], found["is_complete"]) == (120, True)
    assert found["samples"] == [
        {"position": 118, "cells": [None, CLASSES[1], "tag 118"]},
        {"position": 119, "cells": [None, CLASSES[2], "tag 119"]},
    ]


def test_conditions_combine(pictures: Served) -> None:
    is_cat = {"column": 1, "values": ["0"]}

    assert pictures.positions(is_cat)[:3] == [0, 3, 6]
    assert pictures.positions({"column": 1, "values": ["0", "2"]})[:4] == [0, 2, 3, 5]
    assert pictures.positions(is_cat, {"column": 2, "contains": "TAG 11"}) == [111, 114, 117]
    assert pictures.positions({"contains": "tag 119"}) == [119]
    assert pictures.positions({"contains": "onerror"})[:2] == [2, 5]  # a class
    assert pictures.positions({"contains": "nowhere"}) == []
    assert pictures.positions(is_cat, split=1) == list(range(0, 30, 3))


@pytest.mark.parametrize(
    "where",
    [
        "{",
        "[" * 5_000,
        '{"column": 1}',
        '[{"column": 99, "values": []}]',
        '[{"column": 0, "values": ["1"]}]',
        '[{"column": 1, "values": [1]}]',
        '[{"column": 1, "values": "1"}]',
        '[{"values": ["1"]}]',
        '[{"column": 1, "low": "1", "values": ["1"]}]',
        "[7]",
    ],
)
def test_what_is_no_filter_is_refused(pictures: Served, where: str) -> None:
    answer = pictures.get("/api/samples", split=0, start=0, where=where)

    assert (answer.status, list(answer.json)) == (400, ["error"])


OVERVIEW, SAMPLES, HISTOGRAMS = (
    "/api/overview",
    "/api/samples?split=0&start=0",
    "/api/histograms?split=0",
)
SAMPLE, COMPARE, DUPLICATES = (
    "/api/sample?split=0&position=0",
    "/api/compare?name=label",
    "/api/duplicates?column=0",
)
PICTURE = "/picture?split=0&position=0&column=0"
NO_NUMBERS = ("", "x", "1e3", "+1", "\u0663", "9" * 20)


@pytest.mark.parametrize(
    ("path", "name", "values"),
    [
        *(
            (path, "split", ("-1", "2", *NO_NUMBERS))
            for path in (SAMPLES, HISTOGRAMS, SAMPLE, PICTURE)
        ),
        *(
            (path, "position", ("-1", "-120", "120", "9" * 19, *NO_NUMBERS))
            for path in (SAMPLE, PICTURE)
        ),
        (SAMPLES, "start", ("-1", *NO_NUMBERS)),
        (SAMPLES, "count", ("-1", "201", *NO_NUMBERS)),
        (HISTOGRAMS, "columns", ("-1", "0", "3", "1,x", "1,3", "1;2")),
        (PICTURE, "column", ("-1", "3", *NO_NUMBERS)),
        (PICTURE, "size", ("", "huge")),
        (COMPARE, "name", ("", "nothing", "image", "a" * 5000)),
        (DUPLICATES, "column", ("-2", "3", *NO_NUMBERS)),
        (DUPLICATES, "run", ("", "2", "yes")),
    ],
)
def test_each_parameter_out_of_range_is_an_error(
    pictures: Served, path: str, name: str, values: tuple[str, ...]
) -> None:
    route, _, query = path.partition("?")
    good: dict[str, Any] = dict(urllib.parse.parse_qsl(query))

    answers = {value: pictures.get(route, **{**good, name: value}) for value in values}

    assert pictures.get(route, **good, unknown="x").status == 200
    assert {
        value: answer.status for value, answer in answers.items() if answer.status not in (400, 404)
    } == {}
    assert {
        value: answer.body for value, answer in answers.items() if list(answer.json) != ["error"]
    } == {}
    assert "9" * 19 not in values or answers["9" * 19].status == 404  # a number, but of no sample


def test_a_sample_is_shown_in_full(pictures: Served) -> None:
    sample = pictures.get("/api/sample", split=0, position=9).json

    assert [(field["name"], field["has_picture"]) for field in sample["fields"]] == [
        ("image", True),
        ("label", False),
        ("tag", False),
    ]
    assert sample["fields"][1]["text"] == "cat (0)"


def test_samples_that_cannot_be_read_say_so_in_place(serve: Serve) -> None:
    samples = [
        {"x": 1, "text": "one"},
        ValueError("<b>broken</b>"),
        {"text": "no x"},
        {"x": 4, "text": "four"},
    ]
    served = serve(all=Samples(*samples))

    found = served.samples()["samples"]
    opened = served.get("/api/sample", split=0, position=1).json

    assert [sample.get("cells") for sample in found] == [["1", "one"], None, None, ["4", "four"]]
    assert found[1]["error"] == opened["error"] == "ValueError: <b>broken</b>"
    assert "no column 'x'" in found[2]["error"]
    assert served.positions({"column": 0, "values": ["4"]}) == [3]
    assert served.positions({"column": 0, "values": [None]}) == [1, 2]


@pytest.mark.parametrize("sample", [(1, "a"), 5, np.zeros((8, 8), np.uint8), None, {}, {1: 2}])
def test_samples_of_any_kind_are_shown(serve: Serve, sample: Any) -> None:
    served = serve(all=Samples(sample, sample, sample))

    split = served.get("/api/overview").json["splits"][0]
    page = served.samples()

    assert "error" not in split
    assert [shown["position"] for shown in page["samples"]] == [0, 1, 2]
    assert served.get("/api/sample", split=0, position=1).status == 200
    plain_columns = []
    for number, column in enumerate(split["columns"]):
        if column["is_plain"]:
            plain_columns.append(str(number))
    columns = ",".join(plain_columns)
    assert served.get("/api/histograms", split=0, columns=columns).status == 200
    assert served.samples({"contains": "7"})["n_found"] == 0


def test_an_empty_or_broken_split_leaves_the_others_alone(serve: Serve) -> None:
    class Broken(Samples):
        def __len__(self) -> int:
            raise OSError(*self.samples)

    long = "no disk " * 300
    served = serve(
        empty=Samples(),
        broken=Broken("the disk is gone"),
        whole=Samples(1, 2),
        mute=Broken(),
        verbose=Broken(long),
    )

    splits = served.get("/api/overview").json["splits"]
    told = [served.get("/api/samples", split=split, start=0).json["error"] for split in (1, 3, 4)]

    assert [split["n_samples"] for split in splits] == [0, 0, 2, 0, 0]
    assert splits[1]["error"] == "OSError: the disk is gone"
    assert told == ["the disk is gone", "OSError", long[:2000]]
    assert served.samples()["samples"] == []
    assert served.get("/api/histograms", split=0, columns="").json["columns"] == {}
    assert served.get("/api/samples", split=1, start=0).status == 500


def test_duplicates_are_found_when_they_are_asked_for(pictures: Served) -> None:
    before = pictures.get("/api/duplicates", column=0).json

    found = pictures.get("/api/duplicates", column=0, run=1).json
    while found["state"] == "running":
        time.sleep(0.01)
        found = pictures.get("/api/duplicates", column=0).json

    assert before == {"state": "none", "n_samples": 150}
    assert found["state"] == "done"
    assert found["is_leaking"] is True
    assert found["between"][0]["n_in_second"] == 30
    assert found["between"][0]["positions"][:2] == [[0, 0], [1, 1]]
    assert [split["n_repeats"] for split in found["within"]] == [0, 0]


def test_ranges_and_missing_values(serve: Serve) -> None:
    numbers = [0.5, float("nan"), -1.0, 2.0, float("inf"), 2.5]
    times = np.array(
        ["2024-01-01", "2024-02-01", "NaT", "2024-03-01", "2024-04-01", "2024-05-01"], dtype="M8[D]"
    )
    texts = ["a", None, "c", "", "é", "A"]
    served = serve(all=SequenceDatasetIterator([numbers, list(times), texts]))

    assert served.positions({"column": 0, "low": "0.5", "high": "2.5"}) == [0, 3]
    assert served.positions({"column": 0, "low": "0.5", "high": "2.5", "closed": True}) == [0, 3, 5]
    assert served.positions({"column": 0, "low": "nan"}) == []
    assert served.positions({"column": 0, "low": "many"}) == []
    assert served.positions({"column": 0, "values": [None]}) == [1]
    assert served.positions({"column": 1, "low": "2024-02-01", "high": "2024-04-01"}) == [1, 3]
    assert served.positions({"column": 1, "values": [None]}) == [2]
    assert served.positions({"column": 2, "values": [None, ""]}) == [1, 3]
    assert served.positions({"column": 2, "contains": "É"}) == [4]


@pytest.mark.parametrize("hole", [None, pd.NA, np.ma.masked, float("nan")])
def test_values_beside_missing_ones_keep_their_type(serve: Serve, hole: Any) -> None:
    def holed(values: Any) -> list[Any]:
        return [hole if position % 50 < 20 else value for position, value in enumerate(values)]

    days = np.datetime64("2024-01-01") + np.arange(500)
    moments = [
        datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(days=day)
        for day in range(500)
    ]
    columns = [
        holed(np.arange(500) / 7),
        holed(range(500)),
        holed(days),
        holed(moments),
        holed([2**60 + n for n in range(500)]),
    ]
    served = serve(all=SequenceDatasetIterator(columns))

    histograms = served.get("/api/histograms", split=0, columns="0,1,2,3,4").json["columns"]

    kinds = [histograms[column]["kind"] for column in "01234"]
    assert kinds == ["ranges", "ranges", "ranges", "ranges", "texts"]
    assert {histograms[column]["n_missing"] for column in "01234"} == {200}
    for column in "0123":
        for bar in histograms[column]["bars"]:
            assert served.samples(bar["where"], count=0)["n_found"] == bar["count"]
    assert served.positions({"column": 2, "low": "2024-01-21", "high": "2024-01-23"}) == [20, 21]
    assert served.positions({"column": 3, "low": "2024-01-21", "high": "2024-01-23"}) == [20, 21]
    assert served.positions({"column": 4, "values": [str(2**60 + 21)]}) == [21]


def test_histograms_count_all_rows_and_those_that_are_chosen(pictures: Served) -> None:
    where = '[{"column": 1, "values": ["0"]}, {"contains": "tag 1"}]'

    histograms = pictures.get("/api/histograms", split=0, columns="1,2", where=where).json

    assert histograms["n_read"] == 120
    assert histograms["is_complete"] is True
    labels = histograms["columns"]["1"]
    assert [bar["label"] for bar in labels["bars"]] == list(CLASSES)
    for number, bar in enumerate(labels["bars"]):
        assert bar["count"] == 40
        assert bar["where"]["values"] == [str(number)]
        # The filter of the column itself does not count.
        is_label = {"column": 1, "values": [str(number)]}
        assert bar["counts"][0] == len(pictures.positions(is_label, {"contains": "tag 1"}))
    tags = histograms["columns"]["2"]
    assert (tags["kind"], tags["n_distinct"], tags["bars"]) == ("texts", 120, [])


def test_a_large_split_is_searched_in_parts_and_sampled(
    serve: Serve,
) -> None:
    numbers = np.arange(300_000)
    served = serve(all=SequenceDatasetIterator([numbers % 1000, numbers]))

    first = served.samples({"column": 1, "low": "299990"}, count=5)
    while not first["is_complete"]:
        first = served.samples({"column": 1, "low": "299990"}, count=5)
    found = served.get("/api/histograms", split=0, columns="1").json

    positions = [sample["position"] for sample in first["samples"]]
    assert positions == [299_990, 299_991, 299_992, 299_993, 299_994]
    assert first["n_found"] == 10
    assert served.positions({"column": 0, "values": ["999"]})[:2] == [999, 1999]
    assert found["n_read"] < found["n_samples"] == 300_000
    bars = [bar["count"] for bar in found["columns"]["1"]["bars"]]
    assert sum(bars) == found["n_read"]
    assert not found["is_complete"] or min(bars) > 0


def test_bounds_beyond_the_dtype_of_a_column_are_compared(serve: Serve) -> None:
    numbers, spans = np.arange(4), np.arange(4).astype("m8[s]")
    times = np.datetime64("2024-01-01", "ns") + np.arange(4).astype("m8[D]")
    served = serve(all=SequenceDatasetIterator([numbers, times, spans, numbers > 1]))
    digits = "9" * 400

    for column, (low, high) in enumerate(
        [("-" + digits, digits), ("1500-01-01", "2500-01-01T00:00Z"), ("-" + digits, digits)]
    ):
        assert served.positions({"column": column, "low": low, "high": high}) == [0, 1, 2, 3]
        assert (
            served.positions({"column": column, "low": high})
            == served.positions({"column": column, "high": low})
            == []
        )
    assert (
        served.positions({"contains": digits})
        == served.positions({"column": 3, "values": [digits]})
        == []
    )
    for text in ("2024-01-02T00:00+05:00", "now", "2024-13-01"):
        assert served.positions({"column": 1, "low": text}) == []
