"""Plugins that are installed for a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from distributions import write_distribution

from data_stack.plugins import PluginManager, PluginRecord, default_manager
from data_stack.repository import default_repository

DATASET_MODULE = """
    from data_stack import DatasetCard, DatasetFactory, IteratorMeta, SequenceDatasetIterator

    class Factory(DatasetFactory):
        "Numbers in order."

        card = DatasetCard(name="numbers", version="2.0", license="CC0-1.0", homepage="https://example.org", citation="A. Author")
        splits = ("train", "test")

        def open(self, split, prepared, *, start=0, step=1):
            numbers = range(start, start + 10 * step, step)
            return SequenceDatasetIterator([numbers, numbers, numbers])
"""


class Site:
    """A folder on ``sys.path`` to install distributions into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.distributions: set[str] = set()

    def install(
        self, distribution: str, entry_points: str, modules: Mapping[str, str] | None = None
    ) -> None:
        """Write a distribution with modules."""
        write_distribution(self.folder, distribution, entry_points, modules)
        self.distributions.add(distribution)

    def install_dataset(
        self, name: str, module: str = DATASET_MODULE, distribution: str | None = None
    ) -> None:
        """Write a distribution ``NAME-plugin`` with one dataset, the class ``Factory`` of
        ``module``.
        """
        distribution = distribution or f"{name}-plugin"
        module_name = f"{distribution}_{name}".replace("-", "_")
        self.install(
            distribution,
            f"[data_stack.datasets]\n{name} = {module_name}:Factory\n",
            {module_name: module},
        )

    def install_hooks(self, name: str, module: str) -> None:
        """Write a distribution ``NAME-plugin`` with one module of hooks."""
        module_name = f"{name}_plugin_hooks"
        self.install(
            f"{name}-plugin", f"[data_stack]\n{name} = {module_name}\n", {module_name: module}
        )

    def records(self, records: list[PluginRecord]) -> dict[str, PluginRecord]:
        """Those of the distributions installed here, by name."""
        return {
            record.name: record for record in records if record.distribution in self.distributions
        }


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty folder on ``sys.path``; its modules are removed from ``sys.modules`` afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.delenv("DATA_STACK_DISABLE_PLUGINS", raising=False)
    monkeypatch.setenv("DATA_STACK_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # modules rewritten within a second are read again
    before = set(sys.modules)
    _forget()
    yield Site(folder)
    _forget()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def _forget() -> None:
    default_manager.cache_clear()
    default_repository.cache_clear()


@pytest.fixture
def manager(site: Site) -> PluginManager:
    """A new manager."""
    return PluginManager()
