"""CSV, JSON lines and ``.npy`` as targets of conversions: read again, the values are the same, or
an error says why not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.exception import ConfigError
from data_stack.formats import convert
from data_stack.formats.text_tables.csv_writer import field_of_value


def dicts(rows: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


def test_a_csv_file_holds_missing_values_times_and_quotes(tmp_path: Path) -> None:
    source = tmp_path / "source.csv"
    source.write_text('t,n,f,b,s\n2024-01-02,1,0.1,true,"a,""b"" c"\n,,nan,false,"x\ny"\n')

    report = convert(source, tmp_path / "target.csv")

    assert report.n_verified == 2
    before = data_stack.load(str(source))
    after = data_stack.load(str(tmp_path / "target.csv"))
    assert repr(dicts(after)) == repr(dicts(before))


def test_tab_separated_values_are_written_with_tabs(tmp_path: Path) -> None:
    samples = data_stack.from_numpy({"a": np.arange(2), "b": np.array(["x,y", "z"])})

    convert(samples, tmp_path / "target.tsv")

    assert (tmp_path / "target.tsv").read_text() == "a\tb\n0\tx,y\n1\tz\n"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["007", "008"], "csv cannot hold the values"),
        (["", "a"], "an empty text, which readers take for a missing value, in sample 0"),
        ([" 1", "2"], "csv cannot hold the values"),
        ([1j, 2j], "csv|a complex"),
        ([[1, 2], [3]], "a list in sample 0"),
    ],
)
def test_values_that_csv_would_change_are_refused(
    tmp_path: Path, values: list[Any], message: str
) -> None:
    samples = data_stack.from_torch([{"x": value} for value in values])

    with pytest.raises(ConfigError, match=message):
        convert(samples, tmp_path / "target.csv")

    assert not list(tmp_path.iterdir())


def test_json_lines_hold_lists_and_objects(tmp_path: Path) -> None:
    rows = [{"x": [1, 2], "y": {"a": None}, "z": "ü\n"}, {"x": [3], "y": {"a": 1}, "z": ""}]

    convert(data_stack.from_torch(rows), tmp_path / "target.jsonl")

    after = dicts(data_stack.load(str(tmp_path / "target.jsonl")))
    assert [list(row["x"]) for row in after] == [[1, 2], [3]]
    assert [(row["y"], row["z"]) for row in after] == [(row["y"], row["z"]) for row in rows]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 3, 3)), r"an array of shape \(3, 3\)"),
        (np.array([1.0, np.nan]), "JSON cannot hold column 'x', sample 1"),
        (np.array([2**63, 1], np.uint64), "jsonl cannot hold the values"),
    ],
)
def test_values_that_json_lines_would_change_are_refused(
    tmp_path: Path, values: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        convert(data_stack.from_numpy({"x": values}), tmp_path / "target.jsonl")

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=np.int16).reshape(3, 2),
        np.array(["a", "bcd", ""]),
        np.array(["2024-01-01", "NaT", "2024-02-03"], "datetime64[D]"),
    ],
)
def test_an_npy_file_holds_one_column(tmp_path: Path, values: Any) -> None:
    samples = data_stack.from_numpy({"x": values, "other": np.arange(3)})

    convert(samples, tmp_path / "x.npy", columns="x")

    stored = np.load(tmp_path / "x.npy")
    np.testing.assert_array_equal(stored, values)
    with pytest.raises(ConfigError, match="holds one column"):
        convert(samples, tmp_path / "two.npy")


def test_bare_numbers_are_converted_with_their_dtype(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(np.arange(5, dtype="<u2").tobytes())

    with pytest.raises(ConfigError, match="by dtype="):
        convert(tmp_path / "tokens.bin", tmp_path / "tokens.npy")
    convert(tmp_path / "tokens.bin", tmp_path / "tokens.npy", options={"dtype": "uint16"})

    assert np.load(tmp_path / "tokens.npy").tolist() == [0, 1, 2, 3, 4]


def test_a_compressed_target_is_refused(tmp_path: Path) -> None:
    samples = data_stack.from_numpy({"x": np.arange(3)})

    with pytest.raises(ConfigError, match=r"choose 'x\.csv'"):
        convert(samples, tmp_path / "x.csv.gz")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, ""),
        (True, "true"),
        (np.int8(-3), "-3"),
        (np.float32(0.1), "0.10000000149011612"),
        (float("inf"), "inf"),
        (np.datetime64("2024-01-02T03:04"), "2024-01-02T03:04"),
        (np.datetime64("NaT"), ""),
        ("ü", "ü"),
    ],
)
def test_a_value_has_one_text_in_csv(value: Any, field: str) -> None:
    assert field_of_value(value) == field
