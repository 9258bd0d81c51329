"""Listing plugins reads metadata, imports nothing, and no distribution disturbs another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from data_stack.exception import AmbiguousDatasetError, DatasetNotFoundError, PluginError
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


def test_ten_thousand_entry_points_are_listed(site: Site, manager: PluginManager) -> None:
    entries = "".join(f"set{i} = nowhere.module:Factory\n" for i in range(10_000))

    site.install("many", "[data_stack.datasets]\n" + entries)

    assert len(site.records(manager.records())) == 10_000


def test_a_record_says_what_a_dataset_is_and_where_it_comes_from(site: Site, manager: PluginManager) -> None:
    site.install_dataset("numbers")

    record = site.records(manager.records())["numbers"]

    assert (record.name, record.group, record.distribution, record.version) == (
        "numbers",
        "data_stack.datasets",
        "numbers-plugin",
        "1.0",
    )
    assert (record.state, record.error, record.import_ms) == ("listed", None, None)
    assert record.entry_point == "numbers_plugin_numbers:Factory"
    assert record.qualified_name == "numbers-plugin:numbers"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("bad name = module:Factory", "name cannot be used"),
        ("../up = module:Factory", "name cannot be used"),
        ("a/b = module:Factory", "no '/'"),
        ("a:b = module:Factory", "name cannot be used"),
        ("nul = module:Factory", "device"),
        ("= module:Factory", "name cannot be used"),
        ("Größe = module:Factory", "name cannot be used"),
        ("noclass = module", "write 'package.module:Class'"),
        ("twocolons = module:A:B", "write 'package.module:Class'"),
        ("digit = 1module:Factory", "write 'package.module:Class'"),
        ("path = ../module.py:Factory", "write 'package.module:Class'"),
        ("noequals", "write 'package.module:Class'"),
    ],
)
def test_a_malformed_entry_is_broken_and_its_neighbour_is_listed(
    site: Site, manager: PluginManager, line: str, reason: str
) -> None:
    site.install("odd", f"[data_stack.datasets]\n{line}\ngood = module:Factory\n")

    records = site.records(manager.records())

    assert records.pop("good").state == "listed"
    (broken,) = records.values()
    assert broken.state == "broken"
    assert reason in str(broken.error)
    assert "good" in manager.dataset_names()
    assert broken.name not in manager.dataset_names()


def test_an_entry_point_file_that_is_no_utf8_disturbs_nobody(site: Site, manager: PluginManager) -> None:
    site.install("latin", "[data_stack.datasets]\nGröße = module:Factory\nplain = module:Factory\n".encode("latin-1"))
    site.install_dataset("numbers")

    records = site.records(manager.records())

    assert (records["numbers"].state, records["plain"].state) == ("listed", "listed")
    assert records["Gr\\xf6\\xdfe"].state == "broken"


def test_other_groups_comments_and_blank_lines_are_passed_over(site: Site, manager: PluginManager) -> None:
    site.install(
        "mixed",
        """
        [console_scripts]
        data_stack_tool = module:main

        # a comment
        [data_stack.datasets]
        ; another
        kept = module:Factory [extra]
        """,
    )

    assert list(site.records(manager.records())) == ["kept"]
    assert site.records(manager.records())["kept"].state == "listed"


@pytest.mark.parametrize("metadata", [None, b"", b"Name: \xff\xfe\nVersion: \xff\n"])
def test_a_distribution_without_readable_metadata_goes_by_its_folder(
    site: Site, manager: PluginManager, metadata: bytes | None
) -> None:
    site.install("folder", "[data_stack.datasets]\nset = module:Factory\n", version="3.1")
    path = site.folder / "folder-3.1.dist-info" / "METADATA"
    path.unlink()
    if metadata is not None:
        path.write_bytes(metadata)

    record = site.records(manager.records())["set"]

    assert (record.distribution, record.version, record.state) == ("folder", "3.1", "listed")


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


def test_an_ambiguous_dataset_stays_shadowed_after_its_import_and_says_so(site: Site, manager: PluginManager) -> None:
    site.install_dataset("numbers", distribution="first")
    site.install_dataset("numbers", distribution="second")

    records = [record for record in manager.doctor() if record.distribution in site.distributions]

    assert [record.state for record in records] == ["shadowed", "shadowed"]
    assert all(record.import_ms is not None and "ask for" in str(record.error) for record in records)


def test_a_name_that_a_distribution_lists_twice_is_its_first_entry(site: Site, manager: PluginManager) -> None:
    site.install("twice", "[data_stack.datasets]\nset = one:Factory\nset = two:Factory\nset = one:Factory\n")

    records = [record for record in manager.records() if record.distribution == "twice"]

    assert [(record.entry_point, record.state) for record in records] == [("one:Factory", "listed"), ("two:Factory", "broken")]


def test_an_earlier_copy_of_a_distribution_hides_a_later_one(
    site: Site, manager: PluginManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("numbers-plugin", "[data_stack.datasets]\nnumbers = old:Factory\n", version="1.0")
    later = type(site)(tmp_path / "later")
    later.install("Numbers.Plugin", "[data_stack.datasets]\nnumbers = new:Factory\n", version="2.0")
    monkeypatch.setattr(sys, "path", [*sys.path, str(later.folder)])

    records = {record.version: record for record in manager.records() if record.name == "numbers"}

    assert (records["1.0"].state, records["2.0"].state) == ("listed", "shadowed")
    assert "earlier copy" in str(records["2.0"].error)
    assert [record.version for record in manager.providers("numbers")] == ["1.0"]


def test_an_equal_copy_of_a_distribution_is_not_mentioned(
    site: Site, manager: PluginManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install_dataset("numbers")
    (tmp_path / "link").symlink_to(site.folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "link")])

    assert [record.state for record in manager.records() if record.name == "numbers"] == ["listed"]


# ---------------------------------------------------------------------- switches


@pytest.mark.parametrize(
    ("variable", "value", "usable"),
    [
        ("DATA_STACK_PLUGINS", "a-plugin", ["a"]),
        ("DATA_STACK_PLUGINS", " A_Plugin , b ", ["a", "b"]),
        ("DATA_STACK_PLUGINS", "b-plugin:b", ["b"]),
        ("DATA_STACK_PLUGINS", "", ["a", "b"]),
        ("DATA_STACK_PLUGINS", "nothing", []),
        ("DATA_STACK_DISABLE_PLUGINS", "1", []),
        ("DATA_STACK_DISABLE_PLUGINS", "0", ["a", "b"]),
        ("DATA_STACK_DISABLE_PLUGINS", "a", ["b"]),
        ("DATA_STACK_DISABLE_PLUGINS", "b-plugin", ["a"]),
    ],
)
def test_environment_variables_choose_plugins(
    site: Site, manager: PluginManager, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, usable: list[str]
) -> None:
    site.install_dataset("a")
    site.install_dataset("b")

    monkeypatch.setenv(variable, value)

    records = site.records(manager.records())
    assert [name for name in manager.dataset_names() if name in "ab"] == usable
    assert {name: record.state for name, record in records.items()} == {
        name: "listed" if name in usable else "blocked" for name in "ab"
    }


def test_asking_for_a_blocked_dataset_says_which_variable_blocks_it(
    site: Site, manager: PluginManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install_dataset("numbers", EXPLODES)
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "1")

    with pytest.raises(DatasetNotFoundError, match="DATA_STACK_DISABLE_PLUGINS disables it"):
        manager.load_dataset("numbers")


def test_blocking_one_of_two_providers_leaves_the_name_to_the_other(
    site: Site, manager: PluginManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install_dataset("numbers", distribution="first")
    site.install_dataset("numbers", distribution="second")

    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "first")

    assert manager.load_dataset("numbers").__module__ == "second_numbers"


def test_disabling_plugins_leaves_the_built_in_datasets(
    site: Site, manager: PluginManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("datastack", "[data_stack.datasets]\nbuilt_in = module:Factory\n")

    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "1")
    monkeypatch.setenv("DATA_STACK_PLUGINS", "other")
    assert "built_in" in manager.dataset_names()

    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "built_in")
    assert "built_in" not in manager.dataset_names()


@pytest.mark.parametrize("entries", ["bad name = module:Factory", "a = one:F\na = two:F"])
def test_strict_listing_raises_at_a_malformed_plugin(
    site: Site, manager: PluginManager, monkeypatch: pytest.MonkeyPatch, entries: str
) -> None:
    site.install("odd", f"[data_stack.datasets]\n{entries}\n")

    monkeypatch.setenv("DATA_STACK_STRICT_PLUGINS", "1")

    with pytest.raises(PluginError, match="DATA_STACK_STRICT_PLUGINS"):
        manager.records()


def test_a_dataset_installed_while_the_program_runs_is_found(site: Site, manager: PluginManager) -> None:
    with pytest.raises(DatasetNotFoundError):
        manager.load_dataset("numbers")

    site.install_dataset("numbers")

    assert manager.load_dataset("numbers").__name__ == "Factory"
