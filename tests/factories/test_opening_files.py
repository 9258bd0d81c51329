"""The copy of the files that ``open()`` reads saves requests, and never changes what is read."""

from __future__ import annotations

import pickle
import re
import zlib
from typing import Any

import pytest

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import (
    DatasetFileCorruptError,
    ResourceChangedError,
    ResourceNotFoundError,
)
from data_stack.factories.opening_files import MAX_STORED_BYTES, OpeningFiles
from data_stack.formats import NumpyDatasetIterator
from data_stack.io.storage_connectors import StorageConnector

COPY = "words/1.0/opening@files"


class Words(DatasetFactory):
    """Reads a list of words when it is opened, and the numbers of its samples later."""

    card = DatasetCard("words", "1.0")
    splits = ("train", "test")
    words = "red green blue"

    def preprocess(self, raw: Any, prepared: Any) -> None:
        import numpy as np

        for split in self.splits:
            with prepared.create(f"{split}.txt") as file:
                file.write(f"{split} {self.words}".encode())
        for column in ("x", "y", "z"):
            with prepared.create(f"{column}.npy") as file:
                np.save(file, np.arange(4) + ord(column))

    def open(self, split: str, prepared: Any) -> Any:
        with prepared[f"{split}.txt"] as file:
            words = file.read().decode().split()
        columns = [prepared[f"{column}.npy"] for column in ("x", "y", "z")]
        return NumpyDatasetIterator(columns).map(lambda sample: (sample[0], words, sample[2]))


class OtherWords(Words):
    words = "cyan magenta yellow"


@pytest.fixture
def connector(mongodb_uri: str) -> StorageConnector:
    """A store that notices by itself what is lost or replaced."""
    return data_stack.storage_connector_from_url(mongodb_uri)


def words_of(factory: type[DatasetFactory], connector: StorageConnector) -> list[str]:
    """The words that ``open()`` has read."""
    iterator, _ = factory(connector).get_dataset_iterator({"split": "train"})
    return list(iterator[0][1])


# ---------------------------------------------------------------------- what is stored


def test_the_copy_has_what_open_reads_and_no_samples(connector: StorageConnector) -> None:
    Words(connector).prepare()

    stored = OpeningFiles.from_bytes(connector.get_resource(COPY).read(), "the copy")

    assert stored.contents == {
        "train.txt": b"train red green blue",
        "test.txt": b"test red green blue",
    }


def test_a_dataset_that_reads_nothing_to_open_has_no_copy(connector: StorageConnector) -> None:
    class Unread(Words):
        def open(self, split: str, prepared: Any) -> Any:
            return NumpyDatasetIterator([prepared[f"{each}.npy"] for each in ("x", "y", "z")])

    Words(connector).prepare()
    assert connector.has_resource(COPY)
    Unread(connector).prepare(again=True)

    assert not connector.has_resource(COPY)


def test_the_copy_is_renewed_with_the_dataset(connector: StorageConnector) -> None:
    Words(connector).prepare()
    assert words_of(Words, connector) == ["train", "red", "green", "blue"]

    OtherWords(connector).prepare(again=True)

    assert words_of(Words, connector) == ["train", "cyan", "magenta", "yellow"]


# ---------------------------------------------------------------------- what cannot be trusted


def of_other_files() -> bytes:
    """A copy that claims to have the words."""
    return OpeningFiles({"train.txt": b"train forged", "../../etc/x": b"y"}).to_bytes()


def of_too_many_bytes() -> bytes:
    """A few kilobytes that become more than is allowed."""
    header = OpeningFiles({}).to_bytes().partition(b"\n")[0]
    return header + b"\n" + zlib.compress(bytes(MAX_STORED_BYTES + 1))


