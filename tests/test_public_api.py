"""``import data_stack`` gives every public name, and imports none of them before it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import data_stack


def in_a_new_process(program: str) -> Any:
    """What ``program`` prints as JSON, run where nothing is imported yet."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(data_stack.__file__).parent.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", data_stack.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(data_stack, name) is not None


def test_the_names_are_sorted_and_listed_by_dir() -> None:
    assert data_stack.__all__ == sorted(data_stack.__all__)
    assert {*data_stack.__all__, "exception", "formats"} <= set(dir(data_stack))


def test_importing_data_stack_imports_nothing_else() -> None:
    modules = in_a_new_process(
        "from __future__ import annotations\nimport json, sys, typing\nbefore = {*sys.modules}\nimport data_stack\n"
        "print(json.dumps(sorted({*sys.modules} - before)))"
    )

    assert modules == ["data_stack"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'data_stack' has no attribute 'laod'"):
        data_stack.laod  # type: ignore[attr-defined]  # noqa: B018
