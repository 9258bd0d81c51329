"""The command that writes the package of a new dataset: new."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import click

from data_stack.cli.group import cli
from data_stack.cli.made_up_samples import make_up_samples
from data_stack.cli.output import print_result
from data_stack.cli.settings import Settings
from data_stack.exception import ConfigError

#: The names of datasets that are names of packages and modules, too.
_NAME_OF_DATASET = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", re.ASCII)

#: The maximum number of characters of the name of a dataset.
_MAX_LENGTH_OF_NAME = 60

#: The names of splits, which are names of folders, too.
_NAME_OF_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", re.ASCII)

#: The files of a package, each with its template in the folder ``templates``. In paths and
#: templates, ``@key@`` stands for a value of :func:`_values_of_templates`.
_TEMPLATES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/test.yml": "workflow.yml",
    "tests/test_@name_@.py": "test.py",
    "@module@/__init__.py": "factory.py",
}


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

    Creates the folder NAME with a package that can be installed and tested at once. Its samples are
    made up until you add your source. Overwrites nothing.
    """
    folder = write_package(name, kind, splits, into)
    factory_file = next(folder.glob("data_stack_*/__init__.py"))
    print_result(
        settings,
        {"folder": str(folder), "factory": str(factory_file)},
        f"wrote {folder}: a dataset with made-up samples ({kind})\n"
        f"  cd {folder} && pip install -e '.[test]' && pytest\n"
        f"Then add your source to {factory_file}, and choose a license for your code, see "
        "README.md.",
    )


def write_package(name: str, kind: str, splits: Sequence[str], parent: Path) -> Path:
    """Write the package ``parent/name`` atomically.

    Args:
        name: the name of the dataset and of the new folder.
        kind: the kind of the samples: ``"images"``, ``"table"`` or ``"text"``.
        splits: the names of the splits.
        parent: an existing folder.

    Returns:
        The folder of the package.

    Raises:
        ConfigError: a name is invalid or taken, or the folder exists.
        MissingDependencyError: samples of this kind require a package that is not installed.
    """
    _check_name(name)
    _check_not_installed(name)
    _check_splits(splits)
    folder = parent / name
    if os.path.lexists(folder):
        raise ConfigError(
            f"{os.fspath(folder)!r} already exists; choose another name, or another folder with "
            "--into"
        )

    contents = _contents_of_package(name, kind, splits)
    # A temporary folder beside the package allows to rename the package atomically. The package
    # is written within the temporary folder, so that it gets the usual permissions.
    with tempfile.TemporaryDirectory(prefix=".~new-", dir=parent) as temporary_folder:
        unfinished_package = Path(temporary_folder, name)
        for relative_path, content in contents.items():
            path = unfinished_package / relative_path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        unfinished_package.rename(folder)
    return folder


# ---------------------------------------------------------------------- names


def _check_name(name: str) -> None:
    """Check the name of a dataset.

    Raises:
        ConfigError: a package cannot have this name.
    """
    if not _NAME_OF_DATASET.fullmatch(name) or len(name) > _MAX_LENGTH_OF_NAME:
        raise ConfigError(
            f"invalid dataset name {name!r:.80}: a name begins with a letter, then up to 59 "
            "letters and digits, with single '-' or '_' between them, such as 'street-signs'"
        )


def _check_not_installed(name: str) -> None:
    """Check that no installed package has a dataset or a module of the name.

    Raises:
        ConfigError: one has.
    """
    from data_stack.plugins.manager import default_manager

    installed_names = set()
    for qualified_name in default_manager().dataset_names():
        dataset_name = qualified_name.rpartition(":")[2]
        installed_names.add(re.sub("[-_.]+", "_", dataset_name).lower())
    is_dataset = _as_identifier(name) in installed_names
    is_module = importlib.util.find_spec(_module_name(name)) is not None
    if is_dataset or is_module:
        raise ConfigError(
            f"an installed package already has a dataset {name!r} (`data-stack list`); choose "
            "another name"
        )


def _check_splits(splits: Sequence[str]) -> None:
    """Check the names of splits.

    Raises:
        ConfigError: a name is invalid, or occurs twice.
    """
    are_valid = all(_NAME_OF_SPLIT.fullmatch(split) for split in splits)
    # Some file systems do not distinguish capital letters.
    n_different = len({split.casefold() for split in splits})
    if not are_valid or n_different < len(splits):
        raise ConfigError(
            f"invalid split names {', '.join(splits)!r:.200}: names must differ and have up to 40 "
            "letters, digits, '_' and '-'"
        )


def _as_identifier(name: str) -> str:
    """Return ``"street_signs"`` for ``"Street-Signs"``."""
    return name.replace("-", "_").lower()


def _module_name(name: str) -> str:
    return f"data_stack_{_as_identifier(name)}"


# ---------------------------------------------------------------------- files


def _contents_of_package(name: str, kind: str, splits: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of all files of a package by path."""
    source_name, source = make_up_samples(kind, splits)
    values = _values_of_templates(name, kind, splits, source_name, source)
    contents = {}
    for path, template in _TEMPLATES.items():
        contents[_fill_in(path, values)] = _fill_in(_read_template(template), values).encode()
    module = _module_name(name)
    contents[f"{module}/py.typed"] = b""
    contents[f"{module}/{source_name}"] = source
    return contents


def _values_of_templates(
    name: str, kind: str, splits: Sequence[str], source_name: str, source: bytes
) -> dict[str, str]:
    """Return what stands for each ``@key@`` of a template.

    Args:
        name: the name of the dataset.
        kind: the kind of the samples. The template of this name has three parts: imports, the type
            of a sample, and the body of the factory.
        splits: the names of the splits.
        source_name: the name of the file with made-up samples.
        source: the bytes of this file.
    """
    imports, sample_type, body = _read_template(kind).split("---\n")
    class_name = "".join(part.title() for part in re.split("[-_]", name))
    quoted_splits = str(tuple(splits)).replace("'", '"')
    return {
        "imports": imports.rstrip(),
        "sample": sample_type.rstrip(),
        "body": body.rstrip(),
        "name": name,
        "name_": _as_identifier(name),
        "title": re.sub("[-_]", " ", name).capitalize(),
        "module": _module_name(name),
        "Class": class_name,
        "Factory": f"{class_name}Factory",
        "file": source_name,
        "sha256": hashlib.sha256(source).hexdigest(),
        "size": str(len(source)),
        "splits": quoted_splits,
        "first_split": splits[0],
        "requirement": "lazy-data-stack[images]" if kind == "images" else "lazy-data-stack",
    }


def _fill_in(text: str, values: Mapping[str, str]) -> str:
    """Replace each ``@key@`` of a template or path by its value."""
    # In this order: the body of the factory has keys in it, too.
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _read_template(name: str) -> str:
    folder = resources.files("data_stack") / "cli" / "templates"
    return (folder / f"{name}.tmpl").read_text(encoding="utf-8")
