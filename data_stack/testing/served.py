"""A dataset whose sources come from a web server of this machine."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.manifest import ResourceRecord
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.repository.repository import DatasetRepository
from data_stack.testing.processes import count_changes, preload
from data_stack.testing.web_server import Answer, ScriptedServer


class ServedDataset:
    """A factory whose sources are served twice by a web server, with the digests of what is served; and a folder for stores.

    Args:
        factory: the author's class.
        contents: bytes of its sources by their identifiers.
    """

    def __init__(self, factory: type[DatasetFactory], contents: Mapping[str, bytes]) -> None:
        self._server, self._folder = ScriptedServer(), tempfile.TemporaryDirectory(prefix="data_stack-contract-")
        self.contents, self.identifiers = contents, [source.identifier for source in factory.sources]
        self.sources = []
        for source in factory.sources:
            first, second = (f"{self._server.origin}/{mirror}/{source.identifier}" for mirror in ("first", "second"))
            sha256 = hashlib.sha256(contents[source.identifier]).hexdigest()
            self.sources.append(replace(source, source=first, mirrors=(second,), sha256=sha256, md5_sum=None, size=None))
        self.author = factory
        preload(factory.__module__)
        self.factory = with_sources(factory, self.sources)
        self.store = FileStorageConnector(f"{self._folder.name}/store")
        self.answer()

    def answer(self, **faults: list[Answer]) -> None:
        """Serve all sources, the first one with these answers by mirror (``first``, ``second``)."""
        self._server.requests.clear()
        for mirror in ("first", "second"):
            for identifier, data in self.contents.items():
                answers = faults.get(mirror) if identifier == self.identifiers[0] else None
                self._server.url(f"/{mirror}/{identifier}", *(answers or [self.whole(data)]))

    @staticmethod
    def whole(data: bytes) -> Answer:
        """The answer of a server without faults."""
        return Answer(data, headers={"ETag": '"one"'}, ranges=True)

    def first_content(self) -> bytes:
        """The bytes of the first source; skips the test without sources."""
        if not self.identifiers or not self.contents[self.identifiers[0]]:
            pytest.skip("it has no sources")
        return self.contents[self.identifiers[0]]

    def scratch(self) -> str:
        """A new empty folder."""
        return tempfile.mkdtemp(dir=self._folder.name)

    @property
    def requests(self) -> list[str]:
        """The paths that were requested since :meth:`answer`."""
        return self._server.paths()

    def close(self) -> None:
        """End the server, and remove the folder."""
        self._server.close()
        self._folder.cleanup()


def with_sources(factory: type[DatasetFactory], sources: Any) -> type[DatasetFactory]:
    """The author's class with other sources, under its own name."""
    names = {name: getattr(factory, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(factory.__name__, (factory,), {**names, "sources": tuple(sources)})


def load_split(
    factory: type[DatasetFactory], store: StorageConnector, split: str, config: Mapping[str, Any]
) -> DatasetIteratorIF:
    """The samples of a split, as ``data_stack.load`` returns them."""
    repository = DatasetRepository(storage=store)
    repository.register(factory.card.name, factory)
    iterator: DatasetIteratorIF = repository.load(factory.card.name, split, progress=False, **config)
    return iterator


# The functions below are called in processes of their own, which cannot find the class of ``with_sources`` by its name.


def prepare_dataset(
    factory: type[DatasetFactory], sources: Any, store: FileStorageConnector, kill_at: int = 0
) -> tuple[int, bool, tuple[ResourceRecord, ...]]:
    """Prepare a dataset; return how many files it changed, whether it was ready before, and what was prepared."""
    changes = count_changes(str(store.root_path), kill_at)
    prepared = with_sources(factory, sources)(store)
    report = prepared.prepare(offline=False, progress=False)
    manifest = prepared.manifest()
    return len(changes), report.already_ready, () if manifest is None else manifest.prepared


def take_fingerprint(
    factory: type[DatasetFactory], sources: Any, store: StorageConnector, split: str, config: Mapping[str, Any]
) -> str:
    """The fingerprint of a split."""
    return load_split(with_sources(factory, sources), store, split, config).fingerprint()
