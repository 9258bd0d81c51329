"""The test suite of functions that fetch sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias

import pytest

from data_stack.exception import CorruptSourceError, RetrievalError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, RetrievedResource, Transfer, retrieve
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

Publish: TypeAlias = Callable[[str, bytes], str]
Store: TypeAlias = InMemoryStorageConnector
_DATA = hashlib.shake_128(b"source").digest(3_000_001)


class RetrieverContract:
    """Inherit it in a test class, name the scheme, and define :meth:`fetch` and the fixture ``publish``.

    Attributes:
        scheme: of the sources.
    """

    scheme: ClassVar[str]

    def fetch(self, source: str, transfer: Transfer) -> None:
        """Fetch a source, by your function."""
        raise NotImplementedError(f"{type(self).__name__} must define fetch(source, transfer)")

    @pytest.fixture
    def publish(self) -> Publish:
        """Puts bytes under a name such as ``"a.bin"`` where they can be fetched, and returns the source."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `publish`")

    @pytest.fixture
    def store(self) -> Store:
        """Where resources arrive."""
        return InMemoryStorageConnector()

    def retrieve(self, store: Store, definitions: Sequence[ResourceDefinition]) -> list[RetrievedResource]:
        """Retrieve with the function, almost without waiting between attempts."""
        limits = Limits(n_retries=1, backoff_seconds=0.01, max_wait_seconds=0.1)
        return retrieve(definitions, store, fetchers={self.scheme: self.fetch}, limits=limits, progress=False)

    @pytest.mark.parametrize("size", [0, 1, len(_DATA)])
    def test_all_bytes_arrive(self, store: Store, publish: Publish, size: int) -> None:
        data = _DATA[:size]

        (arrived,) = self.retrieve(store, [_definition(publish("a.bin", data), data)])

        assert (arrived.size, arrived.verified) == (size, True)
        assert store.get_resource("raw/data").read() == data

    def test_several_arrive_at_once(self, store: Store, publish: Publish) -> None:
        parts = {f"raw/{i}": _DATA[i * 1000 : (i + 1) * 1000] for i in range(8)}

        self.retrieve(store, [_definition(publish(name[4:], data), data, name) for name, data in parts.items()])

        assert {name: store.get_resource(name).read() for name in parts} == parts

    def test_a_missing_source_is_an_error_that_says_so(self, store: Store, publish: Publish) -> None:
        with pytest.raises(RetrievalError) as caught:
            self.retrieve(store, [_definition(publish("a.bin", _DATA) + ".missing", _DATA)])

        ((_, said),) = caught.value.attempts
        assert said
        assert not isinstance(caught.value, CorruptSourceError)
        assert store.list_resources() == []

    def test_a_mirror_is_asked_where_a_source_is_missing(self, store: Store, publish: Publish) -> None:
        definition = _definition(publish("a.bin", _DATA), _DATA)

        self.retrieve(store, [replace(definition, source=f"{definition.source}.missing", mirrors=(definition.source,))])

        assert store.get_resource("raw/data").read() == _DATA

    @pytest.mark.parametrize("promised", [_DATA[:-1], _DATA + b"x", _DATA[:-1] + b"x"])
    @pytest.mark.parametrize("has_size", [False, True])
    def test_other_bytes_than_promised_are_refused(self, store: Store, publish: Publish, promised: bytes, has_size: bool) -> None:
        definition = _definition(publish("a.bin", _DATA), promised)

        with pytest.raises(RetrievalError):
            self.retrieve(store, [replace(definition, size=len(promised) if has_size else None)])

        assert store.list_resources() == []


def _definition(source: str, data: bytes, identifier: str = "raw/data") -> ResourceDefinition:
    return ResourceDefinition(identifier, source, sha256=hashlib.sha256(data).hexdigest())
