"""Imports point downward, form no circle, and bring heavy packages only where these are needed."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from process_harness import run_python

import data_stack

ROOT = Path(data_stack.__file__).parent

#: Lowest first; a module imports from its own layer and from those before it. The package's own
#: ``__init__`` is above all.
LAYERS = [
    "exception",
    "util",
    "values",
    "processes",
    "engines",
    "distributed",
    "io",
    "codecs",
    "dataset",
    "show",
    "plugins",
    "factories",
    "formats",
    "loader",
    "exchange",
    "repository",
    "stores",
    "reproduce",
    "loading",
    "mnist",
    "browse",
    "agents",
    "testing",
    "cli",
]

#: Modules whose imports may point upward: the methods of iterators import the layers that they
#: make, inside of the method, and paths that programs of the original import are names of modules
#: elsewhere.
UPWARD = {
    "data_stack.dataset.iterator.converted",
    "data_stack.dataset.iterator.described",
    "data_stack.dataset.iterator.fluent",
    "data_stack.dataset.factory",
    "data_stack.dataset.preprocesor",
    "data_stack.dataset.preprocessor",
    "data_stack.dataset.reporting",
}

#: Heavy packages, and the modules, or packages of ours, that exist for them (or call for them
#: inside of a function).
HEAVY = {
    "accelerate": {"data_stack.loader.accelerate"},
    "av": {"data_stack.codecs.videos"},
    "botocore": {"data_stack.io.storage_connectors.object_store"},
    "bson": {"data_stack.io.storage_connectors.mongodb"},
    "cloudpickle": {"data_stack.processes.pickling"},
    "cv2": {"data_stack.codecs.png"},
    "datasets": {"data_stack.exchange.tables.huggingface"},
    "fsspec": {"data_stack.io.storage_connectors.object_store"},
    "msgpack": {"data_stack.codecs.arrays", "data_stack.formats.records.sample_references"},
    "mcp": {"data_stack.agents.server"},
    "mlcroissant": set[str](),
    "paramiko": {"data_stack.io.storage_connectors.object_store"},
    "google": {"data_stack.io.storage_connectors.object_store"},
    "gridfs": set[str](),
    "h5py": {"data_stack.formats.hdf5"},
    "jax": {"data_stack.loader.jax"},
    "keras": {"data_stack.loader.keras"},
    "lightning": {"data_stack.loader.lightning"},
    "matplotlib": {"data_stack.show.plots"},
    "pandas": {"data_stack.exchange.tables.pandas"},
    "PIL": {
        "data_stack.codecs.images",
        "data_stack.show.drawing",
        "data_stack.show.pictures",
        "data_stack.show.sample_sheet",
    },
    "obstore": {"data_stack.io.storage_connectors.object_store"},
    "polars": {"data_stack.exchange.tables.polars"},
    "py4j": set[str](),
    "pyarrow": {
        "data_stack.exchange.tables",
        "data_stack.formats.arrow_ipc",
        "data_stack.formats.arrow_tables",
        "data_stack.formats.text_tables",
        "data_stack.formats.conversion.parquet_columns",
        "data_stack.formats.conversion.text_sources",
        "data_stack.formats.parquet",
    },
    "pyspark": set[str](),
    "ray": set[str](),
    "pymongo": {"data_stack.io.storage_connectors.mongodb"},
    "requests": {
        "data_stack.io.web.adapters",
        "data_stack.io.web.routes",
        "data_stack.io.web.sessions",
    },
    "s3fs": set[str](),
    "simplejpeg": {"data_stack.codecs.pillow_images"},
    "starlette": {"data_stack.browse.server"},
    "sklearn": {"data_stack.dataset.splits.scikit_learn_splits"},
    "soundfile": {"data_stack.codecs.sound"},
    "tensorflow": {"data_stack.loader.tensorflow"},
    "torch": {
        "data_stack.formats.torch_tensors",
        "data_stack.loader.keras",
        "data_stack.loader.torch",
        "data_stack.processes.pickling",
        "data_stack.mnist.iterator",
        "data_stack.mnist.preprocessor",
    },
    "uvicorn": {"data_stack.browse.server"},
    "yaml": {"data_stack.show.reporting"},
    "zstandard": {"data_stack.codecs.zstd", "data_stack.io.archives.decompression"},
}

#: Packages that an installation may lack.
OPTIONAL = sorted({*HEAVY, "scipy"} - {"cloudpickle", "h5py", "msgpack", "requests"})


@dataclass(frozen=True)
class Import:
    """One imported module.

    Attributes:
        module: its dotted name.
        line: where it is imported.
        is_run: false below ``if TYPE_CHECKING``, and for a module that a string names.
        is_in_function: whether it runs with a function, not with its module.
    """

    module: str
    line: int
    is_run: bool
    is_in_function: bool


def modules_of(root: Path) -> dict[str, Path]:
    """The modules of a package by their names."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        stub = path.with_suffix(".pyi")  # names what the package imports when it is asked for it
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = (
            stub if stub.exists() else path
        )
    return modules


