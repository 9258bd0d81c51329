"""The stored resources of one dataset, as the author's ``open()`` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from data_stack.exception import ResourceChangedError, ResourceNotFoundError
from data_stack.factories.resource_record import ResourceRecord
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.util.suggestions import did_you_mean


class Resources(Mapping[str, StreamedResource]):
    """The stored resources of one dataset by their names relative to the dataset.

    ``resources["raw/digits.csv.gz"]`` returns a resource that opens when it is first read; the
    caller closes it. If it was replaced since the preparation, reading it is an error. Pickles with
    its storage connector.

    Args:
        storage_connector: the store; None for a dataset that stores nothing.
        dataset: the folder of its resources, ``name/version``.
        records: the resources as they were stored.
    """

    #: The store.
    _connector: Any

    #: The folder of the resources.
    _dataset: str

    #: The resources as they were stored, by name.
    _records: dict[str, ResourceRecord]

    def __init__(
        self,
        storage_connector: StorageConnector | None,
        dataset: str,
        records: Iterable[ResourceRecord],
    ) -> None:
        self._connector = storage_connector
        self._dataset = dataset
        self._records = {record.identifier: record for record in records}

    def __getitem__(self, name: str) -> StreamedResource:
        """Open a resource, lazily.

        Raises:
            ResourceNotFoundError: the dataset has no such resource, or the store has lost it.
            ResourceChangedError: it was replaced since the dataset was found ready.
        """
        info = self.stat(name)
        resource: StreamedResource = self._connector.get_resource(info.identifier)
        # Pinned, as it is opened later. A third party's connector may return another kind of
        # stream.
        if isinstance(resource, StreamedResource):
            resource.reopen_by(self._connector).pin(info.sha256)
        return resource

    def stat(self, name: str) -> ResourceInfo:
        """Return size and digest of a resource, without opening it.

        Raises:
            ResourceNotFoundError, ResourceChangedError: as for ``resources[name]``.
        """
        identifier = self._identifier(name)
        record = self._records[name]
        info = self._connector.stat(identifier)
        check_unchanged(identifier, record.size, info.size)
        check_unchanged(identifier, record.sha256, info.sha256)
        return ResourceInfo(identifier, info.size, info.sha256 or record.sha256, info.modified)

    @property
    def checks_reads(self) -> bool:
        """Whether the store checks each read against digests."""
        return getattr(self._connector, "checks_reads", False)

    def get_resource(self, name: str) -> StreamedResource:
        """Return ``resources[name]``, as storage connectors open it."""
        return self[name]

    def has_resource(self, name: str) -> bool:
        """Return whether the dataset has such a resource."""
        return name in self

    def list_resources(self, prefix: str = "") -> list[str]:
        """Return the names that begin with ``prefix``, sorted."""
        return sorted(name for name in self if name.startswith(prefix))

    # Mapping builds these on KeyError, which ResourceNotFoundError is not.

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def get(self, name: str, default: Any = None) -> Any:
        """Return the resource, or ``default`` if the dataset has no such name."""
        if name in self:
            return self[name]
        return default

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._dataset!r}: {', '.join(self) or 'none'}>"

    def _identifier(self, name: str) -> str:
        """Return the identifier in the store of a resource."""
        if name not in self:
            suggestion = did_you_mean(name, self)
            names = ", ".join(self) or "none"
            raise ResourceNotFoundError(
                f"dataset {self._dataset!r} has no resource {name!r:.80}{suggestion}; "
                f"it has: {names}"
            )
        return f"{self._dataset}/{name}"


def check_unchanged(identifier: str, expected: object, actual: object) -> None:
    """Check a size or digest against the recorded one; None stands for one that is not known."""
    are_known = expected is not None and actual is not None
    if are_known and expected != actual:
        raise ResourceChangedError(identifier, str(expected), str(actual))
