"""Texts of users: hostile JSON or TOML is refused, a misspelled name is answered with a
suggestion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack import SequenceDatasetIterator
from data_stack.formats.parquet import ParquetWriter
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import (
    MAX_BYTES,
    MAX_JSON_DEPTH,
    MAX_TOML_DEPTH,
    check_json_memory,
    parse_json,
    parse_toml,
)

TEXTS = st.text(st.sampled_from("ab[]{}\"'\\.,=#\n\t é"), max_size=12)
VALUES: Any = st.recursive(
    st.integers(-5, 5) | st.booleans() | TEXTS | st.sampled_from([1.5, -2.25]),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=20,
)
DEEP = MAX_TOML_DEPTH + 1


@given(VALUES, st.sampled_from([None, 1]))
def test_every_document_comes_back(value: Any, indent: int | None) -> None:
    assert parse_json(json.dumps(value, indent=indent)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value
    assert parse_toml(tomli_w.dumps({"x": value}).encode()) == {"x": value}
    assert parse_toml(tomli_w.dumps({"x": value}, multiline_strings=True).encode()) == {"x": value}


@given(st.lists(TEXTS, max_size=8), st.booleans())
def test_brackets_in_strings_do_not_count_as_nesting(texts: list[str], is_object: bool) -> None:
    opening, closing = ('{"":', "}") if is_object else ("[", "]")
    start = ", ".join(map(json.dumps, [*texts, "[" * 1000, '\\"']))
    for depth in (MAX_JSON_DEPTH - 1, MAX_JSON_DEPTH):
        text = f"[{start}, {opening * depth}1{closing * depth}]"
        if depth < MAX_JSON_DEPTH:
            assert parse_json(text) == json.loads(text)
        else:
            with pytest.raises(ValueError, match="nested more than 400 levels deep"):
                parse_json(text)


@pytest.mark.parametrize(
    "text", ["[" * 10**6, '{"a":' * 10**6, '["' + "[" * 10**6, '[1, "a", ' * 10**5]
)
def test_a_million_brackets_are_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested|Unterminated"):
        parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * DEEP) + " = 1",
        " . ".join(['"a"'] * DEEP) + " = 1",
        "'a'." * DEEP + "a = 1",
        "[" + ".".join(["a"] * DEEP) + "]",
        "[[" + ".".join(["a"] * DEEP) + "]]",
        "x = {" + ".".join(["a"] * DEEP) + " = 1}",
        "x = " + "[" * DEEP + "]" * DEEP,
        "x = " + "{a=" * DEEP + "1" + "}" * DEEP,
        "[[[[" * DEEP,
        "x = ['\\', " + "[" * DEEP,
        'x = ["\\\\", ' + "[" * DEEP,
        'x = ["""a\\"""b"""", ' + "[" * DEEP,
        "x = ['''a''''', " + "[" * DEEP,
        "x = 1 # '\ny = " + "[" * DEEP,
        'x = "\ny = ' + "[" * DEEP,
    ],
)
def test_depth_of_toml_is_refused_however_it_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="TOML is nested more than 100 levels deep"):
        parse_toml(text.encode())


def test_long_lists_and_texts_with_dots_are_not_deep() -> None:
    value = {
        "numbers": [index + 0.5 for index in range(500)],
        "text": "a." * 500 + "[" * 500,
        "tables": [{"a": 0.5}] * 300,
    }

    assert parse_toml(tomli_w.dumps(value).encode()) == value
    assert parse_toml(b"x = [" + b"1.5, " * 500 + b"] # " + b"." * 500) == {"x": [1.5] * 500}


def test_too_many_bytes_are_refused() -> None:
    for parse in (parse_json, parse_toml):
        parser: Any = parse
        with pytest.raises(ValueError, match=r"of 11 bytes .* limit of 10 bytes"):
            parser(b" " * 11, max_bytes=10)
    with pytest.raises(ValueError, match="utf-8"):
        parse_toml(b"a = '\xff'")


class Textless:
    def __str__(self) -> str:
        raise RecursionError


@pytest.mark.parametrize(
    ("wrong", "known", "near"),
    [
        ("trian", ["test", "train"], "train"),
        ("TRAIN", ["test", "train"], "train"),
        ("Lable", ["Label", 3, ("a", "b"), None], "Label"),
        ("x", ["train"], None),
        ("train", [], None),
        (
            "a" * 10_000_000,
            (f"{'b' * 200}{number}" for number in range(10**9)),
            None,
        ),  # takes no time
        (np.int64(3), [1, 2], None),
        (Textless(), ["train"], None),
    ],
)
def test_the_nearest_name_is_suggested(
    wrong: object, known: Iterable[object], near: str | None
) -> None:
    assert did_you_mean(wrong, known) == ("" if near is None else f" (did you mean {near!r}?)")


SAMPLES = [{"image": number, "label": number % 2} for number in range(4)]
ROWS = SequenceDatasetIterator([SAMPLES]).map(lambda row: row[0])
TUPLES = SequenceDatasetIterator([[1], [2]])


@pytest.mark.parametrize(
    ("use", "near"),
    [
        (lambda: data_stack.load("digit"), "digits"),
        (lambda: data_stack.load("digits", "Train", storage="memory://"), "train"),
        (
            lambda: data_stack.load("digits", "test", storage="memory://").read_column("lable"),
            "label",
        ),
        (lambda: data_stack.load("digits", storage="memroy://x"), "memory"),
        (lambda: ROWS.read_column("lable"), "label"),
        (lambda: TUPLES.encode({1: data_stack.encoder("categorcal")}), "categorical"),
        (lambda: ParquetWriter("x", compression="ztsd"), "zstd"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(use: Callable[[], Any], near: str) -> None:
    with pytest.raises(data_stack.DataStackError, match=rf"\(did you mean '{near}'\?\)"):
        use()


@pytest.mark.parametrize("value", ["{}", "[]"])
@pytest.mark.parametrize("kind", [str, str.encode])
def test_documents_of_too_many_values_are_refused(value: str, kind: Any) -> None:
    n_values = MAX_BYTES // 4 // (len(value) + 1)
    text = kind("[" + ",".join([value] * n_values) + "]")

    with pytest.raises(ValueError, match=r"they would take [\d,]+ bytes of memory; the limit is"):
        check_json_memory(text)
    with pytest.raises(ValueError, match="bytes of memory"):
        parse_json(text)


def test_documents_of_long_texts_are_read() -> None:
    entry = {"path": "x" * 600, "size": 123_456, "lfs": {"oid": "0" * 64}}
    entries = [entry] * 20_000

    assert parse_json(json.dumps(entries)) == entries