@functools.cache
def imports_in(root: Path) -> dict[str, list[Import]]:
    """The imports of each module of a package."""
    modules = modules_of(root)
    return {module: imports_of(path, modules) for module, path in modules.items()}


def imports_of(path: Path, modules: dict[str, Path]) -> list[Import]:
    """All imports of a file, also in functions and for type checking, and the modules that its
    strings name.

    ``from package import module`` is an import of the module, and so are ``"package.module"`` and
    ``"package.module:name"``.
    """
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    for_types = {
        id(node)
        for block in nodes
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
    }
    in_functions = {
        id(inner)
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
    }
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found = []
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            is_run, is_in_function = id(node) not in for_types, id(node) in in_functions
            found += [
                Import(name, node.lineno, is_run, is_in_function) for name in _names(node, modules)
            ]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            found += [
                Import(name, node.lineno, False, id(node) in in_functions)
                for name in _named_by(node.value, modules)
            ]
    return found


def _named_by(text: str, modules: dict[str, Path]) -> Iterator[str]:
    name = text.partition(":")[0]
    named = [each for each in (name, name.rpartition(".")[0]) if "." in each and each in modules]
    yield from named[
        :1
    ]  # of a module its name, not that of its package; the name of all is a mere word


def _names(node: ast.Import | ast.ImportFrom, modules: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.level:
        yield "." * node.level + (node.module or "")
    else:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            yield name if name in modules else str(node.module)


def _layer(module: str) -> int:
    parts = module.split(".")
    return len(LAYERS) if len(parts) == 1 else LAYERS.index(parts[1])


def exists_for(module: str, package: str) -> bool:
    """Whether a module, or a package of ours that it is in, is there for the sake of
    ``package``.
    """
    return package not in HEAVY or any(
        f"{module}.".startswith(f"{each}.") for each in HEAVY[package]
    )


def test_imports_point_downward() -> None:
    found = []
    for module, imports in imports_in(ROOT).items():
        if module == ROOT.name or module in UPWARD:
            continue
        for each in imports:
            if each.module.startswith("."):
                found.append(f"{module}:{each.line} imports relatively; write the whole name")
            elif each.module.split(".")[0] == ROOT.name and _layer(each.module) > _layer(module):
                found.append(f"{module}:{each.line} imports {each.module}, which is above it")

    assert found == []


def test_the_architecture_page_shows_the_layers_in_their_order() -> None:
    page = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, after_heading = page.partition("## The layers of the package\n")
    diagram = after_heading.split("```")[1]
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}

    shown = re.findall(r"^ +(\w+)", diagram, re.MULTILINE)

    assert shown == LAYERS[::-1]
    assert packages <= {*shown}


def test_imports_form_no_circle() -> None:
    """Lazy ones, those for type checking and strings included, but not those upward that
    :data:`UPWARD` allows.
    """
    modules = imports_in(ROOT)

    def is_downward(module: str, each: Import) -> bool:
        return module not in UPWARD or (each.is_run and not each.is_in_function)

    targets = {
        module: sorted(
            {
                each.module
                for each in imports
                if is_downward(module, each) and each.module in modules
            }
            - {module}
        )
        for module, imports in modules.items()
    }
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(module: str, way: list[str]) -> None:
        if module in way:
            found.append([*way[way.index(module) :], module])
        elif module not in done:
            for target in targets[module]:
                visit(target, [*way, module])
            done.add(module)

    for module in modules:
        visit(module, [])

    assert found == []


def test_heavy_packages_are_imported_only_by_modules_made_for_them() -> None:
    found = [
        f"{module}:{each.line} imports {each.module}"
        for module, imports in imports_in(ROOT).items()
        for each in imports
        if each.is_run and not exists_for(module, each.module.split(".")[0])
    ]

    assert found == []


def test_plugins_import_only_public_names_and_no_modules_of_another() -> None:
    """Public are the names of each module in the table of ``docs/reference/plugins.md``."""
    page = (ROOT.parent / "docs" / "reference" / "plugins.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(data_stack[.\w]*)` \| ([^|]*) \|", page, re.MULTILINE)
    public = {
        module: {*importlib.import_module(module).__all__}
        if names == "all"
        else {*re.findall(r"`(\w+)`", names)}
        for module, names in rows
    }
    found = []
    for path in sorted((ROOT.parent / "plugins").glob("*/data_stack_*/**/*.py")):
        package = path.relative_to(ROOT.parent / "plugins").parts[1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, (ast.Import, ast.ImportFrom))
                else []
            )
            if module.split(".")[0] == "data_stack":
                known = {
                    *public.get(module, ()),
                    *(
                        each.rpartition(".")[2]
                        for each in public
                        if each.rpartition(".")[0] == module
                    ),
                }
                found += [f"{path}: {module}.{name}" for name in names if name not in known]
            for other in [module] if module else names:
                if re.match(r"data_stack_\w+\.", other) and other.split(".")[0] != package:
                    found.append(f"{path}: {other}")

    assert found == []


