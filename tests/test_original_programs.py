"""Habits of programs written for the original DataStack that no interface states, and that go on working."""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import data_stack
from data_stack.dataset.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import DatasetFileCorruptError, MaliciousFilePathError, ResourceNotFoundError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.resources import ResourceFactory, StreamedResource
from data_stack.io.retriever import RetrieverFactory
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector


class DictConnector(StorageConnector):
    """A client's connector: the three methods, and chunks taken by iterating."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def get_resource(self, identifier: str, resource_type: Any = None) -> StreamedResource:
        if identifier not in self.stored:
            raise ResourceNotFoundError(identifier)
        return StreamedResource(identifier, io.BytesIO(self.stored[identifier]))

    def set_resource(self, identifier: str, resource: Iterable[bytes]) -> None:  # type: ignore[override]  # as the client has it
        self.stored[identifier] = b"".join(resource)

    def has_resource(self, identifier: str) -> bool:
        return identifier in self.stored


class Factory(DatasetFactory):
    """Three numbers."""

    card = DatasetCard(name="numbers", version="1")
    splits = ("all",)

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for step in prepared.steps(["one"]):
            with prepared.create(f"preprocessed/{step}") as file:
                file.write(b"\n\x01\x02" * 1000)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared["preprocessed/one"] as resource:
            return SequenceDatasetIterator([list(resource.read())])


def test_a_connector_of_three_methods_that_iterates_what_it_is_given_keeps_a_dataset() -> None:
    connector = DictConnector()

    iterator, _ = Factory(connector).get_dataset_iterator()

    assert (len(iterator), iterator[0], iterator[1]) == (3000, (10,), (1,))
    assert Factory(connector).is_ready()
    assert len(data_stack.load("iris", split="all", storage=connector)) == 150


def test_a_buffer_outlives_the_name_it_was_stored_under(tmp_path: Path) -> None:
    buffer = io.BytesIO(b"abc")
    FileStorageConnector(tmp_path).set_resource("x", ResourceFactory.get_resource("x", buffer))
    StreamedResource("y", buffer)

    assert not buffer.closed
    buffer.seek(0)
    assert buffer.read() == b"abc"


def test_a_stored_file_can_be_mapped(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    connector.set_resource("x", b"0123456789")
    with connector.get_resource("x") as resource, mmap.mmap(resource.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[3:5] == b"34"


@pytest.mark.parametrize("identifier", ["../../x", "a/../../x", "/etc/passwd"])
def test_climbing_out_is_a_malicious_path(tmp_path: Path, identifier: str) -> None:
    connector = FileStorageConnector(tmp_path / "root")

    with pytest.raises(MaliciousFilePathError):
        connector.set_resource(identifier, [b"x"])
    with pytest.raises(MaliciousFilePathError):
        connector.has_resource(identifier)


def test_a_placeholder_for_an_md5_fails_when_it_is_compared(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    job = ResourceDefinition(identifier="x", source=str(tmp_path / "f"), md5_sum="to be found out")

    with pytest.raises(DatasetFileCorruptError):
        RetrieverFactory.get_file_retriever(FileStorageConnector(tmp_path / "root")).retrieve([job])
