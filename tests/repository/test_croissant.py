"""Croissant without its package."""

from __future__ import annotations

import sys

import pytest

import data_stack
from data_stack.exception import MissingDependencyError


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "data_stack_croissant", None)

    with pytest.raises(MissingDependencyError, match=r"lazy-data-stack\[croissant\]"):
        data_stack.from_croissant("croissant.json")
    with pytest.raises(MissingDependencyError, match=r"to_croissant\(\) needs"):
        data_stack.to_croissant("digits")
