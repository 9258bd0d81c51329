"""The packages in ``plugins/`` use public names of data_stack alone, and are known as plugins."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data_stack.formats.records import RecordWriter

PLUGINS = Path(__file__).parents[2] / "plugins"
MODULES = sorted(PLUGINS.glob("*/data_stack_*/**/*.py"))
#: Of named tuples, and of pyspark for access to the JVM.
KNOWN = {"_asdict", "_fields", "_make", "_active_spark_context", "_jsc", "_jvm"}


def test_plugins_use_no_private_attributes_of_others() -> None:
    found = []
    for module in MODULES:
        nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
        own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
        own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr)}
        found += [f"{module}: {name}" for name in used - own - KNOWN]

    assert found == []


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
