"""new."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import pytest
from command_runs import Run
from process_harness import run_python

import data_stack
from data_stack.cli.made_up_samples import make_up_samples

#: Statements that an author sees at first, docstrings aside.
MAX_STATEMENTS_OF_FACTORY = 28

#: Prints the splits of a dataset.
PRINT_SPLITS = "import data_stack, sys; print(*data_stack.load(sys.argv[1]))"

SOURCE_TREE = str(Path(data_stack.__file__).parents[1])


@pytest.mark.parametrize(
    ("kind", "splits"),
    [
        ("table", ["all"]),
        pytest.param("images", ["train", "test"], marks=pytest.mark.full),
        pytest.param("text", ["train", "test"], marks=pytest.mark.full),
    ],
)
def test_a_new_package_can_be_installed_tested_and_loaded(
    command: Run, tmp_path: Path, kind: str, splits: list[str]
) -> None:
    options = [f"--split={split}" for split in splits]
    folder = tmp_path / "my-set"
    site = tmp_path / "site"
    search_path = os.pathsep.join([str(site), SOURCE_TREE, os.environ.get("PYTHONPATH", "")])
    pip_options = ["-q", "--no-deps", "--no-build-isolation", "--no-index", f"--target={site}"]

    outcome = command("new", "my-set", "--kind", kind, "--into", str(tmp_path), *options)
    run_python("-m", "pip", "install", *pip_options, folder, timeout_seconds=280)
    tested, _ = run_python(
        "-W", "error", "-m", "pytest", "-q", folder, timeout_seconds=280, PYTHONPATH=search_path
    )
    loaded, _ = run_python(
        "-c", PRINT_SPLITS, "my-set", PYTHONPATH=search_path, DATA_STACK_HOME=str(tmp_path / "home")
    )

    assert outcome.code == 0, outcome.err
    assert re.search(r"^\d\d passed", tested, re.MULTILINE)
    assert loaded.split() == splits


@pytest.mark.parametrize("kind", ["images", "table", "text"])
def test_the_factory_of_a_new_package_is_short(command: Run, tmp_path: Path, kind: str) -> None:
    command("new", "my-set", "--kind", kind, "--into", str(tmp_path))

    factory = (tmp_path / "my-set/data_stack_my_set/__init__.py").read_text()
    statements = [
        node
        for node in ast.walk(ast.parse(factory))
        if isinstance(node, ast.stmt) and not is_docstring(node)
    ]
    assert len(statements) <= MAX_STATEMENTS_OF_FACTORY
    assert max(len(line) for line in factory.splitlines()) <= 100


def is_docstring(node: ast.stmt) -> bool:
    """Return whether a statement is a text and nothing else."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


#: Prints the class that a label has by ``class_names``, and the folder of the picture.
PRINT_CLASSES = """
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack_my_set import MySetFactory

samples, _ = MySetFactory(InMemoryStorageConnector()).get_dataset_iterator()
for sample in samples:
    print(MySetFactory.class_names[sample["label"]], sample["class"])
"""


def test_labels_of_new_images_are_named_after_folders(command: Run, tmp_path: Path) -> None:
    command("new", "my-set", "--kind", "images", "--into", str(tmp_path))
    search_path = os.pathsep.join([str(tmp_path / "my-set"), SOURCE_TREE])

    printed, _ = run_python("-c", PRINT_CLASSES, PYTHONPATH=search_path)

    names = [line.split() for line in printed.splitlines()]
    assert {tuple(pair) for pair in names} == {(name, name) for name in ("dark", "grey", "bright")}


@pytest.mark.parametrize("kind", ["images", "table", "text"])
def test_templates_are_filled_in(command: Run, tmp_path: Path, kind: str) -> None:
    command("new", "my-set", "--kind", kind, "--into", str(tmp_path))

    for name in ("README.md", ".gitignore", ".github/workflows/test.yml", "pyproject.toml"):
        text = (tmp_path / "my-set" / name).read_text()
        without_actions = re.sub(r"uses: \S+@", "", text)
        assert "@" not in without_actions


@pytest.mark.parametrize(
    ("name", "splits", "message"),
    [
        ("../up", [], "begins with a letter"),
        ("a" * 61, [], "begins with a letter"),
        ("", [], "begins with a letter"),
        ("@name@", [], "begins with a letter"),
        ("Digits", [], "already"),
        ("there", [], "exists"),
        ("mine", ["a", "A"], "split names"),
        ("mine", ["a/b"], "split names"),
        ("mine", ["x@name@"], "split names"),
        ("mine", [""], "split names"),
    ],
)
def test_a_name_that_cannot_be_used_writes_nothing(
    command: Run, tmp_path: Path, name: str, splits: list[str], message: str
) -> None:
    (tmp_path / "there").symlink_to(tmp_path / "nowhere")
    options = [f"--split={split}" for split in splits]

    outcome = command("new", "--kind", "text", "--into", str(tmp_path), *options, "--", name)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("kind", ["images", "table", "text"])
def test_made_up_samples_are_always_the_same(kind: str) -> None:
    first: Any = make_up_samples(kind, ["train", "test"])
    second: Any = make_up_samples(kind, ["train", "test"])

    assert first == second
