"""What the pages ask for: samples, filters, histograms, pictures, duplicates."""

from __future__ import annotations

import time
import urllib.parse
from typing import Any

import numpy as np
import pytest
from browse_kit import CLASSES, Samples, Serve, Served


def test_an_overview_names_splits_and_columns(pictures: Served) -> None:
    overview = pictures.get("/api/overview").json

    assert [(split["name"], split["n_samples"], split["class_column"]) for split in overview["splits"]] == [
        ("train", 120, 1),
        ("test", 30, 1),
    ]
    columns = overview["splits"][0]["columns"]
    assert [(each["name"], each["role"], each["kind"], each["has_picture"], each["is_plain"]) for each in columns] == [
        ("image", "sample", "image", True, False),
        ("label", "target", "number", False, True),
        ("tag", "tag", "text", False, True),
    ]


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


OVERVIEW, SAMPLES, HISTOGRAMS = "/api/overview", "/api/samples?split=0&start=0", "/api/histograms?split=0"
SAMPLE, COMPARE, DUPLICATES = "/api/sample?split=0&position=0", "/api/compare?name=label", "/api/duplicates?column=0"
PICTURE = "/picture?split=0&position=0&column=0"
NO_NUMBERS = ("", "x", "1e3", "+1", "\u0663", "9" * 20)


@pytest.mark.parametrize(
    ("path", "name", "values"),
    [
        *((path, "split", ("-1", "2", *NO_NUMBERS)) for path in (SAMPLES, HISTOGRAMS, SAMPLE, PICTURE)),
        *((path, "position", ("-1", "-120", "120", "9" * 19, *NO_NUMBERS)) for path in (SAMPLE, PICTURE)),
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
def test_each_parameter_out_of_range_is_an_error(pictures: Served, path: str, name: str, values: tuple[str, ...]) -> None:
    route, _, query = path.partition("?")
    good: dict[str, Any] = dict(urllib.parse.parse_qsl(query))

    answers = {value: pictures.get(route, **{**good, name: value}) for value in values}

    assert pictures.get(route, **good).status == 200
    assert {value: answer.status for value, answer in answers.items() if answer.status not in (400, 404)} == {}
    assert {value: answer.body for value, answer in answers.items() if list(answer.json) != ["error"]} == {}


def test_a_sample_is_shown_in_full(pictures: Served) -> None:
    sample = pictures.get("/api/sample", split=0, position=9).json

    assert [(field["name"], field["has_picture"]) for field in sample["fields"]] == [
        ("image", True),
        ("label", False),
        ("tag", False),
    ]
    assert sample["fields"][1]["text"] == "cat (0)"


def test_samples_that_cannot_be_read_say_so_in_place(serve: Serve) -> None:
    samples = [{"x": 1, "text": "one"}, ValueError("<b>broken</b>"), {"text": "no x"}, {"x": 4, "text": "four"}]
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

    overview, found = served.get("/api/overview").json, served.samples()
    columns = ",".join(str(number) for number, each in enumerate(overview["splits"][0]["columns"]) if each["is_plain"])

    assert "error" not in overview["splits"][0]
    assert [each["position"] for each in found["samples"]] == [0, 1, 2]
    assert served.get("/api/sample", split=0, position=1).status == 200
    assert served.get("/api/histograms", split=0, columns=columns).status == 200
    assert served.samples({"contains": "7"})["n_found"] == 0


def test_an_empty_split_and_one_that_cannot_be_opened_leave_the_others_alone(serve: Serve) -> None:
    class Broken(Samples):
        def __len__(self) -> int:
            raise OSError("the disk is gone")

    served = serve(empty=Samples(), broken=Broken(), whole=Samples(1, 2))

    splits = served.get("/api/overview").json["splits"]

    assert [split["n_samples"] for split in splits] == [0, 0, 2]
    assert splits[1]["error"] == "OSError: the disk is gone"
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
    assert (found["state"], found["is_leaking"]) == ("done", True)
    assert found["between"][0]["n_in_second"] == 30
    assert found["between"][0]["positions"][:2] == [[0, 0], [1, 1]]
    assert [each["n_repeats"] for each in found["within"]] == [0, 0]
