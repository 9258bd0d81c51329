"""Any dataset, from any store, behind one lazy random-access interface.

::

    import data_stack

    data_stack.datasets()                                # names of the datasets that installed plugins bring
    train = data_stack.load("digits", split="train")     # prepared at the first use, kept in the user's cache folder
    sample, target, tag = train[0]

Each name below is imported when it is first asked for, with what it needs and no more: ``import data_stack`` alone imports
nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack import dataset as dataset
    from data_stack import display as display
    from data_stack import exception as exception
    from data_stack import formats as formats
    from data_stack import io as io
    from data_stack import loader as loader
    from data_stack import mnist as mnist
    from data_stack import plugins as plugins
    from data_stack import repository as repository
    from data_stack.dataset.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
    from data_stack.dataset.factory import BaseDatasetFactory, HigherOrderDatasetFactory, InformedDatasetFactory
    from data_stack.dataset.iterator import (
        CombinedDatasetIterator,
        DatasetIterator,
        DatasetIteratorIF,
        DatasetIteratorView,
        InformedDatasetIterator,
        InformedDatasetIteratorIF,
        InMemoryDatasetIterator,
        SequenceDatasetIterator,
    )
    from data_stack.dataset.meta import DatasetMeta, IteratorMeta, MetaFactory
    from data_stack.dataset.recipes.functions import named_function
    from data_stack.dataset.reporting import DatasetIteratorReportGenerator
    from data_stack.dataset.reports.leakage import find_duplicates
    from data_stack.dataset.splitter import SplitterFactory
    from data_stack.exception import DatasetNotFoundError, DataStackError
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.resources import ResourceFactory, StreamedResource
    from data_stack.io.retriever import RetrieverFactory
    from data_stack.io.storage_connectors import (
        CachedStorageConnector,
        FileStorageConnector,
        InMemoryStorageConnector,
        StorageConnector,
        StorageConnectorFactory,
    )
    from data_stack.io.storage_connectors import FsspecStorageConnector as FsspecStorageConnector
    from data_stack.io.storage_connectors import MongoDBStorageConnector as MongoDBStorageConnector
    from data_stack.loader.loader import Loader
    from data_stack.repository.copies import copy_datasets
    from data_stack.repository.default_storage import default_storage, storage_connector_from_url
    from data_stack.repository.encoders import encoder, encoder_from_state
    from data_stack.repository.inventory import disk_usage, take_inventory
    from data_stack.repository.loading import datasets, describe, load
    from data_stack.repository.recipes import from_recipe
    from data_stack.repository.removal import collect_garbage, remove_dataset
    from data_stack.repository.repository import DatasetDescription, DatasetRepository, default_repository
    from data_stack.repository.splits import load_splits, save_splits
    from data_stack.repository.verification import verify_datasets, verify_storage

    __version__: str

_MODULES = {
    "BaseDatasetFactory": "dataset.factory",
    "CachedStorageConnector": "io.storage_connectors",
    "CombinedDatasetIterator": "dataset.iterator",
    "DataStackError": "exception",
    "DatasetCard": "dataset.declarative",
    "DatasetDescription": "repository.repository",
    "DatasetFactory": "dataset.declarative",
    "DatasetIterator": "dataset.iterator",
    "DatasetIteratorIF": "dataset.iterator",
    "DatasetIteratorReportGenerator": "dataset.reporting",
    "DatasetIteratorView": "dataset.iterator",
    "DatasetMeta": "dataset.meta",
    "DatasetNotFoundError": "exception",
    "DatasetRepository": "repository.repository",
    "FileStorageConnector": "io.storage_connectors",
    "HigherOrderDatasetFactory": "dataset.factory",
    "InMemoryDatasetIterator": "dataset.iterator",
    "InMemoryStorageConnector": "io.storage_connectors",
    "InformedDatasetFactory": "dataset.factory",
    "InformedDatasetIterator": "dataset.iterator",
    "InformedDatasetIteratorIF": "dataset.iterator",
    "IteratorMeta": "dataset.meta",
    "Loader": "loader.loader",
    "MetaFactory": "dataset.meta",
    "PreparedResources": "dataset.declarative",
    "ResourceDefinition": "io.resource_definition",
    "ResourceFactory": "io.resources",
    "Resources": "dataset.declarative",
    "RetrieverFactory": "io.retriever",
    "SequenceDatasetIterator": "dataset.iterator",
    "SplitterFactory": "dataset.splitter",
    "StorageConnector": "io.storage_connectors",
    "StorageConnectorFactory": "io.storage_connectors",
    "StreamedResource": "io.resources",
    "collect_garbage": "repository.removal",
    "copy_datasets": "repository.copies",
    "datasets": "repository.loading",
    "default_repository": "repository.repository",
    "default_storage": "repository.default_storage",
    "describe": "repository.loading",
    "disk_usage": "repository.inventory",
    "encoder": "repository.encoders",
    "encoder_from_state": "repository.encoders",
    "find_duplicates": "dataset.reports.leakage",
    "from_recipe": "repository.recipes",
    "load": "repository.loading",
    "load_splits": "repository.splits",
    "named_function": "dataset.recipes.functions",
    "remove_dataset": "repository.removal",
    "save_splits": "repository.splits",
    "storage_connector_from_url": "repository.default_storage",
    "take_inventory": "repository.inventory",
    "verify_datasets": "repository.verification",
    "verify_storage": "repository.verification",
}

__all__ = [
    "BaseDatasetFactory",
    "CachedStorageConnector",
    "CombinedDatasetIterator",
    "DataStackError",
    "DatasetCard",
    "DatasetDescription",
    "DatasetFactory",
    "DatasetIterator",
    "DatasetIteratorIF",
    "DatasetIteratorReportGenerator",
    "DatasetIteratorView",
    "DatasetMeta",
    "DatasetNotFoundError",
    "DatasetRepository",
    "FileStorageConnector",
    "HigherOrderDatasetFactory",
    "InMemoryDatasetIterator",
    "InMemoryStorageConnector",
    "InformedDatasetFactory",
    "InformedDatasetIterator",
    "InformedDatasetIteratorIF",
    "IteratorMeta",
    "Loader",
    "MetaFactory",
    "PreparedResources",
    "ResourceDefinition",
    "ResourceFactory",
    "Resources",
    "RetrieverFactory",
    "SequenceDatasetIterator",
    "SplitterFactory",
    "StorageConnector",
    "StorageConnectorFactory",
    "StreamedResource",
    "__version__",
    "collect_garbage",
    "copy_datasets",
    "datasets",
    "default_repository",
    "default_storage",
    "describe",
    "disk_usage",
    "encoder",
    "encoder_from_state",
    "find_duplicates",
    "from_recipe",
    "load",
    "load_splits",
    "named_function",
    "remove_dataset",
    "save_splits",
    "storage_connector_from_url",
    "take_inventory",
    "verify_datasets",
    "verify_storage",
]

#: Each needs an optional package, so a star import does not give them.
_OPTIONAL = {"FsspecStorageConnector": "io.storage_connectors", "MongoDBStorageConnector": "io.storage_connectors"}
_SUBPACKAGES = ("dataset", "display", "exception", "formats", "io", "loader", "mnist", "plugins", "repository")


if not TYPE_CHECKING:  # a type checker is to know the names above and no others

    def __getattr__(name: str) -> Any:
        """Import a public name, or a part of the package, when it is asked for (PEP 562)."""
        from importlib import import_module

        if name in _MODULES or name in _OPTIONAL:
            value = getattr(import_module(f"{__name__}.{_MODULES.get(name) or _OPTIONAL[name]}"), name)
        elif name in _SUBPACKAGES:
            return import_module(f"{__name__}.{name}")  # the import binds the name
        elif name == "__version__":
            value = _version()
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_OPTIONAL, *_SUBPACKAGES})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("datastack")
    except PackageNotFoundError:  # run from its source without being installed
        return "0+unknown"
