"""Retrievers by the kind of their sources: the interface of the original DataStack."""

from __future__ import annotations

from abc import ABC, abstractmethod

from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.retrieval import retrieve
from data_stack.io.storage_connectors.connector import StorageConnector


class RetrieverImplIF(ABC):
    """Brings resources of one kind of source into a store.

    Args:
        storage_connector: the store.
    """

    def __init__(self, storage_connector: StorageConnector) -> None:
        self.storage_connector = storage_connector

    @abstractmethod
    def retrieve(self, retrieval_jobs: list[ResourceDefinition]) -> list[str]:
        """Retrieve each resource; see :func:`~data_stack.io.retriever.retrieve`.

        Returns:
            The identifiers of the resources, in the order of the jobs.
        """


class HTTPRetrieverImpl(RetrieverImplIF):
    """Retrieves from any source that :func:`~data_stack.io.retriever.retrieve` knows."""

    def retrieve(self, retrieval_jobs: list[ResourceDefinition]) -> list[str]:
        resources = retrieve(retrieval_jobs, self.storage_connector)
        return [resource.identifier for resource in resources]


class FileRetrieverImpl(HTTPRetrieverImpl):
    """The same as :class:`HTTPRetrieverImpl`: the scheme of each source tells how it is fetched."""


class Retriever:
    """Brings resources into a store.

    Args:
        retriever_impl: does the work.
    """

    def __init__(self, retriever_impl: RetrieverImplIF) -> None:
        self.retriever_impl = retriever_impl

    def retrieve(self, retrieval_jobs: list[ResourceDefinition]) -> list[str]:
        """Retrieve each resource, and return the identifiers in the order of the jobs."""
        return self.retriever_impl.retrieve(retrieval_jobs)


class RetrieverFactory:
    """Makes retrievers by the kind of their sources."""

    @classmethod
    def get_http_retriever(cls, storage_connector: StorageConnector) -> Retriever:
        """Return a retriever of ``https://`` and ``http://`` URLs."""
        return Retriever(HTTPRetrieverImpl(storage_connector))

    @classmethod
    def get_file_retriever(cls, storage_connector: StorageConnector) -> Retriever:
        """Return a retriever of paths and ``file://`` URLs."""
        return Retriever(FileRetrieverImpl(storage_connector))
