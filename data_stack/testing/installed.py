"""The tests of an installed dataset with its real sources, which ``data-stack check`` runs.

This module is a plugin of pytest, and the file with the tests. ``data-stack check`` starts pytest
in a process of its own, and reads the results from a file.
"""

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

#: Whether ``--offline`` was given: sources that need the network are skipped.
_IS_OFFLINE = is_offline()

# ---------------------------------------------------------------------- the plugin of pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that ``data-stack check`` passes."""
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
    """Writes the outcome of each test into a file, a line of JSON each.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the outcome of a test, or of its preparation unless that passed."""
        is_about_preparation = report.when != "call"
        if report.passed and is_about_preparation:
            return
        result = {
            "check": _sentence_of(report),
            "outcome": report.outcome,
            "seconds": round(report.duration, 3),
            "reason": _reason_of(report),
        }
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def _sentence_of(report: pytest.TestReport) -> str:
    """Return ``"it pickles [train]"`` for ``TestInstalled.test_it_pickles[train]``."""
    _, _, name_of_test = report.location[2].partition(".test_")
    name, bracket, parameters = name_of_test.partition("[")
    return f"{name.replace('_', ' ')} {bracket}{parameters}".strip()


def _reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped or failed; empty if it passed."""
    if isinstance(report.longrepr, tuple):  # of a skipped test: file, line, reason
        return report.longrepr[2].removeprefix("Skipped: ")
    return report.longreprtext


# ---------------------------------------------------------------------- the tests


class TestInstalled(DatasetContract):
    """The contract on the bytes of the real sources."""

    #: The bytes that were retrieved, by the identifiers of the sources.
    _contents: ClassVar[dict[str, bytes]] = {}

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Try each place of each source."""
        super().pytest_generate_tests(metafunc)
        if "place" not in metafunc.fixturenames:
            return
        definitions = []
        for source in cls.factory.sources:
            for place in source.sources:
                definitions.append(replace(source, source=place, mirrors=()))
        places = [definition.source for definition in definitions]
        metafunc.parametrize("place", definitions, ids=places)

    def make_source(self, identifier: str) -> bytes:
        """Return the real bytes, from the first place that has them."""
        if identifier not in self._contents:
            for source in self.factory.sources:
                if source.identifier == identifier:
                    self._retrieve(source)
        return self._contents[identifier]

    def test_the_source_is_at(self, place: ResourceDefinition) -> None:
        """Each place has the bytes of the source, mirrors too."""
        self._retrieve(place)

    def _retrieve(self, source: ResourceDefinition) -> None:
        """Retrieve the bytes of a source; skip the test if they cannot be had here."""
        store = InMemoryStorageConnector()
        try:
            retrieve([source], store, offline=_IS_OFFLINE, progress=False)
        except RetrievalError as error:
            _, reason_of_last_attempt = error.attempts[-1]
            if _IS_OFFLINE:
                pytest.skip(f"--offline: {reason_of_last_attempt}")
            if all(place.startswith("package:") for place in source.sources):
                pytest.skip(reason_of_last_attempt)  # the package is not installed here
            reasons = "\n".join(f"{place}: {reason}" for place, reason in error.attempts)
            # Without the chained error, which says the same and advises import-file: that is for
            # the store of a user.
            raise pytest.fail.Exception(
                f"source {source.identifier!r} could not be retrieved:\n{reasons}", pytrace=False
            ) from None
        self._contents[source.identifier] = bytes(store.get_resource(source.identifier).read())
