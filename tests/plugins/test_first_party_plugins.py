"""The packages in ``plugins/`` use public names of data_stack alone, and are known as plugins."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_stack.formats.records import RecordWriter
from data_stack.plugins.installed import InstalledPlugins

PLUGINS = Path(__file__).parents[2] / "plugins"
MODULES = sorted(PLUGINS.glob("*/data_stack_*/**/*.py"))
KNOWN_PACKAGES = {"data_stack", *(module.relative_to(PLUGINS).parts[1] for module in MODULES)}
#: Of named tuples, and of pyspark for access to the JVM.
KNOWN = {"_asdict", "_fields", "_make", "_active_spark_context", "_jsc", "_jvm"}


def private_names(source: str, package: str = "") -> Iterator[str]:
    """Private names: of modules of other packages, or attributes of objects of other modules."""
    tree = ast.parse(source)
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.target.id for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in KNOWN_PACKAGES - {package}:
            yield from (f"{node.module}.{alias.name}" for alias in node.names if not is_public(str(node.module), alias.name))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("data_stack") and "._" in alias.name)
        elif isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr) and node.attr not in own | KNOWN:
            yield ast.unparse(node)


def is_public(module: str, name: str) -> bool:
    """Whether a module's ``__all__`` has a name, or the module defines it where it has none, or it is a module itself."""
    if any(part.startswith("_") for part in (*module.split("."), name)):
        return False
    found = importlib.import_module(module)
    if hasattr(found, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None:
        return True
    if hasattr(found, "__all__"):
        return name in found.__all__
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(Path(str(found.__file__)).read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if alias.asname != alias.name  # a name that is imported as itself is offered
    }
    return hasattr(found, name) and name not in imported


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_a_plugin_uses_public_names_alone(module: Path) -> None:
    source = module.read_text(encoding="utf-8")

    assert list(private_names(source, module.relative_to(PLUGINS).parts[1])) == []


def test_the_rule_sees_private_names() -> None:
    for source in ("from data_stack.plugins.manager import _HOOKS", "def f(loader):\n    return loader._plan"):
        assert list(private_names(source)) != []


def test_they_are_listed_where_they_bring_what_is_found_by_name() -> None:
    installed = InstalledPlugins.read()

    assert {"digits", "iris"} <= set(installed.datasets)
    assert ("spark", "datastack-spark") in {(record.name, record.distribution) for record in installed.behaviour}


@pytest.mark.parametrize("call", ["data_stack.load({folder!r})[0]", "default_manager().catalogues()['hf']"])
def test_heavy_packages_are_not_imported_until_a_catalogue_is_used(tmp_path: Path, call: str) -> None:
    with RecordWriter(tmp_path, {"n": "i64"}) as writer:
        writer.append({"n": 1})
    program = f"""
import sys
import data_stack
from data_stack.plugins import default_manager
{call.format(folder=str(tmp_path))}
print([each for each in ("pyarrow", "pandas", "huggingface_hub", "sklearn", "arff") if each in sys.modules])
"""

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ran.stdout == "[]\n"
