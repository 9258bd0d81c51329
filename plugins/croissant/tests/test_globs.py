"""Globs select the files that fnmatch selects, in a time that a document cannot stretch."""

from __future__ import annotations

import fnmatch
import glob
from types import SimpleNamespace
from typing import Any

import pytest
from counted_calls import count_calls
from data_stack_croissant.globs import (
    FileSelection,
    Globs,
    check_globs,
    excludes_of,
    folder_of_glob,
    has_wildcards,
    includes_of,
    unescape,
)
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import ConfigError

TEXTS = st.text("ab/*?[]!-.", max_size=6)


@given(path=TEXTS, globs=st.lists(TEXTS, max_size=3))
def test_globs_match_as_fnmatch(path: str, globs: list[str]) -> None:
    expected = any(fnmatch.fnmatchcase(path, each_glob) for each_glob in globs)

    assert Globs(globs).match(path) == expected


@given(path=TEXTS)
def test_an_escaped_path_is_a_name(path: str) -> None:
    escaped = glob.escape(path)

    assert not has_wildcards(escaped)
    assert unescape(escaped) == path
    assert Globs([escaped]).match(path)


def test_a_selection_includes_and_then_excludes() -> None:
    selection = FileSelection(["*.csv"], ["test/*"])

    selected = [path for path in ("a.csv", "test/a.csv", "a.txt") if selection.selects(path)]

    assert selected == ["a.csv"]


def test_names_are_looked_up_instead_of_compared() -> None:
    names = [f"part-{number:05d}[{number}].csv" for number in range(1_000)]
    selection = FileSelection([glob.escape(name) for name in names], [])

    n_calls = count_calls(lambda: all(map(selection.selects, names)))

    assert all(map(selection.selects, names))
    assert n_calls < 20 * len(names)


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [("a/b/*.csv", "a/b"), ("a/b?/c.csv", "a"), ("*.csv", ""), ("a/b.csv", "a")],
)
def test_the_folder_of_a_glob_ends_before_its_wildcards(pattern: str, folder: str) -> None:
    assert folder_of_glob(pattern) == folder


def file_set(includes: Any, excludes: Any = None) -> Any:
    return SimpleNamespace(uuid="files", includes=includes, excludes=excludes)


def test_a_single_glob_is_a_list_of_one() -> None:
    node = file_set("*.csv", ["a.csv", "b.csv"])

    assert includes_of(node) == ["*.csv"]
    assert excludes_of(node) == ["a.csv", "b.csv"]


@pytest.mark.parametrize(
    ("includes", "message"),
    [
        (["a" * 1001], "more than 1000 characters"),
        ([f"{number}/*" for number in range(1001)], "1,001 globs with wildcards"),
    ],
)
def test_globs_that_take_long_are_refused(includes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_globs(file_set(includes))


def test_many_names_are_not_refused() -> None:
    check_globs(file_set([f"{number}.csv" for number in range(5000)]))
