"""A resource of the caller, read as if a store held it."""

from __future__ import annotations

from typing import Any, cast

from data_stack.exception import (
    ResourceNotFoundError,
)
from data_stack.io.byte_source import ByteSource
from data_stack.io.lazy_source import LazySource
from data_stack.io.resources import StreamedResource


class OneResource:
    """A store of one resource of the caller, under its identifier. Reading from it neither moves nor closes the resource."""

    def __init__(self, resource: StreamedResource) -> None:
        self._resource = resource

    def get_resource(self, name: str) -> StreamedResource:
        """Open the resource."""
        if not self.has_resource(name):
            raise ResourceNotFoundError(
                f"found only {self._resource.identifier!r}, not {name!r:.80}"
            )
        source = _LentBytes(lambda: cast(ByteSource, self._resource))  # it has the methods of one
        lent = LentResource.from_source(name, source, self, self._resource.chunk_size)
        lent.lender = self._resource
        return lent

    def has_resource(self, name: str) -> bool:
        """Whether the resource has this name."""
        return name == self._resource.identifier

    def list_resources(self, prefix: str) -> list[str]:
        """Its name, if it begins with ``prefix``."""
        return [name for name in (self._resource.identifier,) if name.startswith(prefix)]


class LentResource(StreamedResource):
    """A resource of the caller with its own position. It pickles as that resource, which stays open when this one is closed."""

    lender: StreamedResource

    def __reduce__(self) -> tuple[Any, ...]:
        return self.lender.__reduce__()


class _LentBytes(LazySource):
    """The bytes of a resource that the caller closes."""

    def close(self) -> None:
        pass
