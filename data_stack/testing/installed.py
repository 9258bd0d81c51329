"""The tests of an installed dataset with its real sources, which ``data-stack check`` runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import ClassVar

import pytest

from data_stack.exception import RetrievalError
from data_stack.factories.declarative import DatasetFactory
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import is_offline, retrieve
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.repository.repository import default_repository
from data_stack.testing.dataset import DatasetContract

_IS_OFFLINE = is_offline()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that ``data-stack check`` passes."""
    parser.addoption("--dataset", help="name of the dataset")
    parser.addoption("--results", help="file for a line of JSON per test")


def pytest_configure(config: pytest.Config) -> None:
    """Find the dataset."""
    factory = default_repository().get_factory(config.getoption("dataset"), "memory://")
    assert isinstance(factory, DatasetFactory)
    TestInstalled.factory = type(factory)


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Report results from now on."""
    config.pluginmanager.register(_Reporter(config.getoption("results")))


class _Reporter:
    def __init__(self, path: str) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        reason = (
            report.longrepr[2].removeprefix("Skipped: ")
            if isinstance(report.longrepr, tuple)
            else report.longreprtext
        )
        name, bracket, parameters = report.location[2].partition(".test_")[2].partition("[")
        check = f"{name.replace('_', ' ')} {bracket}{parameters}".strip()
        result = {
            "check": check,
            "outcome": report.outcome,
            "seconds": round(report.duration, 3),
            "reason": reason,
        }
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


class TestInstalled(DatasetContract):
    """The contract on the bytes of the real sources."""

    _contents: ClassVar[dict[str, bytes]] = {}

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Try each place of each source."""
        super().pytest_generate_tests(metafunc)
        if "place" in metafunc.fixturenames:
            places = [
                replace(each, source=place, mirrors=())
                for each in cls.factory.sources
                for place in each.sources
            ]
            metafunc.parametrize("place", places, ids=[place.source for place in places])

    def make_source(self, identifier: str) -> bytes:
        """The real bytes, from the first place that has them."""
        if identifier not in self._contents:
            self._retrieve(
                next(source for source in self.factory.sources if source.identifier == identifier)
            )
        return self._contents[identifier]

    def test_the_source_is_at(self, place: ResourceDefinition) -> None:
        self._retrieve(place)

    def _retrieve(self, source: ResourceDefinition) -> None:
        store = InMemoryStorageConnector()
        try:
            retrieve([source], store, offline=_IS_OFFLINE, progress=False)
        except RetrievalError as error:
            if _IS_OFFLINE or all(place.startswith("package:") for place in source.sources):
                pytest.skip(f"{'--offline: ' if _IS_OFFLINE else ''}{error.attempts[-1][1]}")
            pytest.fail(str(error), pytrace=False)
        self._contents[source.identifier] = bytes(store.get_resource(source.identifier).read())
