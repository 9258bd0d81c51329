"""A resource of the caller, read as if a store held it."""

from __future__ import annotations

from typing import Any

from data_stack.exception import ResourceNotFoundError
from data_stack.io.resource_source import ResourceSource
from data_stack.io.resources import StreamedResource


class LentResource(StreamedResource):
    """The bytes of a resource of the caller, with a position of its own.

    It is pickled as the resource of the caller, which stays open when this one is closed.

    Attributes:
        lender: the resource of the caller; set by the store that makes this one.
    """

    lender: StreamedResource

    def __reduce__(self) -> tuple[Any, ...]:
        return self.lender.__reduce__()


class OneResource:
    """A store that holds one resource of the caller, under its identifier.

    Reading from the store neither moves nor closes the resource.
    """

    def __init__(self, resource: StreamedResource) -> None:
        self._resource = resource

    def get_resource(self, name: str) -> StreamedResource:
        """Open the resource.

        Raises:
            ResourceNotFoundError: the resource has another name.
        """
        if not self.has_resource(name):
            raise ResourceNotFoundError(
                f"found only {self._resource.identifier!r}, not {name!r:.80}"
            )
        source = _LentSource(self._resource)
        lent = LentResource.from_source(name, source, self, self._resource.chunk_size)
        lent.lender = self._resource
        return lent

    def has_resource(self, name: str) -> bool:
        """Return whether the resource has this name."""
        return name == self._resource.identifier

    def list_resources(self, prefix: str) -> list[str]:
        """Return the name of the resource in a list, if it begins with ``prefix``."""
        name = self._resource.identifier
        if name.startswith(prefix):
            return [name]
        return []


class _LentSource(ResourceSource):
    """The bytes of a resource that the caller closes."""

    def close(self) -> None:
        """Leave the resource open, as it is the caller's."""
