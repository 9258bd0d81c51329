"""Regular expressions and globs of documents of strangers, which end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from croissant_documents import document, fields, file_object, publish

import data_stack
from data_stack.exception import ConfigError, PreparationError
from data_stack.repository.croissant import values
from data_stack.repository.croissant.rows import matches
from data_stack.repository.croissant.values import rewrite_texts

DATA = b"text\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n"


def described(**transform: str) -> dict[str, Any]:
    source = {"fileObject": {"@id": "a.csv"}, "extract": {"column": "text"}, "transform": transform}
    columns = fields("rows", {"fileObject": "a.csv"}, text={"dataType": "sc:Text", "source": source})
    return document([file_object("a.csv", DATA, "text/csv")], rows=columns)


def test_a_regular_expression_that_does_not_end_is_an_error(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_SECONDS", 1.0)
    place = publish(tmp_path / "set", described(replace="(a+)+$/b"), a__csv=DATA)

    with pytest.raises(PreparationError, match=r"the regular expression '\(a\+\)\+\$' of field 'rows/text' of record set 'rows'"):
        data_stack.from_croissant(place, store)


def test_a_very_long_regular_expression_is_refused_before_anything_is_retrieved(tmp_path: Path, store: Path) -> None:
    with pytest.raises(ConfigError, match=r"'rows/text' of record set 'rows' has a pattern of more than 1000 characters"):
        data_stack.from_croissant(publish(tmp_path / "set", described(regex="a" * 1001), a__csv=DATA), store)


def test_texts_are_rewritten_as_by_re_in_any_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_RUN_LENGTH", 50)
    texts = [f"{word}-{number}.jpg" for number in range(20) for word in ("cat", "Über", "\ud800")] + ["", "x"]

    firsts = rewrite_texts(texts, r"(?:(\d+)|(\w+))-.*", None, "here")
    replaced = rewrite_texts(texts, r"(\w+)-", r"<\1>", "here")

    assert firsts == {text: match[1] or match[2] if (match := re.match(r"(?:(\d+)|(\w+))-.*", text)) else text for text in texts}
    assert replaced == {text: re.sub(r"(\w+)-", r"<\1>", text) for text in texts}


@pytest.mark.parametrize("glob", ["*a" * 400 + "*b", "*[ab]" * 150 + "*b", "*?" * 400 + "*b"])
def test_globs_end(glob: str) -> None:
    assert not matches("a" * 5000 + "c", [glob])
