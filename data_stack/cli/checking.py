"""The command that tests an installed dataset with its real sources: check."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from data_stack.cli.group import cli
from data_stack.cli.names import name_argument, repository
from data_stack.cli.output import echo, print_result
from data_stack.cli.settings import Settings
from data_stack.exception import ConfigError, DataStackError, MissingDependencyError

#: The module with the tests. It is also the plugin of pytest that finds the dataset.
_TESTS = "data_stack.testing.installed"

#: The exit codes of pytest after it ran the tests: all passed, or some failed.
_EXIT_CODES_OF_RUNS = (0, 1)


@cli.command()
@name_argument
def check(settings: Settings, name: str) -> int:
    """Test an installed dataset with its real sources.

    Retrieves the sources into a temporary store, each from all of its mirrors, and runs the tests
    of data_stack.testing.DatasetContract: digests, samples, processes, stores. --offline skips
    tests that need the network. Runs the code of the plugin; takes several times as long as
    preparing the dataset.
    """
    from data_stack.factories.declarative import DatasetFactory

    if importlib.util.find_spec("pytest") is None:
        raise MissingDependencyError("data-stack check", "pytest", "testing")
    factory = repository().get_factory(name, "memory://")
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(
            f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}); check requires "
            "a DatasetFactory"
        )

    results = _run_tests(name)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for result in results:
        counts[result["outcome"]] += 1
        if not settings.as_json:
            echo(_describe_result(result))
    summary = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    facts = {"dataset": name, **counts, "checks": results}
    print_result(settings, facts, f"\n{name}: {summary}")
    return int(counts["failed"] > 0)


def _describe_result(result: dict[str, Any]) -> str:
    """Return the outcome of a test as a line: outcome, name, and the reason if it has one."""
    line = f"{result['outcome']:<8} {result['check']}"
    if result["reason"]:
        line += f": {result['reason']}"
    return line


def _run_tests(name: str) -> list[dict[str, Any]]:
    """Run the tests of a dataset by pytest in another process.

    Returns:
        The outcome of each test, as ``data_stack.testing.installed`` writes it.

    Raises:
        DataStackError: pytest could not run the tests; the message is its output.
    """
    # The user's settings and installed plugins of pytest must not change the tests, nor the
    # conftest.py of a clone in which data_stack lies.
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    options = ["-p", _TESTS, "-p", "no:cacheprovider", "-c", os.devnull, "--noconftest"]
    options += ["--tb=short"]
    with tempfile.TemporaryDirectory() as folder:
        results_file = Path(folder, "results")
        options += ["--dataset", name, "--results", str(results_file)]
        run = subprocess.run(  # noqa: S603  # our own command
            [sys.executable, "-m", "pytest", *options, "--pyargs", _TESTS],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if run.returncode not in _EXIT_CODES_OF_RUNS:
            output = run.stdout.decode(errors="replace")
            raise DataStackError(f"pytest could not run the tests of {name!r}:\n{output}")
        return [json.loads(line) for line in results_file.read_text(encoding="utf-8").splitlines()]
