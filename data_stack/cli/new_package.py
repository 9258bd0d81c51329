"""Writes a new package with a dataset of made-up samples."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from data_stack.cli.made_up import make_up
from data_stack.exception import ConfigError
from data_stack.plugins.manager import default_manager

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", re.ASCII)
_MAX_CHARACTERS = 60
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
    _check_names(name, splits)
    target = parent / name
    if os.path.lexists(target):
        raise ConfigError(f"{os.fspath(target)!r} already exists; choose another name, or another folder with --into")
    texts, file, data = _fill_in(name, kind, splits)
    # Beside the target, for an atomic rename; inside the temporary folder, so that the package gets the usual permissions.
    with tempfile.TemporaryDirectory(prefix=".~new-", dir=parent) as scratch:
        unfinished = Path(scratch, name)
        for path, content in {**{path: text.encode() for path, text in texts.items()}, file: data}.items():
            (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
            (unfinished / path).write_bytes(content)
        unfinished.rename(target)
    return target


def _check_names(name: str, splits: Sequence[str]) -> None:
    if not _NAME.fullmatch(name) or len(name) > _MAX_CHARACTERS:
        raise ConfigError(
            f"invalid dataset name {name!r:.80}: a name begins with a letter and has up to {_MAX_CHARACTERS} letters and "
            f"digits, with single '-' or '_' between them, such as 'street-signs'"
        )
    taken = {re.sub("[-_.]+", "_", known.rpartition(":")[2]).lower() for known in default_manager().dataset_names()}
    if _underscored(name) in taken or find_spec(f"data_stack_{_underscored(name)}") is not None:
        raise ConfigError(f"an installed package already has a dataset {name!r} (`data-stack list`); choose another name")
    if not all(map(_SPLIT.fullmatch, splits)) or len(set(map(str.casefold, splits))) < len(splits):
        raise ConfigError(
            f"invalid split names {', '.join(splits)!r:.200}: names must differ and have up to 40 letters, digits, '_' and '-'"
        )


def _fill_in(name: str, kind: str, splits: Sequence[str]) -> tuple[dict[str, str], str, bytes]:
    """The texts of the package by path, and the path and bytes of its made-up file."""
    file, data = make_up(kind, splits)
    imports, sample, body = _template(kind).split("---\n")
    class_name = "".join(part.title() for part in re.split("[-_]", name))
    values = {
        "imports": imports.rstrip(),
        "sample": sample.rstrip(),
        "body": body.rstrip(),
        "name": name,
        "name_": _underscored(name),
        "title": re.sub("[-_]", " ", name).capitalize(),
        "module": f"data_stack_{_underscored(name)}",
        "Class": class_name,
        "Factory": f"{class_name}Factory",
        "file": file,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": str(len(data)),
        "splits": str(tuple(splits)).replace("'", '"'),
        "first_split": splits[0],
        "requirement": "datastack[images]" if kind == "images" else "datastack",
    }

    def fill(text: str) -> str:
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        return text

    texts = {fill(path): fill(_template(template)) for path, template in _FILES.items()}
    return {**texts, f"{values['module']}/py.typed": ""}, f"{values['module']}/{file}", data


def _template(name: str) -> str:
    return (resources.files("data_stack") / "cli" / "templates" / f"{name}.tmpl").read_text(encoding="utf-8")


def _underscored(name: str) -> str:
    return name.replace("-", "_").lower()
