"""Writes ``tests/public_api.txt``: what users and plugins may rely on, one name a line, sorted.

``make api`` runs this; a test compares the file with the code. ``docs/stability.md`` says what a
change of a line means.

Public are

- of Python: the names in ``__all__``, or in the stub, of each module of data_stack that has one,
  and of each first-party plugin; the names that the table of ``docs/reference/plugins.md`` lists for authors
  of plugins; the modules of the original DataStack (below),
  with what they define; of a class its methods, properties and the parameters of its constructor.
  Names and modules that begin with an underscore are not public;
- each command of ``data-stack`` with its arguments and options;
- the groups and names of entry points, the hooks of plugins, the extras, and the variables of the
  environment.
"""

from __future__ import annotations

import enum
import importlib
import importlib.metadata
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from data_stack.cli.group import cli

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests" / "public_api.txt"

#: Modules of the original DataStack, whose paths stay.
ORIGINAL = [
    *(
        "dataset.factory",
        "dataset.iterator",
        "dataset.meta",
        "dataset.preprocesor",
        "dataset.preprocessor",
        "dataset.reporting",
    ),
    *(
        "dataset.splitter",
        "exception",
        "io.resource_definition",
        "io.resources",
        "io.retriever",
        "io.storage_connectors",
    ),
    *(
        "mnist.factory",
        "mnist.iterator",
        "mnist.preprocessor",
        "repository.repository",
        "util.helper",
        "util.logger",
    ),
]
#: Names that pages describe and no list has.
DOCUMENTED: dict[str, set[str] | None] = {"data_stack.loader.torch": None}
#: Deprecated names of modules, each with its new name: asking for one warns.
DEPRECATED = {
    "data_stack.codecs.Column": "data_stack.codecs.ColumnType",
    "data_stack.dataset.encoders.Column": "data_stack.dataset.encoders.ColumnArray",
    "data_stack.dataset.iterator.Column": "data_stack.dataset.iterator.ColumnArray",
    "data_stack.distributed.ProcessEngine": "data_stack.engines.ProcessEngine",
    "data_stack.distributed.attempts.Failure": "data_stack.engines.attempts.Failure",
    "data_stack.distributed.attempts.attempt": "data_stack.engines.attempts.attempt",
    "data_stack.distributed.attempts.pack": "data_stack.engines.attempts.pack",
    "data_stack.distributed.attempts.unpack": "data_stack.engines.attempts.unpack",
    "data_stack.exception.LicenceDeniedError": "data_stack.exception.LicenseDeniedError",
    "data_stack.formats.records.Column": "data_stack.formats.records.ColumnType",
    "data_stack.factories.engine.PreparationEngine": "data_stack.engines.PreparationEngine",
    "data_stack.io.storage_connectors.fsspec.FsspecStorageConnector": (
        "data_stack.FsspecStorageConnector"
    ),
}
#: TensorFlow and JAX are not in the environment of the tests.
SKIPPED = {
    "data_stack.loader.tensorflow",
    "data_stack.loader.jax",
    "data_stack_petastorm.tf_utils",
}
NOT_FOR_USERS = {"bench", "dev", "docs", "test"}


def list_modules() -> dict[str, set[str] | None]:
    """The public modules, each with the names that are public in it; None for all that it lists or
    defines.
    """
    modules = {**DOCUMENTED, **{f"data_stack.{name}": None for name in ORIGINAL}}
    roots = [ROOT / "data_stack", *ROOT.glob("plugins/*/data_stack_*")]
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            has_list = re.search(
                r"^__all__\b|^__getattr__, .*__all__ = ",
                path.read_text(encoding="utf-8"),
                re.MULTILINE,
            )
            if (
                (has_list or name == "data_stack")
                and not re.search(r"\._|\btests\b|\bcli\b", name)
                and name not in SKIPPED
            ):
                modules[name] = None
    page = (ROOT / "docs" / "reference" / "plugins.md").read_text(encoding="utf-8")
    for module, names in re.findall(r"^\| `(data_stack[.\w]*)` \| ([^|]*) \|", page, re.MULTILINE):
        listed = set(re.findall(r"`(\w+)`", names)) or None
        modules[module] = None if listed is None or modules.get(module, listed) is None else listed
    return modules


def list_names(module: str, listed: set[str] | None) -> list[str]:
    """The public names of a module; those that need an optional package are among them."""
    found = importlib.import_module(module)
    stub = Path(str(found.__file__)).with_suffix(".pyi")
    names: set[str] = {*(listed if listed else getattr(found, "__all__", []))}
    if stub.exists() and not listed:
        names.update(re.findall(r" as (\w+),?$", stub.read_text(encoding="utf-8"), re.MULTILINE))
    if not names:
        names = {
            name
            for name, value in vars(found).items()
            if getattr(value, "__module__", "") == module
        }
    return sorted(
        name for name in names if name[0] != "_" and not inspect.ismodule(getattr(found, name))
    )


def find_homes() -> dict[str, tuple[Any, str]]:
    """Each public name with what it names and the shortest of the names of that, which is where its
    members are listed.
    """
    names = {
        f"{module}.{name}": getattr(importlib.import_module(module), name)
        for module, listed in list_modules().items()
        for name in list_names(module, listed)
    }
    homes: dict[int, str] = {}
    for name in sorted(names, key=lambda name: (name.count("."), name)):
        homes.setdefault(id(names[name]), name)
    return {
        name: (value, homes[id(value)] if _is_code(value) else name)
        for name, value in names.items()
    }


