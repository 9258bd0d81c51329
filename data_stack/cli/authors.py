"""The commands for authors of plugins, with the packages that they write."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import click

from data_stack.cli.common import Settings, answer, cli, echo, name_argument, repository
from data_stack.exception import ConfigError, DataStackError, MissingDependencyError


def _make_up(kind: str, splits: Sequence[str]) -> tuple[str, bytes]:
    """A small file with different samples of ``kind`` in each of ``splits``, always the same: its name, its bytes.

    Raises:
        MissingDependencyError: a package for such files is missing; the message names the extra.
    """
    import numpy as np

    from data_stack.codecs import codec_of

    random, numbers = (
        np.random.default_rng(7),
        [(split, number) for split in splits for number in range(12)],
    )
    if kind == "images":  # in a folder for each split and class
        png, file = codec_of("png"), io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for split, number in numbers:
                name, low = (
                    f"{split}/{('dark', 'grey', 'bright')[number % 3]}/{number}.png",
                    number % 3 * 80,
                )
                # a ZipInfo has a constant time
                archive.writestr(
                    zipfile.ZipInfo(name),
                    png.encode(random.integers(low, low + 80, (32, 32, 3), dtype=np.uint8)),
                )
        return "images.zip", file.getvalue()
    rows = [] if kind == "text" else ["split,class,length,width,weight"]
    for split, number in numbers:
        if kind == "text":
            name, text = [("question", "Is {} more than {}?"), ("statement", "{} is not {}.")][
                number % 2
            ]
            rows.append(
                json.dumps(
                    {
                        "split": split,
                        "class": name,
                        "text": text.format(*random.integers(1000, size=2)),
                    }
                )
            )
        else:
            values = random.normal(10 * (number % 3) + 10, 2, 3)
            rows.append(f"{split},{number % 3}," + ",".join(f"{value:.2f}" for value in values))
    return "texts.jsonl" if kind == "text" else "table.csv", "\n".join([*rows, ""]).encode()


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", re.ASCII)
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", re.ASCII)
_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/test.yml": "workflow.yml",
    "tests/test_@name_@.py": "test.py",
    "@module@/__init__.py": "factory.py",
}


def write_package(name: str, kind: str, splits: Sequence[str], parent: Path) -> Path:
    """Write the package ``parent/name`` atomically.

    Args:
        name: of the dataset and of the new folder.
        kind: of the samples, as in ``data-stack new --help``.
        splits: names of the splits.
        parent: an existing folder.

    Raises:
        ConfigError: a name is invalid or taken, or the folder exists.
        MissingDependencyError: samples of this kind require a package that is not installed.
    """
    from data_stack.plugins.manager import default_manager

    _check_names(name, splits, default_manager().dataset_names())
    target = parent / name
    if os.path.lexists(target):
        raise ConfigError(
            f"{os.fspath(target)!r} already exists; choose another name, or another folder with --into"
        )
    files = _fill_in(name, kind, splits)
    # Beside the target, for an atomic rename; inside the temporary folder, so that the package gets the usual permissions.
    with tempfile.TemporaryDirectory(prefix=".~new-", dir=parent) as scratch:
        unfinished = Path(scratch, name)
        for path, content in files.items():
            (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
            (unfinished / path).write_bytes(content)
        unfinished.rename(target)
    return target


def _check_names(name: str, splits: Sequence[str], installed: Sequence[str]) -> None:
    if not _NAME.fullmatch(name) or len(name) > 60:
        rule = "a letter, then up to 59 letters and digits, with single '-' or '_' between them, such as 'street-signs'"
        raise ConfigError(f"invalid dataset name {name!r:.80}: a name begins with {rule}")
    under = name.replace("-", "_").lower()
    taken = {re.sub("[-_.]+", "_", known.rpartition(":")[2]).lower() for known in installed}
    if under in taken or importlib.util.find_spec(f"data_stack_{under}") is not None:
        raise ConfigError(
            f"an installed package already has a dataset {name!r} (`data-stack list`); choose another name"
        )
    if not all(map(_SPLIT.fullmatch, splits)) or len(set(map(str.casefold, splits))) < len(splits):
        rule = "names must differ and have up to 40 letters, digits, '_' and '-'"
        raise ConfigError(f"invalid split names {', '.join(splits)!r:.200}: {rule}")


def _fill_in(name: str, kind: str, splits: Sequence[str]) -> dict[str, bytes]:
    """The files of the package by path."""
    file, data = _make_up(kind, splits)
    imports, sample, body = _template(kind).split("---\n")
    class_name, under = (
        "".join(part.title() for part in re.split("[-_]", name)),
        name.replace("-", "_").lower(),
    )
    values = {
        "imports": imports.rstrip(),
        "sample": sample.rstrip(),
        "body": body.rstrip(),
        "name": name,
        "name_": under,
        "title": re.sub("[-_]", " ", name).capitalize(),
        "module": f"data_stack_{under}",
        "Class": class_name,
        "Factory": f"{class_name}Factory",
        "file": file,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": str(len(data)),
        "splits": str(tuple(splits)).replace("'", '"'),
        "first_split": splits[0],
        "requirement": "lazy-data-stack[images]" if kind == "images" else "lazy-data-stack",
    }

    def fill(text: str) -> str:
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        return text

    texts = {fill(path): fill(_template(template)).encode() for path, template in _FILES.items()}
    return {**texts, f"{values['module']}/py.typed": b"", f"{values['module']}/{file}": data}


def _template(name: str) -> str:
    return (resources.files("data_stack") / "cli" / "templates" / f"{name}.tmpl").read_text(
        encoding="utf-8"
    )


@cli.command()
@click.argument("name", metavar="NAME")
@click.option("--kind", required=True, type=click.Choice(["images", "table", "text"]))
@click.option(
    "--split",
    "splits",
    metavar="SPLIT",
    multiple=True,
    default=["train", "test"],
    show_default=True,
)
@click.option(
    "--into",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
)
def new(settings: Settings, name: str, kind: str, splits: tuple[str, ...], into: Path) -> None:
    """Write a new package with a dataset.

    Creates the folder NAME with a package that can be installed and tested at once. Its samples are made up until you add your
    source. Overwrites nothing.
    """
    folder = write_package(name, kind, splits, into)
    module = next(folder.glob("data_stack_*/__init__.py"))
    done = f"wrote {folder}: a dataset with made-up samples ({kind})\n  cd {folder} && pip install -e '.[test]' && pytest"
    advice = f"Then add your source to {module}, and choose a license for your code, see README.md."
    answer(settings, {"folder": str(folder), "factory": str(module)}, f"{done}\n{advice}")


@cli.command()
@name_argument
def check(settings: Settings, name: str) -> int:
    """Test an installed dataset with its real sources.

    Retrieves the sources into a temporary store, each from all of its mirrors, and runs the tests of
    data_stack.testing.DatasetContract: digests, samples, processes, stores. --offline skips tests that need the network.
    Runs the code of the plugin; takes several times as long as preparing the dataset.
    """
    from data_stack.factories.declarative import DatasetFactory

    if importlib.util.find_spec("pytest") is None:
        raise MissingDependencyError("data-stack check", "pytest", "testing")
    factory = repository().get_factory(name, "memory://")
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(
            f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}); check requires a DatasetFactory"
        )
    results = _run_suite(name)
    for result in results if not settings.as_json else ():
        echo(
            f"{result['outcome']:<8} {result['check']}"
            + (f": {result['reason']}" if result["reason"] else "")
        )
    counts = {
        outcome: sum(each["outcome"] == outcome for each in results)
        for outcome in ("passed", "failed", "skipped")
    }
    text = f"\n{name}: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items())
    answer(settings, {"dataset": name, **counts, "checks": results}, text)
    return int(counts["failed"] > 0)


def _run_suite(name: str) -> list[dict[str, Any]]:
    """The result of each test.

    Raises:
        DataStackError: pytest could not run the tests; the message is its output.
    """
    suite = "data_stack.testing.installed"
    options = [
        "-p",
        suite,
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--tb=short",
        "--dataset",
        name,
    ]
    # Other installed pytest plugins must not change the tests.
    variables = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results")
        command = [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "--results",
            str(file),
            "--pyargs",
            suite,
        ]
        done = subprocess.run(  # noqa: S603  # our own command
            command,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode not in (0, 1):
            raise DataStackError(
                f"pytest could not run the tests of {name!r}:\n{done.stdout.decode(errors='replace')}"
            )
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
