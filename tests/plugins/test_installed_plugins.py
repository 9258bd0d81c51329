"""Listing plugins reads metadata, imports nothing, and no distribution disturbs another."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from data_stack.exception import AmbiguousDatasetError, DatasetNotFoundError
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