def describe_name(name: str, value: Any, public: set[int]) -> Iterator[str]:
    """The lines of a name: its signature, and those of its members if it is a class of ours.

    Members that it has of a public base are listed there.
    """
    if inspect.isclass(value) and _is_ours(value):
        is_plain = issubclass(value, enum.Enum) or getattr(value, "_is_protocol", False)
        has_constructor = any(_is_ours(_owner(value, method)) for method in ("__init__", "__new__"))
        yield f"{name}{_signature(value) if has_constructor and not is_plain else ''}"
        bases = [base for base in value.__mro__[1:] if id(base) in public]
        for member in sorted(
            {
                member
                for base in value.__mro__
                if _is_ours(base)
                for member in vars(base)
                if member[0] != "_"
            }
        ):
            found = inspect.getattr_static(value, member)
            if any(
                inspect.getattr_static(base, member, None) is found for base in bases
            ) or member.startswith(("test_", "pytest_")):
                continue
            yield from _describe_member(f"{name}.{member}", found)
    else:
        yield f"{name}{_signature(value) if _is_code(value) else ''}"


def _describe_member(name: str, member: Any) -> Iterator[str]:
    function = getattr(member, "__func__", member)
    is_fixture = hasattr(function, "_pytestfixturefunction")  # a function until pytest 8.4
    yield f"{name}{_signature(function) if inspect.isfunction(function) and not is_fixture else ''}"


def _owner(value: type, member: str) -> type:
    return next(base for base in value.__mro__ if member in vars(base))


def _is_code(value: Any) -> bool:
    return (inspect.isclass(value) or inspect.isroutine(value)) and _is_ours(value)


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("data_stack")


def _signature(function: Any) -> str:
    """Parameters and defaults; no annotations that are objects, whose text differs between versions
    of Python.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(…)"
    parameters = []
    for each in signature.parameters.values():
        annotation = _Shown(each.annotation) if isinstance(each.annotation, str) else each.empty
        default = (
            each.default if each.default is each.empty or _is_plain(each.default) else _Shown("…")
        )
        parameters.append(each.replace(annotation=annotation, default=default))
    returned = signature.return_annotation
    text = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return f"{text} -> {returned}" if isinstance(returned, str) else str(text)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return type(value) in (int, float, str, bytes, bool, type(None))


class _Shown:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def list_commands(command: click.Command, path: str) -> Iterator[str]:
    """A command with its arguments, each of its options, and its commands."""
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from list_commands(each, f"{path} {name}")
    else:
        words = [
            str(each.metavar or each.name).upper()
            for each in command.params
            if isinstance(each, click.Argument)
        ]
        yield " ".join([path, *words])
    for option in command.params:
        if isinstance(option, click.Option):
            value = "" if option.is_flag else f" {option.metavar or '…'}"
            yield f"{path} {', '.join([*option.opts, *option.secondary_opts])}{value}"


def list_metadata() -> Iterator[str]:
    """Entry points, hooks, extras and variables of the environment."""
    installed = importlib.metadata.packages_distributions()["data_stack"][0]
    for extra in importlib.metadata.metadata(installed).get_all("Provides-Extra") or ():
        if extra not in NOT_FOR_USERS:
            yield f"extra [{extra}]"
    for point in importlib.metadata.distribution(installed).entry_points:
        yield f"entry point {point.group}: {point.name}"
    yield from ("entry points data_stack", "entry points data_stack.datasets")
    for name, hook in vars(importlib.import_module("data_stack.plugins.hookspecs")).items():
        if name.startswith("data_stack_"):
            yield f"hook {name}{_signature(hook)}"
    for path in (ROOT / "data_stack").rglob("*.py"):
        for name in re.findall(r"\b(DATA_STACK_[A-Z_]+[A-Z])\b", path.read_text(encoding="utf-8")):
            yield f"environment {name}"


def describe() -> str:
    """All lines."""
    importlib.import_module("data_stack.cli.main")  # puts all commands together
    lines = {*list_metadata(), *list_commands(cli, "data-stack")}
    lines.update(f"{old_name} is {name}" for old_name, name in DEPRECATED.items())
    homes = find_homes()
    public = {id(value) for value, _ in homes.values()}
    for name, (value, home) in homes.items():
        lines.update(describe_name(name, value, public) if name == home else [f"{name} is {home}"])
    return "\n".join([*sorted(" ".join(line.split()) for line in lines), ""])


def main() -> int:
    """Write the file; 1 if names changed and ``CHANGELOG.md`` has no change to commit with it."""
    before, now = FILE.read_text(encoding="utf-8") if FILE.exists() else "", describe()
    words = ["status", "--porcelain", "CHANGELOG.md"]
    changed = subprocess.run(
        [shutil.which("git") or "git", *words], cwd=ROOT, capture_output=True, text=True
    )
    if now != before and changed.returncode == 0 and not changed.stdout:
        print("public names changed: say so in CHANGELOG.md first")
        return 1
    FILE.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    sys.exit(main())
