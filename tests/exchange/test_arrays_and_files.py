"""Arrays, torch datasets, folders of images, CSV and JSON lines as samples; samples for
TensorFlow.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_or_stand_in import torch

import data_stack
from data_stack.exception import (
    ArchiveLimitError,
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    MissingFileError,
    RecipeError,
)
from data_stack.formats import write_image_folder

# ------------------------------------------------------------------ arrays


def test_arrays_become_tuples_and_a_mapping_dicts() -> None:
    images, labels = np.zeros((3, 2, 2), np.uint8), np.arange(3)

    pairs = data_stack.from_numpy(images, labels, target=1, class_names=["a", "b", "c"])
    fields = data_stack.from_numpy({"image": images, "label": labels}, target="label")

    assert pairs[2][1] == fields[2]["label"] == 2
    assert (pairs.dataset_meta.target_pos, pairs.dataset_meta.class_names) == (1, ("a", "b", "c"))  # type: ignore[attr-defined]
    assert (fields.dataset_meta.sample_pos, fields.dataset_meta.target_pos) == ("image", "label")  # type: ignore[attr-defined]
    assert data_stack.from_numpy({"image": images}).to_arrow().schema.names == ["image"]
    assert list(data_stack.from_numpy(images[:0], labels[:0]).to_pandas().dtypes.astype(str)) == [
        "object",
        "int64",
    ]


def test_records_masks_and_memory_maps_are_arrays_too(tmp_path: Path) -> None:
    records = np.zeros(2, [("a", "i4"), ("b", "f4", (2,))])
    np.save(tmp_path / "big.npy", np.arange(6).reshape(3, 2))
    mapped = np.load(tmp_path / "big.npy", mmap_mode="r")

    assert data_stack.from_numpy(records)[1]["b"].tolist() == [0, 0]
    assert data_stack.from_numpy(np.ma.array([1, 2], mask=[True, False])).read_column(
        0
    ).tolist() == [None, 2]
    assert np.shares_memory(data_stack.from_numpy(mapped)[1][0], mapped)


@given(
    st.lists(st.integers(-(2**40), 2**40)),
    st.sampled_from(["int64", "float32", "bool", "complex64", "datetime64[s]"]),
)
def test_arrays_come_back_from_pandas_with_their_dtype(values: list[int], dtype: str) -> None:
    array = np.array(values, "int64").astype(dtype)

    back = data_stack.from_numpy({"a": array}).to_pandas()["a"].to_numpy()

    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: data_stack.from_numpy(np.zeros(2), np.zeros(3)),
            r"of one length; theirs are \[2, 3\]",
        ),
        (lambda: data_stack.from_numpy(np.zeros(2), target=1), "target 1 "),
        (lambda: data_stack.from_numpy(np.float64(3)), r"of shape \(n, …\)"),
        (lambda: data_stack.from_torch(iter([1])), r"with len\(\) and \[i\]"),
        (lambda: data_stack.from_torch([(1, 2)], target=2), "the columns are 0, 1"),
    ],
)
def test_no_rows_or_an_unknown_column_is_an_error(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


# ------------------------------------------------------------------ torch and TensorFlow


class _Pets(torch.utils.data.Dataset[Any]):
    classes = ("cat", "dog")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((2,), index), index % 2


def test_tensors_are_not_copied_other_datasets_are_read_by_index() -> None:
    tensors = torch.arange(6).reshape(3, 2)

    of_tensors = data_stack.from_torch(
        torch.utils.data.TensorDataset(tensors, torch.arange(3)), target=1
    )
    pets = data_stack.from_torch(_Pets())

    assert of_tensors[1][0].data_ptr() == tensors[1].data_ptr()
    assert pets.dataset_meta.class_names == ("cat", "dog")  # type: ignore[attr-defined]
    assert pets.read_column(1).tolist() == [0, 1, 0, 1]
    assert data_stack.from_torch(torch.utils.data.Subset(_Pets(), [3])).to_pandas()[
        "column_1"
    ].tolist() == [1]
    assert data_stack.from_torch([{"x": 1, "y": 2}], target="y").dataset_meta.sample_pos == "x"  # type: ignore[attr-defined]


# ------------------------------------------------------------------ files


def test_a_folder_of_pictures_knows_its_classes(tmp_path: Path) -> None:
    rows = [{"image": np.full((2, 3), number, np.uint8)} for number in range(2)]
    for name in ("cat", "dog"):
        write_image_folder(tmp_path / name, rows)
        (tmp_path / name / "metadata.jsonl").unlink()

    pets = data_stack.from_folder(tmp_path)

    assert pets.dataset_meta.class_names == ("cat", "dog")  # type: ignore[attr-defined]
    assert pets.read_column("label").tolist() == [0, 0, 1, 1]
    assert pets.to_huggingface().features["label"].names == ["cat", "dog"]


_CSV = b'\xef\xbb\xbfid,name,day,zip,x\r\n1,"a, ""b""\n",2020-01-01,007,1e3\r\n2,,,008,NaN\r\n'


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_csv_file_tells_its_dtypes_and_takes_others(tmp_path: Path, pack: Any) -> None:
    (tmp_path / "a.csv").write_bytes(pack(_CSV))

    inferred = data_stack.from_csv(tmp_path / "a.csv")
    given = data_stack.from_csv(
        tmp_path / "a.csv",
        dtypes={"zip": str, "id": "int8", "x": "decimal(10,2)"},
        missing=["", "NaN"],
    )

    types = ["int64", "str or None", "datetime64[D] or None", "int64", "float64"]
    assert list(inferred.column_types.values()) == types  # type: ignore[attr-defined]
    assert "zip: int64" in repr(inferred)
    assert list(inferred[0].values()) == [1, 'a, "b"\n', np.datetime64("2020-01-01"), 7, 1000]
    assert (inferred[1]["name"], inferred[1]["day"]) == (None, None)
    assert np.isnan(inferred[1]["x"])
    assert (given[1]["zip"], given[1]["x"], str(given.to_pandas()["id"].dtype)) == (
        "008",
        None,
        "int8",
    )
    assert (
        pickle.loads(pickle.dumps(inferred)).fingerprint()
        == data_stack.from_csv(tmp_path / "a.csv").fingerprint()
    )


def test_types_are_those_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 400_000 + "1.5,x\n")

    assert data_stack.from_csv(tmp_path / "a.csv").column_types == {"a": "float64", "b": "str"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (
            ["12345678901234567890", "12345678901234567891"],
            "uint64",
            [12345678901234567890, 12345678901234567891],
        ),
        (["12345678901234567890", ""], "uint64 or None", [12345678901234567890, None]),
        (["18446744073709551617", "7"], "str", ["18446744073709551617", "7"]),
        (["12345678901234567890", "-1"], "str", ["12345678901234567890", "-1"]),
        (["9007199254740993", "0.5"], "str", ["9007199254740993", "0.5"]),
        (["9007199254740994", "0.5"], "float64", [9007199254740994.0, 0.5]),
        (["9007199254740993", "7"], "int64", [9007199254740993, 7]),
        (["9" * 5000, "0.5"], "str", ["9" * 5000, "0.5"]),
        (["1e300", "0.5"], "float64", [1e300, 0.5]),
        (["0x10", "12"], "str", ["0x10", "12"]),
        ([" -0X1", "12"], "str", [" -0X1", "12"]),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_column_stays_text_where_numbers_would_change_it(
    cells: list[str], dtype: str, values: list[Any], encoding: str
) -> None:
    text = "id,n\n" + "".join(f"0x,{cell}\n" for cell in cells)

    rows = data_stack.from_csv(io.BytesIO(text.encode(encoding)), encoding=encoding)

    assert rows.column_types["n"] == dtype  # type: ignore[attr-defined]
    assert [row["n"] for row in rows] == values


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_file_with_another_delimiter_is_read_with_a_hint(delimiter: str) -> None:
    with pytest.warns(
        UserWarning, match="has one column, .*pass delimiter=" + re.escape(repr(delimiter))
    ):
        rows = data_stack.from_csv(io.BytesIO(f"a{delimiter}b\n1{delimiter}2\n".encode()))

    assert len(rows[0]) == 1
    with pytest.raises(DatasetFileCorruptError, match=r"got 2.*pass delimiter="):
        data_stack.from_csv(io.BytesIO(f"a{delimiter}b\n1,5{delimiter}2\n".encode()))
    assert data_stack.from_csv(
        io.BytesIO(f"a{delimiter}b\n1{delimiter}2\n".encode()), delimiter=delimiter
    )[0] == {"a": 1, "b": 2}


def test_json_lines_have_nested_values_and_missing_keys(tmp_path: Path) -> None:
    lines = '{"a": 1, "t": "2020-01-01", "l": [1, 2]}\n\n{"b": {"x": [null, "y"]}, "a": null, "big": 18446744073709551615}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))

    first, second = data_stack.from_jsonl(
        tmp_path / "a.jsonl.gz", dtypes={"big": "uint64", "t": "timestamp_ntz", "a": str}
    )

    assert (first["a"], first["t"], first["l"].tolist(), first["b"]) == (
        "1",
        np.datetime64("2020-01-01"),
        [1, 2],
        None,
    )
    assert (second["a"], second["b"], second["big"], second["l"]) == (
        None,
        {"x": [None, "y"]},
        2**64 - 1,
        None,
    )


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (data_stack.from_csv, b"", "cannot be read as CSV: Empty"),
        (data_stack.from_csv, b"a,b\n1\n", "Expected 2 columns, got 1"),
        (data_stack.from_csv, b"a,a\n1,2\n", "different names"),
        (data_stack.from_csv, b"a\n\xff\n", "column 'a' is not text in utf-8"),
        (data_stack.from_jsonl, b"[1]\n", "line 1: expected an object"),
        (data_stack.from_jsonl, b'{"a": 1}\n{"a":\n', "line 2, column 6: invalid JSON"),
        (data_stack.from_jsonl, b'{"a": ' + b"[" * 100_000, "line 1: invalid JSON: JSON is nested"),
        (data_stack.from_jsonl, b'{"a": 1}\n{"a": "x"}', "key 'a': its values are not of one type"),
        (data_stack.from_jsonl, b"\n", "has no columns"),
        (data_stack.from_jsonl, b'{"n": 9007199254740993}\n{"n": 0.5}\n', "key 'n'"),
        (
            partial(data_stack.from_csv, dtypes={"zap": str}),
            _CSV,
            r"no column 'zap' for dtypes \(did you mean 'zip'\?\); it has",
        ),
        (
            partial(data_stack.from_csv, dtypes={"name": "int64"}),
            _CSV,
            r"line 2, column 'name': 'a, .* does not fit int64; pass another dtype",
        ),
        (partial(data_stack.from_csv, dtypes={"id": "foo"}), _CSV, "scalar type 'foo'"),
    ],
)
def test_damaged_files_and_wrong_types_are_errors_that_say_where(
    tmp_path: Path, read: Any, data: bytes, message: str
) -> None:
    (tmp_path / "file").write_bytes(data)

    with pytest.raises((DatasetFileCorruptError, ConfigError), match=message):
        read(tmp_path / "file")
    with pytest.raises(MissingFileError):
        read(tmp_path / "none")


def test_a_file_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"a\n" + b"0\n" * 10_000_000))

    with pytest.raises(ArchiveLimitError, match="more than 200 fold"):
        data_stack.from_csv(tmp_path / "a.csv")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_recipe_opens_an_unchanged_csv_file_again(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.csv{suffix}"
    text = b"x;y\n007;1\n008;2\n"
    path.write_bytes(gzip.compress(text) if suffix else text)
    dtypes = {"x": str, "y": np.float32}
    rows = data_stack.from_csv(path, target="y", delimiter=";", dtypes=dtypes).shuffle(seed=1)

    recipe = rows.recipe()
    rebuilt = data_stack.from_recipe(json.dumps(recipe))

    assert recipe["reproducible"] is True
    assert rebuilt.fingerprint() == rows.fingerprint()
    assert list(rebuilt) == list(rows)


def test_a_recipe_opens_an_unchanged_jsonl_file_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1, "when": "2026-01-01"}\n')
    lines = data_stack.from_jsonl(path)

    recipe = lines.recipe()
    rebuilt = data_stack.from_recipe(json.dumps(recipe))

    assert recipe["reproducible"] is True
    assert rebuilt.fingerprint() == lines.fingerprint()
    assert list(rebuilt) == list(lines)


def test_recipes_of_changed_or_missing_files_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x;y\n007;1\n008;2\n")
    recipe = data_stack.from_csv(path, delimiter=";").recipe()

    path.write_bytes(b"x;y\n007;1\n")
    with pytest.raises(RecipeError, match=r"a\.csv.* has changed: its SHA-256 is \w+"):
        data_stack.from_recipe(recipe)
    path.unlink()
    with pytest.raises(DataStackError, match=r"a\.csv"):
        data_stack.from_recipe(recipe)


def test_no_recipe_makes_rows_or_reads_other_sources(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x\n1\n")
    in_memory = data_stack.from_csv(io.BytesIO(b"x\n1\n"))
    recipe = data_stack.from_csv(path).recipe()

    assert in_memory.fingerprint() == data_stack.from_csv(path).fingerprint()  # wherever it lies
    assert "as one of sources=[" in in_memory.recipe()["why_not"][0]
    for name, value in {"path": "https://localhost/a.csv", "function": "load"}.items():
        (node,) = recipe["nodes"]
        other = {**recipe, "nodes": [{**node, "arguments": {**node["arguments"], name: value}}]}
        with pytest.raises(RecipeError, match="by from_csv or from_jsonl from a path"):
            data_stack.from_recipe(other)


_FAR_TIMES = [
    "2500-01-01T01:02:03.5",
    "0001-01-01T00:00:00.000000001",
    "2262-04-11T23:47:16.854775808",
    "1677-09-21T00:12:43.145224191",
]


@pytest.mark.parametrize("time", _FAR_TIMES)
def test_a_time_beyond_nanoseconds_is_text_or_refused(time: str) -> None:
    csv = f"x\n2020-01-01T00:00:00.000000001\n{time}\n".encode()
    json_line = json.dumps({"x": time}).encode()
    dtypes = {"x": "datetime64[ns]"}

    assert data_stack.from_csv(io.BytesIO(csv))[1] == {"x": time}
    with pytest.raises(DatasetFileCorruptError, match=r"line 3, column 'x': .*not fit"):
        data_stack.from_csv(io.BytesIO(csv), dtypes=dtypes)
    with pytest.raises(DatasetFileCorruptError, match=r"line 1, key 'x': .*not fit"):
        data_stack.from_jsonl(io.BytesIO(json_line), dtypes=dtypes)


def test_the_last_nanosecond_is_a_time() -> None:
    last = "2262-04-11T23:47:16.854775807"

    inferred = data_stack.from_csv(io.BytesIO(f"x,y\n{last},1\n,2\n".encode()))
    given = data_stack.from_jsonl(
        io.BytesIO(json.dumps({"x": last}).encode()), dtypes={"x": "datetime64[ns]"}
    )

    assert [row["x"] for row in inferred] == [np.datetime64(last), None]
    assert given[0]["x"] == np.datetime64(last)


_UNFIT = [
    ("1.5", "int64"),
    ("300", "int8"),
    ("70000", "float16"),
    ("1e300", "float32"),
    ("16777217", "float32"),
    ("9007199254740993", "float64"),
    ("true", "int64"),
    ("2", "bool"),
    ("1.5", "timedelta64[s]"),
    ("1706659200", "datetime64[s]"),
    ("1.555", "decimal(5,2)"),
    ("5e-324", "decimal(20,3)"),
    ("1e-76", "decimal(20,3)"),
    ("-9223372036854775808", "timedelta64[s]"),
]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(("number", "dtype"), _UNFIT)
def test_a_number_beyond_its_declared_dtype_is_refused(
    tmp_path: Path, number: str, dtype: str, suffix: str
) -> None:
    path = tmp_path / f"x.{suffix}"
    path.write_text(f'{{"x": {number}}}\n' if suffix == "jsonl" else f"x\n{number}\n")

    with pytest.raises(DatasetFileCorruptError, match=r"line [12], (key|column) 'x': .*not fit"):
        data_stack.load(path, dtypes={"x": dtype})


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_number_that_fits_has_its_declared_dtype(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    for number, dtype, value in (
        ("0.1", "float32", np.float32(0.1)),
        ("5", "timedelta64[s]", np.timedelta64(5, "s")),
        ("18446744073709551615", "uint64", 2**64 - 1),
        ("1.10", "str", "1.10"),
        ("15e-1", "decimal(5,2)", Decimal("1.5")),
    ):
        path.write_text(f'{{"x": {number}}}\n' if suffix == "jsonl" else f"x\n{number}\n")

        table = data_stack.load(path, dtypes={"x": dtype})

        assert table[0]["x"] == value
