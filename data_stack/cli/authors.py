"""The commands for authors of plugins."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings, answer, echo, takes_settings
from data_stack.exception import ConfigError, DataStackError, MissingDependencyError

_SUITE = "data_stack.testing.installed"


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--kind", required=True, type=click.Choice(["images", "table", "text"]))
@click.option("--split", "splits", metavar="SPLIT", multiple=True, default=["train", "test"], show_default=True)
@click.option("--into", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
@takes_settings
def new(settings: Settings, name: str, kind: str, splits: tuple[str, ...], into: Path) -> None:
    """Write a new package with a dataset.

    Creates the folder NAME with a package that can be installed and tested at once. Its samples are made up until you add your
    source. Overwrites nothing.
    """
    from data_stack.cli.new_package import write_package

    folder = write_package(name, kind, splits, into)
    module = next(folder.glob("data_stack_*/__init__.py"))
    text = (
        f"wrote {folder}: a dataset with made-up samples ({kind})\n"
        f"  cd {folder} && pip install -e '.[test]' && pytest\n"
        f"Then add your source to {module}, and choose a licence for your code, see README.md."
    )
    answer(settings, {"folder": str(folder), "factory": str(module)}, text)


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_names)
@takes_settings
def check(settings: Settings, name: str) -> int:
    """Test an installed dataset with its real sources.

    Retrieves the sources into a temporary store, each from all of its mirrors, and runs the tests of
    data_stack.testing.DatasetContract: digests, samples, processes, stores. --offline skips tests that need the network.
    Runs the code of the plugin; takes several times as long as preparing the dataset.
    """
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.repository.repository import default_repository

    if importlib.util.find_spec("pytest") is None:
        raise MissingDependencyError("data-stack check", "pytest", "testing")
    factory = default_repository().get_factory(name, "memory://")
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}); check requires a DatasetFactory")
    results = _run_suite(name)
    for result in results if not settings.as_json else ():
        echo(f"{result['outcome']:<8} {result['check']}" + (f": {result['reason']}" if result["reason"] else ""))
    counts = {outcome: sum(each["outcome"] == outcome for each in results) for outcome in ("passed", "failed", "skipped")}
    text = f"\n{name}: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items())
    answer(settings, {"dataset": name, **counts, "checks": results}, text)
    return int(counts["failed"] > 0)


def _run_suite(name: str) -> list[dict[str, Any]]:
    """The result of each test.

    Raises:
        DataStackError: pytest could not run the tests; the message is its output.
    """
    options = ["-p", _SUITE, "-p", "no:cacheprovider", "-c", os.devnull, "--tb=short", "--dataset", name]
    # Other installed pytest plugins must not change the tests.
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results")
        command = [sys.executable, "-m", "pytest", *options, "--results", str(file), "--pyargs", _SUITE]
        done = subprocess.run(  # noqa: S603  # our own command
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode not in (0, 1):
            raise DataStackError(f"pytest could not run the tests of {name!r}:\n{done.stdout.decode(errors='replace')}")
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
