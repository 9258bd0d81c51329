"""JSON lines that stay in their file: the samples of a table in memory, in workers, from stores."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceChangedError
from data_stack.formats.arrow_tables import iterator_of_rows, iterator_of_table
from data_stack.formats.text_tables import indexed_text, reading
from data_stack.formats.text_tables.json_rows import open_json_rows
from data_stack.formats.text_tables.json_table import JsonLinesTable
from data_stack.formats.text_tables.json_types import JSON
from data_stack.formats.text_tables.text_file import TextFile
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.loader import Loader

_TEXTS = st.text(max_size=3) | st.sampled_from(["NaN", "2020-01-01", "\0", "\u2028"])
_VALUES = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    "bool": st.booleans(),
    "text": _TEXTS,
    "numbers": st.lists(st.integers(0, 9), max_size=3),
    "fractions": st.lists(st.none() | st.floats(width=16, allow_nan=False), max_size=3),
    "texts": st.lists(_TEXTS, max_size=2),
    "objects": st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.lists(_TEXTS)}),
    "several": st.sampled_from([{"a": 1}, {"b": 1.5}, [1], [[2]], []]),
    "null": st.none(),
}


@st.composite
def texts_of_lines(draw: st.DrawFn) -> bytes:
    """Files of JSON lines whose keys are missing or null in some lines, with empty lines."""
    kinds = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=4))
    are_required = draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    # Without any key, there are no columns.
    are_required[0] = True
    lines = []
    for _ in range(draw(st.integers(1, 5))):
        row: dict[str, Any] = {}
        for number, kind in enumerate(kinds):
            is_there = are_required[number] or draw(st.booleans())
            if is_there:
                values = _VALUES[kind]
                row[f"c{number}"] = draw(values if are_required[number] else st.none() | values)
        lines.append(json.dumps(row, ensure_ascii=draw(st.booleans())))
        lines += draw(st.lists(st.sampled_from(["", " ", "\t"]), max_size=1))
    line_break = draw(st.sampled_from(["\n", "\r\n"]))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return (mark + line_break.join(lines) + draw(st.sampled_from(["", "\n"]))).encode()


def in_memory(text: bytes) -> Any:
    """The samples of the same lines as one table of Arrow in memory."""
    types, tables = JsonLinesTable(TextFile(io.BytesIO(text)), {}).stream()
    json_columns = [name for name, type_ in types.items() if type_ == JSON]
    return iterator_of_table(pa.concat_tables(list(tables)), "x", None, None, json_columns)


def shown(values: Any) -> Any:
    """Values with their types and dtypes, as text."""
    if isinstance(values, np.ndarray):
        return values.dtype.name, values.shape, [shown(value) for value in values]
    if isinstance(values, dict):
        return {key: shown(value) for key, value in values.items()}
    if isinstance(values, list):
        return [shown(value) for value in values]
    return type(values).__name__, repr(values)


@given(texts_of_lines(), st.data())
def test_samples_are_those_of_a_table_in_memory(text: bytes, data: st.DataObject) -> None:
    expected = in_memory(text)
    positions = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=6))
    name = data.draw(st.sampled_from(list(expected[0])))

    rows: Any = iterator_of_rows(open_json_rows(io.BytesIO(text), {}, None), "x", None)

    assert shown(list(rows)) == shown(list(expected))
    assert shown([rows[position] for position in positions]) == shown(
        [expected[position] for position in positions]
    )
    assert shown(rows.read_batch(positions)) == shown(expected.read_batch(positions))
    assert shown(rows.read_column(name)) == shown(expected.read_column(name))
    assert rows.column_types == expected.column_types
    assert rows.fingerprint() == expected.fingerprint()
    assert rows.to_arrow().equals(expected.to_arrow())
    of_small_file = data_stack.from_jsonl(io.BytesIO(text))
    assert shown(list(of_small_file)) == shown(list(expected))
    assert of_small_file.fingerprint() == expected.fingerprint()


def message_of_refusal(read: Callable[[], object]) -> str | None:
    """The message of the error of a file that is refused; None if it is read."""
    try:
        read()
    except DatasetFileCorruptError as error:
        return str(error)
    return None


_HARD_LINES = [
    '{"c0": 1, "c0": 2}',
    '{"c0": 1}{"c0": 2}',
    '{"c0":',
    '1}{"c0": 2}',
    '{"c0": 1e400}',
    '{"c0": 9007199254740993}',
    '{"c0": 9223372036854775808}',
    '{"c0": -0}',
    '{"c0": NaN}',
    '{"c0": 1.5}',
    '{"c0": "\\ud800"}',
    '{"c0": "2020-01-01T00:00:00Z"}',
    '{"c0": {"a": 1}}',
    '{"c0": {"a": 2, "b": []}}',
    '{"c0": {"a": 2, "b": null}}',
    '{"c0":{"a":null,"b":2}}',
    '{"c0":{"a":null}}',
    '{"c0": {"a": 1e-400}}',
    '{"c0": {"a": 0.0}}',
    '{"c0": {}}',
    '{"c0": [[1], null]}',
    '{"c0": [{"a": 1}]}',
    '{"c0": [{"a": 1, "b": 2}, {"a": 1}]}',
    '{"c0": [1, true]}',
    '{"c0": [2.5]}',
    '{"c0": 01}',
    '{"c1": 1} ',
    "{}",
    "",
]


@given(st.lists(texts_of_lines() | st.sampled_from(_HARD_LINES).map(str.encode), max_size=6))
def test_known_types_are_checked_as_the_exact_parser_infers_them(texts: list[bytes]) -> None:
    text = b"\n".join(text.removeprefix(b"\xef\xbb\xbf") for text in texts)

    # Each block is a line. One table reads all of them by the exact parser, the other one those
    # that may differ from the types of the lines before.
    exact = JsonLinesTable(TextFile(io.BytesIO(text)), {}, block_bytes=1, uses_arrow=False)
    fast = JsonLinesTable(TextFile(io.BytesIO(text)), {}, block_bytes=1)
    message_of_exact = message_of_refusal(exact.stream)
    assert message_of_refusal(fast.infer) == message_of_exact
    if message_of_exact is not None:
        return
    types, tables = exact.stream()
    table = pa.concat_tables(list(tables)) if types else None
    columns = fast.infer()

    assert list(columns.types.items()) == list(types.items())
    if table is not None:
        assert columns.n_rows == table.num_rows
        assert columns.nullable == {name for name in types if table[name].null_count}


# ---------------------------------------------------------------------- files that stay open


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of which nothing is kept in memory."""
    monkeypatch.setattr(reading, "MAX_TABLE_BYTES", 0)
    monkeypatch.setattr(indexed_text, "MAX_BYTES_IN_MEMORY", 0)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"a": {number}, "t": "{number}"}}\n' for number in range(1000)))
    return path


