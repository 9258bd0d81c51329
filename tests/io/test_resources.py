"""What a resource promises: lazy, positional, safe across threads, accepted everywhere."""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_connector import FilesConnector, PlainConnector
from process_census import descriptors
from process_harness import in_fork

from data_stack.exception import ResourceChangedError
from data_stack.factories.manifest import ResourceRecord
from data_stack.factories.prepared import Resources
from data_stack.io.byte_source import ByteSource
from data_stack.io.resources import ResourceFactory, StreamedResource, StreamedTextResource
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector, StorageConnector

CONTENT = bytes(range(256)) * 400  # 100 KiB, every position tells where it is


@pytest.fixture(params=["file", "memory"])
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> StorageConnector:
    return FileStorageConnector(tmp_path) if request.param == "file" else InMemoryStorageConnector()


@pytest.fixture
def resource(connector: StorageConnector) -> Iterator[StreamedResource]:
    connector.set_resource("a/content.bin", CONTENT)
    with connector.get_resource("a/content.bin") as resource:
        yield resource


def test_nothing_is_opened_before_the_first_byte(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    connector.set_resource("lazy.bin", b"abc")

    resource = connector.get_resource("lazy.bin")
    before = descriptors()
    resource.read(1)
    after = descriptors()
    resource.close()

    assert [path for path in after if path not in before] == [str(tmp_path / "lazy.bin")]
    assert descriptors() == before


STEPS = ("read", "seek", "from_end", "readline", "readinto", "read_at")


@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(-1, 120_000)), max_size=12))
def test_it_reads_like_a_file_whatever_the_order_of_calls(steps: list[tuple[str, int]]) -> None:
    connector = InMemoryStorageConnector()
    connector.set_resource("x", CONTENT)
    model = io.BytesIO(CONTENT)
    with connector.get_resource("x") as resource:
        for step, number in steps:
            n = max(0, number)
            if step in ("read", "readline"):
                assert getattr(resource, step)(number) == getattr(model, step)(number)
            elif step == "seek":
                assert resource.seek(n) == model.seek(n)
            elif step == "from_end":
                assert resource.seek(-(n % 102_400), os.SEEK_END) == model.seek(-(n % 102_400), os.SEEK_END)
            elif step == "readinto":
                ours, theirs = bytearray(n), bytearray(n)
                assert resource.readinto(ours) == model.readinto(theirs)
                assert ours == theirs
            else:
                assert resource.read_at(n, 100) == CONTENT[n : n + 100]
            assert resource.tell() == model.tell()


def test_iterating_gives_chunks_from_the_start_every_time() -> None:
    with StreamedResource("x", io.BytesIO(b"abcdefgh"), chunk_size=3) as resource:
        resource.read(5)

        assert list(resource) == list(resource) == [b"abc", b"def", b"gh"]
        resource.seek(6)
        assert next(resource) == b"gh"
        with pytest.raises(StopIteration):
            next(resource)


def test_a_wrapped_buffer_can_be_written_and_a_stored_resource_cannot(resource: StreamedResource) -> None:
    with StreamedResource("x", io.BytesIO()) as wrapped:
        assert wrapped.writable()
        assert wrapped.write(b"zz") == 2
        assert list(wrapped) == [b"zz"]

    with pytest.raises(io.UnsupportedOperation):
        resource.write(b"zz")


# ---------------------------------------------------------------------- text


def test_the_factory_makes_both_kinds() -> None:
    types = ResourceFactory.SupportedStreamedResourceTypes
    with ResourceFactory.get_resource(identifier="b", file_like_object=io.BytesIO(b"x"), chunk_size=1) as binary:
        assert isinstance(binary, StreamedResource)
        assert binary.chunk_size == 1
    with ResourceFactory.get_resource("t", io.BytesIO(b"x"), resource_type=types.STREAMED_TEXT_RESOURCE) as text:
        assert isinstance(text, StreamedTextResource)


# ---------------------------------------------------------------------- threads and processes


def test_forking_while_a_thread_reads_does_not_hang_the_child(resource: StreamedResource) -> None:
    done = threading.Event()

    def keep_reading() -> None:
        while not done.is_set():
            resource.seek(0)
            resource.read(60_000)

    thread = threading.Thread(target=keep_reading)
    thread.start()
    try:
        for _ in range(20):
            assert in_fork(lambda: resource.seek(7) == 7 and resource.read(5) == CONTENT[7:12]) == 0
    finally:
        done.set()
        thread.join()


def test_a_pickled_resource_refuses_bytes_that_were_replaced_meanwhile(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    connector.set_resource("x", b"old")
    with connector.get_resource("x") as resource:
        pickled = pickle.dumps(resource)

    connector.set_resource("x", b"new")

    with pickle.loads(pickled) as reopened, pytest.raises(ResourceChangedError, match="'x' was replaced"):
        reopened.read()
    with pickle.loads(pickled) as reopened, pytest.raises(ResourceChangedError):
        reopened.read_at(0, 1)
    connector.set_resource("x", b"old")
    with pickle.loads(pickled) as reopened:
        assert reopened.read() == b"old"


@pytest.fixture(params=[PlainConnector, FilesConnector])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> PlainConnector:
    made: PlainConnector = request.param(tmp_path / "store")
    made.set_resource("words/x", [CONTENT])
    return made


def test_a_copy_stands_at_its_start_and_reads_by_itself(plain: PlainConnector) -> None:
    with plain.get_resource("words/x") as resource:
        resource.seek(1000)

        with pickle.loads(pickle.dumps(resource)) as copied:
            assert (copied.identifier, copied.read(3), resource.tell()) == ("words/x", CONTENT[:3], 1000)
            assert copied.read_at(5, 4) == CONTENT[5:9]
            with pickle.loads(pickle.dumps(copied)) as copied_again:
                assert copied_again.read() == CONTENT


def test_bytes_that_were_replaced_meanwhile_are_refused_where_a_digest_is_known(tmp_path: Path) -> None:
    connector = PlainConnector(tmp_path)
    connector.set_resource("words/x", [b"old"])
    record = ResourceRecord("x", 3, "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4")
    with connector.get_resource("words/x") as direct, Resources(connector, "words", [record])["x"] as pinned:
        pickled = [pickle.dumps(direct), pickle.dumps(pinned)]

    connector.set_resource("words/x", [b"new"])

    for each in pickled:
        with pickle.loads(each) as reopened, pytest.raises(ResourceChangedError, match="'words/x' was replaced"):
            reopened.read()
    with Resources(connector, "words", [record])["x"] as changed, pytest.raises(ResourceChangedError):
        changed.read_at(0, 1)


def test_a_forked_child_has_a_position_of_its_own(plain: PlainConnector) -> None:
    with plain.get_resource("words/x") as resource:
        resource.seek(10)

        assert in_fork(lambda: (resource.read(100), resource.read_at(7, 2)) == (CONTENT[10:110], CONTENT[7:9])) == 0
        assert (resource.tell(), resource.read(5)) == (10, CONTENT[10:15])


class Claimed(ByteSource):
    """A server that says it has an exbibyte, and sends nothing."""

    size, sha256 = 1 << 60, None

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        return 0

    def close(self) -> None: ...


def test_reading_takes_no_memory_for_a_size_that_is_only_claimed() -> None:
    assert StreamedResource.from_source("x", Claimed(), InMemoryStorageConnector()).read() == b""
