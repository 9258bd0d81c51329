"""Retrievers by the kind of their sources, as in the original DataStack."""

from __future__ import annotations

from abc import ABC, abstractmethod

from data_stack.io.offline import is_offline as is_offline
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.retrieval import retrieve
from data_stack.io.retriever.schemes import register_scheme as register_scheme
from data_stack.io.retriever.transfer import Fetch as Fetch
from data_stack.io.retriever.transfer import SourceError as SourceError
from data_stack.io.retriever.transfer import Transfer as Transfer
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.web.limits import Limits as Limits


class RetrieverImplIF(ABC):
    """Brings resources of one kind of source into a store.

    Args:
        storage_connector: where to.
    """

    def __init__(self, storage_connector: StorageConnector) -> None:
        self.storage_connector = storage_connector

    @abstractmethod
    def retrieve(self, retrieval_jobs: list[ResourceDefinition]) -> list[str]:
        """Retrieve each job; see :func:`retrieve`.

        Returns:
            The identifiers of the jobs, in their order.
        """


class HTTPRetrieverImpl(RetrieverImplIF):
    """Retrieves from any source that :func:`retrieve` knows."""

    def retrieve(self, retrieval_jobs: list[ResourceDefinition]) -> list[str]:
        return [
            resource.identifier for resource in retrieve(retrieval_jobs, self.storage_connector)
        ]


class FileRetrieverImpl(HTTPRetrieverImpl):
    """The same."""


class Retriever:
    """Brings resources into a store by ``retriever_impl``."""

    def __init__(self, retriever_impl: RetrieverImplIF) -> None:
        self.retriever_impl = retriever_impl

    def retrieve(self, retrieval_jobs: list[ResourceDefinition]) -> list[str]:
        """Retrieve each job and return the identifiers, in the order of the jobs."""
        return self.retriever_impl.retrieve(retrieval_jobs)


class RetrieverFactory:
    """Makes retrievers by the kind of their sources."""

    @classmethod
    def get_http_retriever(cls, storage_connector: StorageConnector) -> Retriever:
        """A retriever of ``https://`` and ``http://`` URLs."""
        return Retriever(HTTPRetrieverImpl(storage_connector))

    @classmethod
    def get_file_retriever(cls, storage_connector: StorageConnector) -> Retriever:
        """A retriever of paths and ``file://`` URLs."""
        return Retriever(FileRetrieverImpl(storage_connector))
