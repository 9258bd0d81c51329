"""A dataset whose sources are files of this machine, for the test suite of datasets."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import new_class
from typing import Any

from data_stack.factories.declarative import DatasetFactory
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.file import FileStorageConnector


class CopiedDataset:
    """A dataset whose sources are copied to files of this machine.

    Args:
        factory: the class of the author.
        make_source: returns the bytes of a source, by its identifier.

    Attributes:
        factory: the class with the copies as its sources.
        sources: the definitions of the copies.
        store: a store in an empty folder.
    """

    factory: type[DatasetFactory]
    sources: list[ResourceDefinition]
    store: FileStorageConnector
    #: Holds the copies, and the folders of :meth:`make_folder`.
    _folder: tempfile.TemporaryDirectory[str]

    def __init__(self, factory: type[DatasetFactory], make_source: Callable[[str], bytes]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="data_stack-contract-")
        self.sources = []
        for number, source in enumerate(factory.sources):
            path = Path(self._folder.name, f"source {number}")
            data = make_source(source.identifier)
            path.write_bytes(data)
            self.sources.append(_source_at(path, source, data))
        self.factory = with_sources(factory, self.sources)
        self.store = FileStorageConnector(self.make_folder())

    def make_folder(self) -> str:
        """Make a new empty folder, and return its path."""
        return tempfile.mkdtemp(dir=self._folder.name)

    def close(self) -> None:
        """Remove all files."""
        self._folder.cleanup()


def _source_at(path: Path, source: ResourceDefinition, data: bytes) -> ResourceDefinition:
    """Return the definition of a source whose only place is a file with the bytes ``data``."""
    sha256 = hashlib.sha256(data).hexdigest()
    return replace(source, source=str(path), mirrors=(), sha256=sha256, md5_sum=None, size=None)


def with_sources(
    factory: type[DatasetFactory], sources: Sequence[ResourceDefinition]
) -> type[DatasetFactory]:
    """Return a subclass of the author's class with other sources.

    The subclass has the name, module and docstring of the author's class: the tests check the
    docstring, and the digest of a dataset's code depends on the name and the module.
    """

    def set_attributes(namespace: dict[str, Any]) -> None:
        namespace["__module__"] = factory.__module__
        namespace["__qualname__"] = factory.__qualname__
        namespace["__doc__"] = factory.__doc__
        namespace["sources"] = tuple(sources)

    return new_class(factory.__name__, (factory,), exec_body=set_attributes)