def printed_by(program: str) -> Any:
    """What a program prints as JSON in a process of its own."""
    return json.loads(run_python("-c", program, PYTHONPATH=str(ROOT.parent))[0])


IMPORT_ALL = """
import importlib, importlib.abc, json, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
errors = {}
for name in MODULES:
    try:
        importlib.import_module(name)
    except ImportError as error:
        errors[name] = [type(error).__name__, str(error)]
import data_stack
for name in data_stack.__all__:
    getattr(data_stack, name)
print(json.dumps(errors))
"""


def test_without_optional_packages_only_modules_for_them_fail_to_import() -> None:
    modules = [name for name in modules_of(ROOT) if not name.endswith("__main__")]
    program = f"BLOCKED = {OPTIONAL!r}\nMODULES = {modules!r}\n{IMPORT_ALL}"

    errors = printed_by(program)

    missing = {name: error[0] for name, error in errors.items()}
    assert [
        name
        for name in missing
        if not any(exists_for(name, package) for package in OPTIONAL if package in HEAVY)
    ] == []
    assert set(missing.values()) == {"MissingDependencyError"}
    assert all('pip install "lazy-data-stack[' in error[1] for error in errors.values())


LIGHT = [
    "data_stack.browse",
    "data_stack.cli.main",
    "data_stack.dataset.factory",
    "data_stack.dataset.iterator",
    "data_stack.dataset.reporting",
    "data_stack.dataset.splitter",
    "data_stack.reproduce",
    "data_stack.show",
    "data_stack.formats",
    "data_stack.io.resources",
    "data_stack.io.retriever",
    "data_stack.io.storage_connectors",
    "data_stack.mnist",
    "data_stack.plugins",
    "data_stack.repository",
    "data_stack.loading",
]


def test_light_modules_import_no_heavy_package() -> None:
    program = f"import json, sys\nfor name in {LIGHT!r}: __import__(name)\nprint(json.dumps(sorted(sys.modules)))"

    modules = printed_by(program)

    # msgpack takes a millisecond, and comes with the package
    assert set(modules) & {*HEAVY, "scipy", "IPython"} - {"msgpack"} == set()


def test_importing_data_stack_imports_nothing_else() -> None:
    modules = printed_by(
        "from __future__ import annotations\nimport json, sys, typing\nbefore = {*sys.modules}\nimport data_stack\n"
        "print(json.dumps(sorted({*sys.modules} - before)))"
    )

    assert modules == ["data_stack"]


IMPORT_WITH_WARNINGS = """
import importlib, json, os, sys, warnings

left_out = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            left_out[name] = getattr(error, "package", None) or error.name or str(error)
ours = [f"{each.filename}:{each.lineno}: {each.message}" for each in caught
        if os.path.realpath(each.filename).startswith(tuple(ROOTS))]
print(json.dumps([left_out, ours]))
"""

#: Packages of which only some environments have all: `make test-pythons` says what it left out.
IN_SOME_ENVIRONMENTS = {
    *OPTIONAL,
    "jax",
    "lazy-data-stack-spark",
    "pyspark",
    "ray",
    "tensorflow",
    "torch",
}


def list_packages() -> list[Path]:
    """The folders of data_stack and of its plugins."""
    return [ROOT, *sorted((ROOT.parent / "plugins").glob("*/data_stack_*"))]


def test_importing_any_module_warns_of_nothing() -> None:
    roots = list_packages()
    modules = [name for root in roots for name in modules_of(root) if not name.endswith("__main__")]
    constants = f"MODULES = {modules!r}\nROOTS = {[str(root) for root in roots]!r}\n"

    # In a new environment, all packages are compiled first.
    output, _ = run_python("-c", constants + IMPORT_WITH_WARNINGS, timeout_seconds=250)
    left_out, warned = json.loads(output)

    assert warned == []
    assert set(left_out.values()) <= IN_SOME_ENVIRONMENTS
    assert len(left_out) < len(modules) / 10


def test_compiling_any_module_warns_of_nothing() -> None:
    # Python keeps what it has compiled, and warns only when it compiles anew.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for root in list_packages():
            for path in root.rglob("*.py"):
                compile(path.read_bytes(), path, "exec")
