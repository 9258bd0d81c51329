"""JSON lines as tables: objects as they are, types over several blocks, limits."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError, RequestLimitError
from data_stack.formats.arrow_tables import iterator_of_rows
from data_stack.formats.text_tables.json_rows import open_json_rows
from data_stack.formats.text_tables.json_shapes import shape_of
from data_stack.formats.text_tables.json_table import JsonLinesTable
from data_stack.formats.text_tables.json_types import JSON
from data_stack.formats.text_tables.text_file import TextFile
from data_stack.values.stacked_values import python_values


def written(lines: Sequence[Any]) -> io.BytesIO:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return io.BytesIO("\n".join(texts).encode())


def read(*lines: Any, **options: Any) -> Any:
    return data_stack.from_jsonl(written(lines), **options)


def read_in_blocks(*lines: Any, block_bytes: int) -> Any:
    rows = open_json_rows(written(lines), {}, None, block_bytes=block_bytes)
    return iterator_of_rows(rows, "x", None)


# ---------------------------------------------------------------------- objects as they are


@pytest.mark.parametrize(
    "values",
    [
        [[{"role": "user", "content": "x"}, {"role": "tool", "call": {"name": "f"}}]],
        [{"q": 1}, {"q": "two"}],
        [{"q": 1}, {"p": 1}, None],
        [[[0, 4, "Process"]], []],
        [{"a": {"b": 1}}, {"a": [1]}],
        [{"a": True}, {"a": 1.5}],
        [{"a": 1.5}, {"a": True}],
        [{"n": 2**53 + 1}, {"n": 0.5}],
        [{"n": 2**70}],
        [[1], [{"a": 1}]],
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_lists_and_objects_that_differ_are_as_in_the_file(
    values: list[Any], block_bytes: int
) -> None:
    rows = read_in_blocks(*[{"v": value} for value in values], block_bytes=block_bytes)

    assert repr([row["v"] for row in rows]) == repr(values)
    assert repr(rows.read_column("v").tolist()) == repr(values)
    assert rows.to_arrow().to_pydict()["v"] == [
        None if value is None else json.dumps(value, separators=(",", ":")) for value in values
    ]
    assert repr(rows.to_pandas()["v"].tolist()) == repr(values)


def test_a_value_that_is_changed_does_not_change_the_table() -> None:
    rows = read({"v": {"a": 1}}, {"v": {"b": [2]}})

    rows[0]["v"]["a"] = 7
    rows.read_column("v")[1]["b"].append(3)

    assert [row["v"] for row in rows] == [{"a": 1}, {"b": [2]}]
    assert rows.fingerprint() == read({"v": {"a": 1}}, {"v": {"b": [2]}}).fingerprint()
    assert rows.fingerprint() != read({"v": {"a": 1}}, {"v": {"b": [3]}}).fingerprint()


def test_objects_of_the_same_keys_are_structs() -> None:
    rows = read({"v": {"a": 1, "b": [1.5]}}, {"v": {"b": [], "a": None}}, {"v": None})

    assert str(rows.to_arrow().schema.field("v").type) == "struct<a: int64, b: list<item: double>>"
    assert rows[1]["v"]["a"] is None
    assert rows[2]["v"] is None


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(st.lists(_JSON, min_size=1, max_size=4))
def test_each_value_comes_back_or_the_file_is_refused(values: list[Any]) -> None:
    kinds = {type(value) for value in values if value is not None}
    try:
        rows = read(*[{"v": value} for value in values])
    except DatasetFileCorruptError:
        assert len(kinds) > 1 or kinds == {int}
        return

    assert [plain(row["v"]) for row in rows] == values


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(python_values(value))
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


# ---------------------------------------------------------------------- types of several blocks


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, None, 2.5], "double"),
        ([None, "x"], "string"),
        ([[1], [2.5], []], "list<item: double>"),
        ([{"a": None}, {"a": 1}], "struct<a: int64>"),
        ([{"a": 1, "b": 2}, {"b": 1, "a": 0.5}], "struct<a: double, b: int64>"),
        ([[1], ["x"]], "json"),
        ([{"a": 2**53 + 1}, {"a": 0.5}], "json"),
    ],
)
def test_types_are_those_of_all_lines(values: list[Any], type_: str) -> None:
    text = TextFile(written([{"v": value} for value in values]))

    types, tables = JsonLinesTable(text, {}, block_bytes=1).stream()

    assert str(types["v"]) == type_
    cells = [cell for table in tables for cell in table["v"].to_pylist()]
    assert [json.loads(cell) if types["v"] == JSON else cell for cell in cells] == values


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [1, "A2"],
            r"line 1 has 1, line 2 'A2'; pass dtypes=\{'v': str\}.*or dtypes=\{'v': 'json'\}",
        ),
        ([None, True, 1], "line 2 has True, line 3 1"),
        ([1.5, {"a": 1}], r"line 1 has 1\.5, line 2"),
        ([0.5, 2**53 + 1], r"line . (has )?9007199254740993"),
        ([2**63], r"line 1, key 'v': int64 has no number .*'uint64'"),
        ([2**64, 1], "line 1 has a number that int64 and float64 lack"),
    ],
)
def test_values_of_several_types_are_refused_with_their_lines(
    values: list[Any], message: str, block_bytes: int
) -> None:
    rows = [{"v": value} for value in values]

    with pytest.raises(DatasetFileCorruptError, match=message):
        read_in_blocks(*rows, block_bytes=block_bytes)

    assert [row["v"] for row in read(*rows, dtypes={"v": "json"})] == values
    assert [row["v"] for row in read(*rows, dtypes={"v": str})] == [
        value
        if value is None or isinstance(value, str)
        else json.dumps(value, separators=(",", ":"))
        for value in values
    ]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("1.5", "int64"),
        ("true", "int64"),
        ("300", "int8"),
        ("1e300", "float32"),
        ("70000", "float16"),
        ("16777217", "float32"),
        ("9007199254740993", "float64"),
        ("true", "float64"),
        ('"x"', "float64"),
        ("1706659200", "datetime64[s]"),
        ('"12/31/2022"', "timestamp"),
        ("1.005", "decimal(10,2)"),
        ('"x"', "decimal(10,2)"),
        ('"1_0"', "decimal(10,2)"),
        ('"\u0663"', "decimal(10,2)"),
        ('"1e99999999999999999999"', "decimal(10,2)"),
        ("1", "bool"),
    ],
)
def test_a_declared_dtype_that_would_change_a_value_is_refused(text: str, dtype: str) -> None:
    with pytest.raises(DatasetFileCorruptError, match=r"line 2, key 'v': .* does not fit"):
        read('{"v": null}', f'{{"v": {text}}}', dtypes={"v": dtype})


def test_declared_text_and_decimals_have_the_digits_of_the_file() -> None:
    lines = ['{"v": 1.10}', '{"v": 12345678901234567890.5}', '{"v": 7}']

    texts = read(*lines, dtypes={"v": str})
    decimals = read(*lines, dtypes={"v": "decimal(30,2)"})
    integers = read('{"v": 1.0}', dtypes={"v": "int16"})

    assert texts.read_column("v").tolist() == ["1.10", "12345678901234567890.5", "7"]
    assert decimals[1]["v"] == Decimal("12345678901234567890.50")
    assert integers[0]["v"] == 1


# ---------------------------------------------------------------------- damage and limits


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1, "a": 2}', "line 2: invalid JSON: a name occurs twice"),
        ('{"a": {"b": 1, "b": 1}}', "line 2: invalid JSON: a name occurs twice"),
        ('{"a": 1e400}', "line 2: invalid JSON: float64 has no number 1e400"),
        ('{"a": [1e-400]}', "line 2: invalid JSON: float64 has no number 1e-400"),
        ('{"a": 1' + "0" * 5000 + "}", "line 2: invalid JSON: a number has thousands of digits"),
        ('{"a": 1' + "0" * 4000 + "}", "line 2 has a number that int64 and float64 lack"),
        ('{"a": "x}', "line 2, column 7: invalid JSON: Unterminated string$"),
        ('{"a": 1} x', "line 2, column 10: invalid JSON: Extra data$"),
        ('{"a":', "line 2, column 6: .*each line must hold a whole JSON object"),
    ],
)
def test_a_line_that_would_change_is_refused(line: str, message: str) -> None:
    with pytest.raises(DatasetFileCorruptError, match=message):
        read('{"a": 1}', line)


@pytest.mark.parametrize("dtypes", [{}, {"a": str}, {"a": "json"}])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (r'{"a": "\ud83d"}', "line 2, key 'a': .* has half of a character"),
        (r'{"a": "x\ude00"}', "line 2, key 'a': .* has half of a character"),
        (r'{"a": "x", "\ud83d": 1}', "the key .* has half of a character"),
    ],
)
def test_half_of_a_character_is_refused(line: str, message: str, dtypes: dict[str, Any]) -> None:
    with pytest.raises(DatasetFileCorruptError, match=message):
        read('{"a": "\\ud83d\\ude00"}', line, dtypes=dtypes)


def test_half_of_a_character_in_a_list_is_refused() -> None:
    with pytest.raises(DatasetFileCorruptError, match=r"line 2, key 'a': .* has half of a char"):
        read('{"a": ["x"]}', r'{"a": ["x", "\ude00"]}')


def test_a_line_in_another_encoding_is_refused() -> None:
    for encoding in ("latin-1", "utf-16", "utf-16-le"):
        text = '{"a": 1}\n{"a": "é"}\n'.encode(encoding)

        with pytest.raises(DatasetFileCorruptError, match=r"is (not )?text in utf-.*to utf-8"):
            data_stack.from_jsonl(io.BytesIO(text))


def test_a_table_of_other_keys_in_each_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_STACK_MAX_REQUEST_BYTES", str(1 << 20))
    lines = [{f"k{number}": 1} for number in range(400)]

    with pytest.raises(RequestLimitError, match="400 different keys"):
        read(*lines)
    assert len(read(*[{"v": line} for line in lines])[7]["v"]) == 1


def test_objects_of_other_keys_each_get_no_common_type() -> None:
    values = [{f"k{number}": number} for number in range(5000)]

    shape = shape_of(values)
    rows = read(*[{"index": value} for value in values])

    assert shape is None  # a common type would have a cell for each key of each object
    assert rows[4999] == {"index": values[4999]}


@pytest.mark.parametrize(
    "line", ['{"a": [' + "{}," * 400_000 + "1]}", '{"a": "' + "x" * (17 << 20)]
)
def test_a_long_line_is_bounded(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_STACK_MAX_REQUEST_BYTES", str(16 << 20))

    with pytest.raises(RequestLimitError, match="line"):
        read(line)


def test_a_key_that_is_not_there_is_no_dtype() -> None:
    with pytest.raises(ConfigError, match=r"no column 'ages' for dtypes \(did you mean 'age'\?\)"):
        read({"age": 1}, dtypes={"ages": "int8"})


def test_columns_of_json_survive_selection_and_recipes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "v": {"a": 1}}\n{"id": "x", "v": {"b": 2}}\n')

    rows = data_stack.load(path, dtypes={"id": "json"}).shuffle(seed=1).select("v", "id")
    again = data_stack.from_recipe(json.dumps(rows.recipe()))

    assert list(again) == list(rows)
    assert sorted(row["v"].popitem() for row in rows) == [("a", 1), ("b", 2)]
    pd.testing.assert_frame_equal(again.to_pandas(), rows.to_pandas())


def test_lists_and_objects_have_one_type_in_all_splits(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"v": {"a": 1}, "n": [1, 2]}\n')
    (tmp_path / "test.jsonl").write_text('{"v": {"b": "x"}, "n": [1.5]}\n')

    splits = data_stack.load(tmp_path)

    assert [splits[name][0]["v"] for name in splits] == [{"a": 1}, {"b": "x"}]
    assert [splits[name][0]["n"].dtype for name in splits] == [np.float64, np.float64]
    assert data_stack.from_recipe(splits["train"].recipe())[0]["n"].tolist() == [1, 2]
