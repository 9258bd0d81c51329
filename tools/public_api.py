"""Writes ``tests/public_api.txt``: what users and plugins may rely on, one name a line, sorted.

``make api`` runs this, and says which changes break programs; a test compares the file with the
code. ``docs/stability.md`` says what a change of a line means. griffe reads the Python names from
the source, so that the packages which they need (TensorFlow, JAX, Spark) need not be installed.

Public are

- of Python: the names in ``__all__``, or in the stub, of each module of data_stack that has one,
  and of each first-party plugin; the names that the table of ``docs/reference/plugins.md`` lists
  for authors of plugins; the modules of the original DataStack (below), with what they define; of a
  class its methods, attributes and the parameters of its constructor.
  Names and modules that begin with an underscore are not public;
- each command of ``data-stack`` with its arguments and options;
- the groups and names of entry points, the hooks of plugins, the extras, and the variables of the
  environment. Of these, griffe knows nothing.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import griffe

from data_stack.cli.group import cli

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests" / "public_api.txt"

#: Modules of the original DataStack, whose paths stay.
ORIGINAL = [
    "dataset.factory",
    "dataset.iterator",
    "dataset.meta",
    "dataset.preprocesor",
    "dataset.preprocessor",
    "dataset.reporting",
    "dataset.splitter",
    "exception",
    "io.resource_definition",
    "io.resources",
    "io.retriever",
    "io.storage_connectors",
    "mnist.factory",
    "mnist.iterator",
    "mnist.preprocessor",
    "repository.repository",
    "util.helper",
    "util.logger",
]
#: Modules whose names pages describe and no list has.
DOCUMENTED = [
    "loader.accelerate",
    "loader.jax",
    "loader.keras",
    "loader.lightning",
    "loader.tensorflow",
    "loader.torch",
]
#: Names that griffe does not see, each with the one that means the same: those that a function
#: ``__getattr__`` of a module makes (deprecated ones, which warn), one that a decorator sets, and
#: one that a module has too.
RUN_TIME_NAMES = {
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
    "data_stack.codecs.ZstdCodec.is_around": "data_stack.codecs.ZstdCodec.wraps_codec",
    "data_stack.repository.default_storage": "data_stack.default_storage",
}
NOT_FOR_USERS = {"bench", "dev", "docs", "test"}


# ------------------------------------------------------------------ Python


def load_code() -> griffe.ModulesCollection:
    """Read data_stack and the first-party plugins, without importing or installing them."""
    plugins = sorted(ROOT.glob("plugins/*/data_stack_*"))
    folders = [ROOT, *(plugin.parent for plugin in plugins)]
    loader = griffe.GriffeLoader(search_paths=folders, allow_inspection=False)
    for package in ["data_stack", *(plugin.name for plugin in plugins)]:
        loader.load(package, try_relative_path=False)
    loader.resolve_aliases(implicit=True, external=False)
    return loader.modules_collection


def iterate_modules(package: griffe.Module) -> Iterator[griffe.Module]:
    """Iterate over a package and all modules in it."""
    yield package
    for module in package.modules.values():
        if not module.is_alias:
            yield from iterate_modules(module)


def list_modules(code: griffe.ModulesCollection) -> dict[str, set[str] | None]:
    """Return the public modules, each with the names that are public in it; None for all that it
    lists or defines.
    """
    modules: dict[str, set[str] | None] = {}
    for name in [*DOCUMENTED, *ORIGINAL]:
        modules[f"data_stack.{name}"] = None
    for package in code.members.values():
        for module in iterate_modules(package):
            has_list = module.exports is not None or _find_stub(module).exists()
            if has_list and not re.search(r"\._|\btests\b|\bcli\b", module.path):
                modules[module.path] = None
    page = (ROOT / "docs" / "reference" / "plugins.md").read_text(encoding="utf-8")
    for module_name, cell in re.findall(r"^\| `(data_stack[.\w]*)` \| ([^|]*) \|", page, re.M):
        names = set(re.findall(r"`(\w+)`", cell))
        has_all = not names or modules.get(module_name, names) is None
        modules[module_name] = None if has_all else names
    return modules


def list_names(module: griffe.Module) -> list[str]:
    """Return the names that a module lists, in ``__all__`` or its stub, or else defines."""
    names = {str(name) for name in module.exports or ()}
    if _find_stub(module).exists():
        names.update(name for name, member in module.members.items() if not member.runtime)
    if not names and "__all__" in module.members:
        # griffe does not compute a list.
        names.update(importlib.import_module(module.path).__all__)
    if not names:
        for name, member in module.members.items():
            if not member.is_alias and (member.is_function or member.is_class):
                names.add(name)
    public = []
    for name in sorted(names):
        is_module = isinstance(_resolve(module[name]), griffe.Module)
        if not name.startswith("_") and not is_module:
            public.append(name)
    return public


def _find_stub(module: griffe.Module) -> Path:
    return Path(str(module.filepath)).with_suffix(".pyi")


def find_homes(code: griffe.ModulesCollection) -> dict[str, str]:
    """Return each public name with the shortest public name of the same object, which is where its
    members are listed.
    """
    names: dict[str, str] = {}
    for module_name, listed in list_modules(code).items():
        for name in sorted(listed or list_names(code[module_name])):
            names[f"{module_name}.{name}"] = _find_path(code[f"{module_name}.{name}"])
    homes: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (name.count("."), name)):
        homes.setdefault(names[name], name)
    return {name: homes[path] for name, path in names.items()}


def describe_name(
    name: str, value: griffe.Object | griffe.Alias, public: set[str]
) -> Iterator[str]:
    """Return the lines of a name: its signature, and those of its members if it is a class.

    Members that it has of a public base are listed there.
    """
    yield format_signature(name, value)
    target = _resolve(value)
    if not isinstance(target, griffe.Class):
        return
    inherited: set[str] = set()
    for base in target.mro():
        if base.path in public:
            inherited.update(_find_path(member) for member in base.all_members.values())
    for member_name, member in target.all_members.items():
        is_hidden = member_name.startswith(("_", "test_", "pytest_"))
        if not is_hidden and _find_path(member) not in inherited:
            yield format_signature(f"{name}.{member_name}", member)


def format_signature(name: str, value: griffe.Object | griffe.Alias) -> str:
    """Return a name with the parameters of the function or constructor, and what it returns."""
    target = _resolve(value)
    if isinstance(target, griffe.Class):
        return _format_class(name, target)
    if isinstance(target, griffe.Function) and not _is_value(target):
        return _format_call(name, target)
    return name


#: Bases of classes of which users make no objects.
_NOT_CALLED = {"enum.Enum", "enum.IntEnum", "typing.Protocol"}


def _format_class(name: str, value: griffe.Class) -> str:
    """Return the name of a class with the parameters of its constructor, if users call it."""
    bases = set(_list_bases(value))
    if "typing.NamedTuple" in bases:
        fields = []
        for field in value.attributes.values():
            default = "" if field.value is None else f" = {field.value}"
            if "property" not in field.labels:
                fields.append(f"{field.name}: {field.annotation}{default}")
        return f"{name}({', '.join(fields)})"
    constructor = value.all_members.get("__init__")
    target = None if constructor is None else _resolve(constructor)
    if isinstance(target, griffe.Function) and not bases & _NOT_CALLED:
        return _format_call(name, target)
    return name


def _list_bases(value: griffe.Class) -> Iterator[str]:
    """Iterate over the paths of all bases, those of other libraries too."""
    for ancestor in [value, *value.mro()]:
        for base in ancestor.bases:
            yield base if isinstance(base, str) else base.canonical_path


def _is_value(function: griffe.Function) -> bool:
    """Return whether a decorator makes a value of a function: a fixture, an attribute."""
    names = [decorator.callable_path for decorator in function.decorators]
    return any(name.endswith(("fixture", ".Attribute")) for name in names)


def _format_call(name: str, function: griffe.Function) -> str:
    """Return the signature of a function, with the values of constants that are defaults."""
    for parameter in function.parameters:
        if isinstance(parameter.default, griffe.ExprName):
            constant = _find_constant(function, parameter.default.canonical_path)
            parameter.default = constant or parameter.default
    return function.signature(name=name, return_type=True)


def _find_constant(function: griffe.Function, path: str) -> str | griffe.Expr | None:
    try:
        constant = function.modules_collection[path]
    except KeyError:
        return None  # of another library
    target = _resolve(constant)
    return target.value if isinstance(target, griffe.Attribute) else None


def _resolve(value: griffe.Object | griffe.Alias) -> griffe.Object | None:
    """Return what a name means; None for that of another library, whose source is not read."""
    if not isinstance(value, griffe.Alias):
        return value
    try:
        return value.final_target
    except griffe.AliasResolutionError:
        return None


def _find_path(value: griffe.Object | griffe.Alias) -> str:
    """Return where an object is defined."""
    target = _resolve(value)
    if target is None and isinstance(value, griffe.Alias):
        return value.target_path
    return value.canonical_path


def describe_python() -> Iterator[str]:
    """Return the lines of all names of Python."""
    code = load_code()
    homes = find_homes(code)
    public = {_find_path(code[name]) for name in homes}
    for name, home in homes.items():
        if name == home:
            yield from describe_name(name, code[name], public)
        else:
            yield f"{name} is {home}"
    for name, home in RUN_TIME_NAMES.items():
        yield f"{name} is {home}"
    for name, hook in code["data_stack.plugins.hookspecs"].functions.items():
        if name.startswith("data_stack_"):
            yield f"hook {hook.signature()}"


def list_breakages() -> Iterator[str]:
    """Return what would break programs that use data_stack as the last commit has it."""
    before = griffe.load_git(
        "data_stack",
        repo=ROOT,
        allow_inspection=False,
        resolve_aliases=True,
        resolve_implicit=True,
        resolve_external=False,
    )
    code = load_code()
    public = {_find_path(code[name]) for name in find_homes(code)}
    for breakage in griffe.find_breaking_changes(before, code["data_stack"]):
        path = breakage.obj.canonical_path
        if path in public or path.rpartition(".")[0] in public:
            change = breakage.explain(griffe.ExplanationStyle("markdown"))
            yield f"{path}: {change.removeprefix('- ')}"


# ------------------------------------------------------------------ all that is not Python


def list_commands(command: click.Command, path: str) -> Iterator[str]:
    """Return the lines of a command: its arguments, each of its options, and its commands."""
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            yield from list_commands(subcommand, f"{path} {name}")
    else:
        words = [path]
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                words.append(str(parameter.metavar or parameter.name).upper())
        yield " ".join(words)
    for option in command.params:
        if isinstance(option, click.Option):
            value = "" if option.is_flag else f" {option.metavar or '…'}"
            yield f"{path} {', '.join([*option.opts, *option.secondary_opts])}{value}"


def list_metadata() -> Iterator[str]:
    """Return the lines of entry points, extras and variables of the environment."""
    installed = importlib.metadata.packages_distributions()["data_stack"][0]
    for extra in importlib.metadata.metadata(installed).get_all("Provides-Extra") or ():
        if extra not in NOT_FOR_USERS:
            yield f"extra [{extra}]"
    for point in importlib.metadata.distribution(installed).entry_points:
        yield f"entry point {point.group}: {point.name}"
    yield from ("entry points data_stack", "entry points data_stack.datasets")
    for path in (ROOT / "data_stack").rglob("*.py"):
        for name in re.findall(r"\b(DATA_STACK_[A-Z_]+[A-Z])\b", path.read_text(encoding="utf-8")):
            yield f"environment {name}"


def describe() -> str:
    """Return all lines."""
    importlib.import_module("data_stack.cli.main")  # puts all commands together
    lines = {*describe_python(), *list_commands(cli, "data-stack"), *list_metadata()}
    return "\n".join([*sorted(" ".join(line.split()) for line in lines), ""])


def main() -> int:
    """Write the file, and print what breaks programs.

    Returns 1 if names changed and ``CHANGELOG.md`` has no change to commit with it.
    """
    before = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    now = describe()
    if now == before:
        return 0
    git = shutil.which("git") or "git"
    command = [git, "status", "--porcelain", "CHANGELOG.md"]
    status = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    is_repository = status.returncode == 0
    if is_repository:
        for breakage in list_breakages():
            print(f"breaks programs, so deprecate it first (docs/stability.md): {breakage}")
        if not status.stdout:
            print("public names changed: say so in CHANGELOG.md first")
            return 1
    FILE.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    sys.exit(main())
