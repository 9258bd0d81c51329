"""The code of a program is told from that of Python, of data_stack and of packages."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.dataset.recipes.installed_code import digest_of_imported_module, is_installed


@pytest.mark.parametrize(
    "thing", [len, os.path.join, np.sum, np.ndarray, np, data_stack.load, pytest.fixture]
)
def test_code_of_python_and_of_packages_is_installed(thing: Any) -> None:
    assert is_installed(thing)


def test_code_of_a_program_is_not_installed() -> None:
    module = types.ModuleType("__main__")

    class OfThisTest:
        """A class of a file that is not in a folder of packages."""

    assert not is_installed(module)
    assert not is_installed(OfThisTest)


def test_a_module_is_known_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "module_of_this_test.py"
    path.write_text("x = 1\n")
    before = digest_of_imported_module("module_of_this_test", package="")

    path.write_text("x = 2\n")
    after = digest_of_imported_module("module_of_this_test", package="")

    assert before is not None
    assert after is not None
    assert before != after
    assert "module_of_this_test" not in sys.modules


@pytest.mark.parametrize("name", ["json", "numpy.linalg", "data_stack.loading", "no_such_module"])
def test_installed_and_missing_modules_have_no_digest(name: str) -> None:
    assert digest_of_imported_module(name, package="") is None
