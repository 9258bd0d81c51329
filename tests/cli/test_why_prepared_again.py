"""Why a stored dataset is prepared again is told by the report of the preparation, by a warning and by ``data-stack info``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.repository.repository import default_repository


class Reasons(DatasetFactory):
    """Numbers."""

    card = DatasetCard(name="reasons", version="1.0.0")
    splits = ("train",)

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        with prepared.create("preprocessed/numbers.bin") as file:
            file.write(b"123")

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared["preprocessed/numbers.bin"] as resource:
            return SequenceDatasetIterator([list(resource.read())])


class Newer(Reasons):
    card = DatasetCard(name="reasons", version="2.0.0")


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    default_repository().register("reasons", Reasons)
    yield
    default_repository().remove("reasons")


@pytest.mark.parametrize(
    ("again", "reason"), [(Newer, "stored: reasons 1.0.0"), (Reasons, "preprocessed/numbers.bin' has 1 bytes, 3 were prepared")]
)
def test_what_does_not_fit_any_more_is_the_reason(
    command: Any, store: Path, caplog: pytest.LogCaptureFixture, again: type[DatasetFactory], reason: str
) -> None:
    first_told, first = command("info", "reasons").out, Reasons(FileStorageConnector(store)).prepare()
    (store / "reasons" / "1.0.0" / "preprocessed" / "numbers.bin").write_bytes(b"2")
    default_repository().register("reasons", again, replace=True)
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    told, report = command("info", "reasons").out, again(FileStorageConnector(store)).prepare()

    assert (first.reason, warned) == (None, [])
    assert "prepared  no\n" in first_told
    assert reason in str(report.reason)
    assert str(report.reason) in caplog.text
    assert f"no: {report.reason}" in told
    assert "prepared  yes\n" in command("info", "reasons").out
