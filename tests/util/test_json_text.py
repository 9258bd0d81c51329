"""JSON that people read holds nothing that a terminal would interpret."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from data_stack.util.json_text import json_text


@given(st.recursive(st.text() | st.integers(), st.lists, max_leaves=5))
def test_a_document_comes_back_and_is_printable(document: object) -> None:
    text = json_text(document)

    assert json.loads(text) == document
    assert text.replace("\n", "").isprintable()


def test_control_characters_and_lone_surrogates_are_escaped() -> None:
    assert json_text(["a\u009bb", "c\u202e", "\ud800", "é"]) == (
        '[\n  "a\\u009bb",\n  "c\\u202e",\n  "\\ud800",\n  "é"\n]'
    )
