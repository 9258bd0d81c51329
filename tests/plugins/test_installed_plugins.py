"""Which plugins are installed: of other packages, of our own, of the documentation."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import data_stack
from data_stack.exception import AmbiguousDatasetError, ConfigError, DatasetNotFoundError, PluginError
from data_stack.formats.records import RecordWriter
from data_stack.plugins import PluginManager

Site = Any  # the class in conftest.py, which cannot be imported from here

EXPLODES = "raise SystemExit('imported')"


def test_listing_fifty_datasets_imports_none_of_them(site: Site, manager: PluginManager) -> None:
    names = [f"set{i:02}" for i in range(50)]
    for name in names:
        site.install_dataset(name, EXPLODES)

    assert [name for name in manager.dataset_names() if name in names] == names
    assert {record.state for record in site.records(manager.records()).values()} == {"listed"}
    assert not [module for module in sys.modules if module.startswith("set")]


@pytest.mark.parametrize("name", ["bad name", "../up", "a/b", "a:b"])
def test_a_malformed_name_is_broken_and_its_neighbour_is_listed(site: Site, manager: PluginManager, name: str) -> None:
    site.install("odd", f"[data_stack.datasets]\n{name} = module:Factory\ngood = module:Factory\n")

    records = site.records(manager.records())

    assert records.pop("good").state == "listed"
    (broken,) = records.values()
    assert (broken.state, "name cannot be used" in str(broken.error)) == ("broken", True)
    assert "good" in manager.dataset_names()
    assert broken.name not in manager.dataset_names()


# ---------------------------------------------------------------------- one name twice


def test_a_name_of_two_distributions_leads_to_neither(site: Site, manager: PluginManager) -> None:
    site.install_dataset("numbers", distribution="first")
    site.install_dataset("numbers", distribution="second")
    site.install_dataset("other")

    with pytest.raises(AmbiguousDatasetError, match=r"'first:numbers' or 'second:numbers'"):
        manager.load_dataset("numbers")
    states = {record.distribution: record.state for record in manager.records() if record.distribution in site.distributions}
    assert states == {"first": "shadowed", "second": "shadowed", "other-plugin": "listed"}
    assert manager.load_dataset("other").__module__ == "other_plugin_other"


def test_the_distribution_tells_two_datasets_of_one_name_apart(site: Site, manager: PluginManager) -> None:
    site.install_dataset("numbers", distribution="first-One")
    site.install_dataset("numbers", distribution="second")

    names = [name for name in manager.dataset_names() if name.endswith(":numbers")]

    assert names == ["first-One:numbers", "second:numbers"]
    assert [manager.load_dataset(name).__module__ for name in names] == ["first_One_numbers", "second_numbers"]
    assert manager.load_dataset("First_one:numbers").__module__ == "first_One_numbers"
    with pytest.raises(DatasetNotFoundError):
        manager.load_dataset("third:numbers")


# ---------------------------------------------------------------------- switches


@pytest.mark.parametrize(
    ("value", "usable"), [("1", []), ("", ["a", "b"]), ("a", ["b"]), (" B_Plugin , c", ["a"]), ("b-plugin:b", ["a"])]
)
def test_a_variable_disables_plugins(
    site: Site, manager: PluginManager, monkeypatch: pytest.MonkeyPatch, value: str, usable: list[str]
) -> None:
    site.install_dataset("a")
    site.install_dataset("b")

    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", value)

    records = site.records(manager.records())
    assert [name for name in manager.dataset_names() if name in "ab"] == usable
    assert {name: record.state for name, record in records.items()} == {
        name: "listed" if name in usable else "blocked" for name in "ab"
    }


BROKEN = {
    "exits": ("import sys; sys.exit('bye')", SystemExit),
    "stops": ("raise GeneratorExit", GeneratorExit),
    "no_python": ("def Factory(:", SyntaxError),
    "lacks_class": ("factory = 1", AttributeError),
    "cannot_be_shown": ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E", Exception),
    "number": ("Factory = 7", ConfigError),
    "other_class": ("class Factory: pass", ConfigError),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_dataset_raises_its_own_error_and_disturbs_no_other(site: Site, manager: PluginManager, kind: str) -> None:
    source, error = BROKEN[kind]
    site.install_dataset("broken", source)
    site.install_dataset("whole")

    with pytest.raises(PluginError, match=r"dataset 'broken' of broken-plugin 1\.0") as caught:
        manager.load_dataset("broken")

    assert isinstance(caught.value.__cause__, error)
    assert manager.load_dataset("whole").__name__ == "Factory"
    records = site.records(manager.records())
    assert (records["broken"].state, records["whole"].state) == ("broken", "ok")
    assert type(caught.value.__cause__).__name__ in str(records["broken"].error)
    assert {"broken", "whole"} <= set(manager.dataset_names())


def test_ctrl_c_while_a_plugin_is_imported_reaches_the_user(site: Site, manager: PluginManager) -> None:
    site.install_dataset("numbers", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        manager.load_dataset("numbers")

    assert site.records(manager.records())["numbers"].state == "listed"


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


PAGE = (Path(data_stack.__file__).parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
#: The examples by the names of their suites, without "Contract".
EXAMPLES = {match[2]: match[1] for match in re.finditer(r"```python\n((?:(?!```).)*?\((\w+)Contract\):.*?)```", PAGE, re.DOTALL)}


def test_there_is_an_example_of_each_kind() -> None:
    assert set(EXAMPLES) == {"StorageConnector", "Retriever", "Engine", "Encoder", "Codec", "Layer"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name != "Codec" else name for name in sorted(EXAMPLES)],
)
def test_an_example_keeps_its_contract(tmp_path: Path, name: str) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLES[name], encoding="utf-8")

    command = [
        sys.executable,
        *["-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_example.py"],
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)

    assert result.returncode == 0, result.stdout[-5000:] + result.stderr


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"Layer"}))
def test_the_hook_of_an_example_is_accepted(site: Site, manager: PluginManager, name: str) -> None:
    site.install_hooks("example", EXAMPLES[name])

    (record,) = site.records(manager.doctor()).values()

    assert (record.state, record.error) == ("ok", None)
