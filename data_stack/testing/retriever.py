"""The test suite of functions that fetch the sources of a scheme."""

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
"""A function that puts bytes under a name where they can be fetched, and returns the source."""

Store: TypeAlias = InMemoryStorageConnector
"""The store in which retrieved resources arrive."""

#: More bytes than a block of any transfer has.
_DATA = hashlib.shake_128(b"source").digest(3_000_001)

#: Bytes that differ from those that arrive: one byte is missing, one is too many, one is another.
_OTHER_DATA = [_DATA[:-1], _DATA + b"x", _DATA[:-1] + b"x"]


class RetrieverContract:
    """What every function that fetches sources promises.

    Inherit it in a test class, name the scheme, and define :meth:`fetch` and the fixture
    ``publish``.

    Attributes:
        scheme: the scheme of the sources, such as ``"doi"``.
    """

    scheme: ClassVar[str]

    def fetch(self, source: str, transfer: Transfer) -> None:
        """Fetch a source: call the function that is tested."""
        raise NotImplementedError(f"{type(self).__name__} must define fetch(source, transfer)")

    @pytest.fixture
    def publish(self) -> Publish:
        """Return a function that puts bytes where they can be fetched, and returns the source.

        The function gets a name such as ``"a.bin"``, and the bytes. The returned source with
        ``".missing"`` at its end must not exist.
        """
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `publish`")

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store, where resources arrive."""
        return InMemoryStorageConnector()

    def retrieve(
        self, store: Store, definitions: Sequence[ResourceDefinition]
    ) -> list[RetrievedResource]:
        """Retrieve with the function, almost without waiting between attempts."""
        limits = Limits(n_retries=1, backoff_seconds=0.01, max_wait_seconds=0.1)
        return retrieve(
            definitions, store, fetchers={self.scheme: self.fetch}, limits=limits, progress=False
        )

    def test_all_bytes_of_several_sources_arrive(self, store: Store, publish: Publish) -> None:
        """Sources of any size, empty ones too, arrive whole, and are verified."""
        contents = {}
        definitions = []
        for size in (0, 1, 1000, len(_DATA)):
            identifier = f"raw/{size}"
            contents[identifier] = _DATA[:size]
            source = publish(str(size), _DATA[:size])
            definitions.append(_define(identifier, source, _DATA[:size]))

        retrieved = self.retrieve(store, definitions)

        assert all(resource.verified for resource in retrieved)
        arrived = {identifier: store.get_resource(identifier).read() for identifier in contents}
        assert arrived == contents

    def test_a_missing_source_is_an_error_that_says_so(
        self, store: Store, publish: Publish
    ) -> None:
        """The error says what the one attempt met, and does not call the source corrupt."""
        source = publish("a.bin", _DATA) + ".missing"

        with pytest.raises(RetrievalError) as caught:
            self.retrieve(store, [_define("raw/data", source, _DATA)])

        [(_, reason)] = caught.value.attempts
        assert reason
        assert not isinstance(caught.value, CorruptSourceError)
        assert store.list_resources() == []

    def test_a_mirror_is_asked_where_a_source_is_missing(
        self, store: Store, publish: Publish
    ) -> None:
        """The bytes of a mirror are stored, if the first source is not there."""
        source = publish("a.bin", _DATA)
        definition = _define("raw/data", f"{source}.missing", _DATA)

        self.retrieve(store, [replace(definition, mirrors=(source,))])

        assert store.get_resource("raw/data").read() == _DATA

    @pytest.mark.parametrize("promised", _OTHER_DATA, ids=["shorter", "longer", "other"])
    @pytest.mark.parametrize("has_size", [False, True])
    def test_other_bytes_than_promised_are_refused(
        self, store: Store, publish: Publish, promised: bytes, has_size: bool
    ) -> None:
        """Bytes with another digest than the definition's raise, and are not stored."""
        definition = _define("raw/data", publish("a.bin", _DATA), promised)
        if has_size:
            definition = replace(definition, size=len(promised))

        with pytest.raises(RetrievalError):
            self.retrieve(store, [definition])

        assert store.list_resources() == []


def _define(identifier: str, source: str, data: bytes) -> ResourceDefinition:
    """Return the definition of a resource that promises certain bytes."""
    sha256 = hashlib.sha256(data).hexdigest()
    return ResourceDefinition(identifier, source, sha256=sha256)
