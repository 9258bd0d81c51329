"""Values of columns: their types, histograms, filters by range, and which of them is a caption."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browse_kit import CLASSES, Serve, Served

from data_stack import SequenceDatasetIterator


def test_ranges_and_missing_values(serve: Serve) -> None:
    numbers = [0.5, float("nan"), -1.0, 2.0, float("inf"), 2.5]
    times = np.array(["2024-01-01", "2024-02-01", "NaT", "2024-03-01", "2024-04-01", "2024-05-01"], dtype="M8[D]")
    texts = ["a", None, "c", "", "é", "A"]
    served = serve(all=SequenceDatasetIterator([numbers, list(times), texts]))

    assert served.positions({"column": 0, "low": "0.5", "high": "2.5"}) == [0, 3]
    assert served.positions({"column": 0, "low": "0.5", "high": "2.5", "closed": True}) == [0, 3, 5]
    assert served.positions({"column": 0, "low": "nan"}) == served.positions({"column": 0, "low": "many"}) == []
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
    moments = [datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(days=day) for day in range(500)]
    columns = [holed(np.arange(500) / 7), holed(range(500)), holed(days), holed(moments), holed([2**60 + n for n in range(500)])]
    served = serve(all=SequenceDatasetIterator(columns))

    found = served.get("/api/histograms", split=0, columns="0,1,2,3,4").json["columns"]

    assert [found[each]["kind"] for each in "01234"] == ["ranges", "ranges", "ranges", "ranges", "texts"]
    assert {found[each]["n_missing"] for each in "01234"} == {200}
    for each in "0123":
        bars = found[each]["bars"]
        assert [served.samples(bar["where"], count=0)["n_found"] for bar in bars] == [bar["count"] for bar in bars]
    assert served.positions({"column": 2, "low": "2024-01-21", "high": "2024-01-23"}) == [20, 21]
    assert served.positions({"column": 3, "low": "2024-01-21", "high": "2024-01-23"}) == [20, 21]
    assert served.positions({"column": 4, "values": [str(2**60 + 21)]}) == [21]


def test_histograms_count_all_rows_and_those_that_are_chosen(pictures: Served) -> None:
    where = '[{"column": 1, "values": ["0"]}, {"contains": "tag 1"}]'

    found = pictures.get("/api/histograms", split=0, columns="1,2", where=where).json

    assert (found["n_read"], found["is_complete"]) == (120, True)
    labels, tags = found["columns"]["1"], found["columns"]["2"]
    assert [(bar["label"], bar["count"], bar["where"]["values"]) for bar in labels["bars"]] == [
        (name, 40, [str(number)]) for number, name in enumerate(CLASSES)
    ]
    n_found = [len(pictures.positions({"column": 1, "values": [str(each)]}, {"contains": "tag 1"})) for each in range(3)]
    assert [bar["counts"][0] for bar in labels["bars"]] == n_found  # the filter of the column itself does not count
    assert (tags["kind"], tags["n_distinct"], tags["bars"]) == ("texts", 120, [])


def test_a_large_split_is_searched_in_parts_and_its_histograms_are_of_some_samples(serve: Serve) -> None:
    numbers = np.arange(300_000)
    served = serve(all=SequenceDatasetIterator([numbers % 1000, numbers]))

    first = served.samples({"column": 1, "low": "299990"}, count=5)
    while not first["is_complete"]:
        first = served.samples({"column": 1, "low": "299990"}, count=5)
    found = served.get("/api/histograms", split=0, columns="1").json

    assert ([each["position"] for each in first["samples"]], first["n_found"]) == ([299990 + each for each in range(5)], 10)
    assert served.positions({"column": 0, "values": ["999"]})[:2] == [999, 1999]
    assert found["n_read"] < found["n_samples"] == 300_000
    bars = [bar["count"] for bar in found["columns"]["1"]["bars"]]
    assert sum(bars) == found["n_read"]
    assert not found["is_complete"] or min(bars) > 0


def test_bounds_beyond_what_a_column_holds_are_compared_as_they_are(serve: Serve) -> None:
    numbers, spans = np.arange(4), np.arange(4).astype("m8[s]")
    times = np.datetime64("2024-01-01", "ns") + np.arange(4).astype("m8[D]")
    served = serve(all=SequenceDatasetIterator([numbers, times, spans, numbers > 1]))
    digits = "9" * 400

    for column, (low, high) in enumerate([("-" + digits, digits), ("1500-01-01", "2500-01-01T00:00Z"), ("-" + digits, digits)]):
        assert served.positions({"column": column, "low": low, "high": high}) == [0, 1, 2, 3]
        assert served.positions({"column": column, "low": high}) == served.positions({"column": column, "high": low}) == []
    assert served.positions({"contains": digits}) == served.positions({"column": 3, "values": [digits]}) == []
    for text in ("2024-01-02T00:00+05:00", "now", "2024-13-01"):
        assert served.positions({"column": 1, "low": text}) == []
