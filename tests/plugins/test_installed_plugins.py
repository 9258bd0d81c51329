"""Listing plugins reads metadata, imports nothing, and no distribution disturbs another."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from data_stack.exception import AmbiguousDatasetError, ConfigError, DatasetNotFoundError, PluginError
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
