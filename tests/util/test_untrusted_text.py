"""JSON and TOML of strangers are refused before a parser takes time, memory or stack for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from data_stack.util.untrusted_text import MAX_JSON_DEPTH, MAX_TOML_DEPTH, parse_json, parse_toml

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
def test_brackets_in_strings_do_not_count_and_those_behind_them_do(texts: list[str], is_object: bool) -> None:
    opening, closing = ('{"":', "}") if is_object else ("[", "]")
    start = ", ".join(map(json.dumps, [*texts, "[" * 1000, '\\"']))
    for depth in (MAX_JSON_DEPTH - 1, MAX_JSON_DEPTH):
        text = f"[{start}, {opening * depth}1{closing * depth}]"
        if depth < MAX_JSON_DEPTH:
            assert parse_json(text) == json.loads(text)
        else:
            with pytest.raises(ValueError, match="nested more than 400 levels deep"):
                parse_json(text)


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**6, '["' + "[" * 10**6, '[1, "a", ' * 10**5])
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


def test_lists_of_many_numbers_and_texts_with_dots_are_not_deep() -> None:
    value = {"numbers": [index + 0.5 for index in range(500)], "text": "a." * 500 + "[" * 500, "tables": [{"a": 0.5}] * 300}

    assert parse_toml(tomli_w.dumps(value).encode()) == value
    assert parse_toml(b"x = [" + b"1.5, " * 500 + b"] # " + b"." * 500) == {"x": [1.5] * 500}


def test_too_many_bytes_are_refused() -> None:
    for parse in (parse_json, parse_toml):
        parser: Any = parse
        with pytest.raises(ValueError, match=r"of 11 bytes .* limit of 10 bytes"):
            parser(b" " * 11, max_bytes=10)
    with pytest.raises(ValueError, match="utf-8"):
        parse_toml(b"a = '\xff'")
