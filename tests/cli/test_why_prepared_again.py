"""Why a stored dataset is prepared again is told by the report of the preparation, by a warning and by ``data-stack info``."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparationReport, PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.repository.repository import default_repository

from .conftest import Command

NAME = "reasons"


class ReasonsFactory(DatasetFactory):
    """Numbers, doubled."""

    card = DatasetCard(name=NAME, version="1.0.0")
    splits = ("train",)
    fails = False

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for _ in prepared.steps(["double"]):
            with raw["raw/numbers.txt"] as source, prepared.create("preprocessed/numbers.bin") as file:
                file.write(bytes(2 * int(number) for number in source.read().split()))
        if self.fails:
            raise KeyboardInterrupt

    def open(self, split: str, prepared: Resources, *, scaled: bool = False) -> DatasetIteratorIF:
        with prepared["preprocessed/numbers.bin"] as resource:
            return SequenceDatasetIterator([list(resource.read())])


@pytest.fixture
def register() -> Iterator[Callable[[type[DatasetFactory]], None]]:
    repository = default_repository()
    yield lambda factory: repository.register(NAME, factory, replace=True)
    if NAME in repository.list():
        repository.remove(NAME)


@pytest.fixture
def variant(tmp_path: Path, store: Path) -> Callable[..., type[DatasetFactory]]:
    """Makes the class again, with another source or other attributes."""

    def make(numbers: str = "1 2 3", **attributes: Any) -> type[DatasetFactory]:
        path = tmp_path / f"{numbers}.txt"
        path.write_text(numbers)
        source = ResourceDefinition("raw/numbers.txt", path.as_uri(), sha256=hashlib.sha256(numbers.encode()).hexdigest())
        return type("SourcedReasonsFactory", (ReasonsFactory,), {"__module__": __name__, "sources": (source,), **attributes})

    return make


@pytest.fixture
def reasons(
    store: Path, command: Command, register: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> Callable[..., tuple[str | None, str, str]]:
    """Prepares with a class, and gives the reason in the report, in the warnings, and in ``data-stack info`` before that."""

    def look(factory: type[DatasetFactory]) -> tuple[str | None, str, str]:
        register(factory)
        told = command("info", NAME).out
        caplog.clear()
        report: PreparationReport = factory(FileStorageConnector(store)).prepare()
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        return report.reason, "\n".join(warnings), told

    return look


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        pytest.param({"card": DatasetCard(name=NAME, version="2.0.0")}, "stored: reasons 1.0.0", id="version"),
        pytest.param({"numbers": "4 5 6"}, "prepared from another 'raw/numbers.txt'", id="digest-of-a-source"),
    ],
)
def test_what_the_class_says_otherwise_now_is_the_reason(
    reasons: Callable[..., tuple[str, str, str]],
    variant: Callable[..., type[DatasetFactory]],
    store: Path,
    attributes: dict[str, Any],
    reason: str,
) -> None:
    variant()(FileStorageConnector(store)).prepare()

    reported, warned, told = reasons(variant(**attributes))

    assert reason in reported
    assert reason in warned
    assert f"no: {reported}" in told


def test_a_prepared_file_that_was_cut_is_the_reason(
    reasons: Callable[..., tuple[str, str, str]], variant: Callable[..., type[DatasetFactory]], store: Path
) -> None:
    factory = variant()
    factory(FileStorageConnector(store)).prepare()
    (store / NAME / "1.0.0" / "preprocessed" / "numbers.bin").write_bytes(b"\2")

    reported, warned, told = reasons(factory)

    assert "preprocessed/numbers.bin" in reported
    assert "has 1 bytes, 3 were prepared" in reported
    assert reported in warned
    assert f"no: {reported}" in told


def test_other_code_that_began_a_preparation_is_the_reason(
    reasons: Callable[..., tuple[str, str, str]], variant: Callable[..., type[DatasetFactory]], store: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        variant(fails=True)(FileStorageConnector(store)).prepare()

    reported, warned, told = reasons(variant())

    assert "steps were done by other code" in reported
    assert reported in warned
    assert f"no: {reported}" in told


def test_nothing_is_told_of_the_first_preparation_nor_of_what_is_ready(
    reasons: Callable[..., tuple[str | None, str, str]], variant: Callable[..., type[DatasetFactory]]
) -> None:
    factory = variant()

    first = reasons(factory)
    second = reasons(factory)

    assert first[:2] == second[:2] == (None, "")
    assert "prepared  no\n" in first[2]
    assert "prepared  yes\n" in second[2]