@pytest.mark.parametrize(
    "content",
    [None, b"", b"{}", b"data_stack opening files 2\n", of_other_files(), of_too_many_bytes()],
    ids=["missing", "empty", "foreign", "newer", "forged", "bomb"],
)
def test_without_a_valid_copy_each_file_is_read(
    connector: StorageConnector, content: bytes | None
) -> None:
    class Fresh(Words):
        words = f"no copy {content!r:.20}"

    Fresh(connector).prepare()
    connector.delete_resource(COPY)
    if content is not None:
        connector.set_resource(COPY, content)

    assert words_of(Fresh, connector) == f"train {Fresh.words}".split()


@pytest.mark.parametrize("n_bytes", range(0, 90, 7))
def test_a_copy_that_is_cut_short_is_refused(n_bytes: int) -> None:
    whole = OpeningFiles({"a": b"1" * 10, "b": bytes(range(40))}).to_bytes()
    assert OpeningFiles.from_bytes(whole, "it").contents["b"] == bytes(range(40))

    with pytest.raises(DatasetFileCorruptError, match=r"^it "):
        OpeningFiles.from_bytes(whole[:n_bytes], "it")


@pytest.mark.parametrize(
    "index", [b"{", b"[]", b'{"files":[{"name":"a","size":9}]}', b'{"files":[{"name":"a"}]}']
)
def test_an_index_that_does_not_fit_is_refused(index: bytes) -> None:
    header = OpeningFiles({}).to_bytes().partition(b"\n")[0]

    with pytest.raises(DatasetFileCorruptError, match="damaged"):
        OpeningFiles.from_bytes(header + b"\n" + zlib.compress(index + b"\n1234"), "it")


# ---------------------------------------------------------------------- lost and replaced resources


def test_a_lost_resource_is_named_and_prepare_restores_it(
    connector: StorageConnector,
) -> None:
    Words(connector).prepare()
    connector.delete_resource("words/1.0/x.npy")
    iterator, _ = Words(connector).get_dataset_iterator({"split": "test"})

    with pytest.raises(ResourceNotFoundError, match=re.escape("words/1.0/x.npy")):
        iterator[0]

    assert not Words(connector).is_ready()
    Words(connector).prepare()
    assert iterator[0][0] == ord("x")


def test_a_replaced_resource_is_refused_when_it_is_read(connector: StorageConnector) -> None:
    Words(connector).prepare()
    iterator, _ = Words(connector).get_dataset_iterator({"split": "test"})
    with connector.get_resource("words/1.0/y.npy") as other:
        connector.set_resource("words/1.0/x.npy", other)

    with pytest.raises(ResourceChangedError, match=re.escape("words/1.0/x.npy")):
        iterator[0]


def test_what_open_finds_lost_is_prepared_again(connector: StorageConnector) -> None:
    class Lost(Words):
        words = "lost and found"

    Lost(connector).prepare()
    connector.delete_resource(COPY)
    connector.delete_resource("words/1.0/train.txt")

    assert words_of(Lost, connector) == ["train", "lost", "and", "found"]


def test_without_its_manifest_a_dataset_is_prepared_and_not_read(
    connector: StorageConnector,
) -> None:
    Words(connector).prepare()
    connector.delete_resource("words/1.0/manifest.json")

    assert words_of(OtherWords, connector) == ["train", "cyan", "magenta", "yellow"]


def test_resources_cross_to_another_process_with_their_manifest(
    connector: StorageConnector,
) -> None:
    class Kept(DatasetFactory):
        card = DatasetCard("words", "1.0")
        splits = ("train",)

        def preprocess(self, raw: Any, prepared: Any) -> None:
            for name in ("a", "b"):
                with prepared.create(name) as file:
                    file.write(name.encode() * 3)

        def open(self, split: str, prepared: Any) -> Any:
            with prepared["a"] as file:
                return SequenceDatasetIterator([[file.read()], [prepared]])

    Kept(connector).prepare()
    iterator, _ = Kept(connector).get_dataset_iterator()

    resources = pickle.loads(pickle.dumps(iterator[0][1]))

    assert {name: resources[name].read() for name in resources} == {"a": b"aaa", "b": b"bbb"}
