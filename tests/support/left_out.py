"""What is skipped where a package has no wheel for this Python; see ``make test-pythons``.

``DATA_STACK_LEFT_OUT`` names the modules of these packages. Where it is not set, as in ``make test``,
nothing is skipped: a missing package is an error.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from types import TracebackType

import pytest

from data_stack.exception import MissingDependencyError

#: The modules of the packages that were left out.
LEFT_OUT = frozenset(os.environ.get("DATA_STACK_LEFT_OUT", "").split(",")) - {""}

#: Skips a test that runs a program with torch, whose error is only text.
needs_torch = pytest.mark.skipif("torch" in LEFT_OUT, reason="needs torch, which was left out")

_CORE = Path(__file__).parents[2] / "data_stack"


def missing_module(error: BaseException | None) -> str | None:
    """Return the module of a left-out package for whose lack a test failed; None if it did not.

    A test may import the package itself, or ask data_stack for what needs it, or use a plugin that
    cannot do without it. It is a failure if data_stack imports the package by itself, and does not
    say who needs it.
    """
    while error is not None:
        if isinstance(error, MissingDependencyError) and error.package in LEFT_OUT:
            return error.package
        if isinstance(error, ModuleNotFoundError) and not _is_imported_by_core(error.__traceback__):
            module = str(error.name).partition(".")[0]
            if module in LEFT_OUT:
                return module
        error = error.__cause__ or error.__context__
    return None


def _is_imported_by_core(trace: TracebackType | None) -> bool:
    """Return whether the import that failed stands in data_stack, not in a test or a plugin."""
    files = [
        Path(frame.filename)
        for frame in traceback.extract_tb(trace)
        if not frame.filename.startswith("<frozen importlib")
    ]
    return bool(files) and files[-1].is_relative_to(_CORE)


def skip_report(report: pytest.TestReport | pytest.CollectReport, path: Path, module: str) -> None:
    """Turn the report of a failure into one that the test, or the file of tests, was skipped."""
    report.outcome = "skipped"
    report.longrepr = (str(path), 0, f"Skipped: needs {module}, which was left out")