def numbers_of(batches: Sequence[Any]) -> list[int]:
    return sorted(number for batch in batches for number in batch["a"].tolist())


@pytest.mark.parametrize("worker_kind", ["threads", "processes"])
def test_workers_read_the_file_themselves(path: Path, worker_kind: Any) -> None:
    rows = data_stack.load(path)

    with Loader(rows, 64, shuffle=True, seed=1, workers=2, worker_kind=worker_kind) as loader:
        batches = list(loader)

    assert numbers_of(batches) == list(range(1000))


def test_a_pickled_iterator_holds_no_rows(path: Path) -> None:
    rows = data_stack.load(path)

    pickled = pickle.dumps(rows)

    # The offsets of an index that is not stored: 8 bytes a row.
    assert len(pickled) < 8 * 1000 + 20_000
    assert pickle.loads(pickled)[999] == {"a": 999, "t": "999"}


def test_a_changed_file_is_an_error_of_the_next_read(path: Path) -> None:
    rows = data_stack.load(path)
    assert rows[5]["a"] == 5

    with open(path, "r+b") as file:
        file.write(b'{"a": 7')

    with pytest.raises(ResourceChangedError, match=r"a\.jsonl.*Load the dataset again"):
        rows[0]
    with pytest.raises(ResourceChangedError):
        rows.read_batch([1, 2])


def test_filters_choose_rows_of_the_file(path: Path) -> None:
    rows: Any = data_stack.load(path, filters=[("a", ">=", 990)], columns=["t"])

    assert len(rows) == 10
    assert rows[9] == {"t": "999"}
    assert rows.read_column("t", [0, 1]).tolist() == ["990", "991"]
    assert len(data_stack.load(path, filters=[("a", "<", 0)])) == 0


def test_a_recipe_of_a_changed_file_is_refused(path: Path) -> None:
    recipe = data_stack.load(path).recipe()
    assert data_stack.from_recipe(recipe)[3] == {"a": 3, "t": "3"}

    path.write_text('{"a": 1, "t": "x"}\n')

    with pytest.raises(data_stack.exception.ConfigError, match="The files differ"):
        data_stack.from_recipe(recipe)


def test_a_file_in_a_store_is_read_by_ranges(path: Path, tmp_path: Path) -> None:
    store = FileStorageConnector(tmp_path / "store")
    with open(path, "rb") as file:
        store.set_resource("sets/a.jsonl", file)

    rows: Any = data_stack.from_jsonl((store, "sets/a.jsonl"))

    assert rows[999] == {"a": 999, "t": "999"}
    assert rows.read_batch([3, 1])["a"].tolist() == [3, 1]
    assert pickle.loads(pickle.dumps(rows))[7]["a"] == 7


def test_the_first_wrong_line_is_named_after_many_blocks(path: Path) -> None:
    with open(path, "a") as file:
        file.write('{"a": 1, "t": "x"\n')

    with pytest.raises(DatasetFileCorruptError, match="line 1001, column 18: invalid JSON"):
        data_stack.load(path)


@pytest.mark.parametrize("text", ["", "\n\n", "{}\n"])
def test_a_file_without_columns_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)

    with pytest.raises(ConfigError, match=r"a\.jsonl' has no columns"):
        data_stack.from_jsonl(str(tmp_path / "a.jsonl"))
