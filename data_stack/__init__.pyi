from data_stack.dataset.iterator import CombinedDatasetIterator as CombinedDatasetIterator
from data_stack.dataset.iterator import DatasetIterator as DatasetIterator
from data_stack.dataset.iterator import DatasetIteratorIF as DatasetIteratorIF
from data_stack.dataset.iterator import DatasetIteratorView as DatasetIteratorView
from data_stack.dataset.iterator import InformedDatasetIterator as InformedDatasetIterator
from data_stack.dataset.iterator import InformedDatasetIteratorIF as InformedDatasetIteratorIF
from data_stack.dataset.iterator import InMemoryDatasetIterator as InMemoryDatasetIterator
from data_stack.dataset.iterator import SequenceDatasetIterator as SequenceDatasetIterator
from data_stack.dataset.meta import DatasetMeta as DatasetMeta
from data_stack.dataset.meta import IteratorMeta as IteratorMeta
from data_stack.dataset.meta import MetaFactory as MetaFactory
from data_stack.dataset.recipes.functions import named_function as named_function
from data_stack.dataset.splitter import SplitterFactory as SplitterFactory
from data_stack.exception import DatasetNotFoundError as DatasetNotFoundError
from data_stack.exception import DataStackError as DataStackError
from data_stack.exchange.arrays import from_folder as from_folder
from data_stack.exchange.arrays import from_numpy as from_numpy
from data_stack.exchange.arrays import from_torch as from_torch
from data_stack.exchange.arrays import to_tensorflow as to_tensorflow
from data_stack.exchange.tables.arrow import from_arrow as from_arrow
from data_stack.exchange.tables.arrow import to_arrow as to_arrow
from data_stack.exchange.tables.huggingface import from_huggingface as from_huggingface
from data_stack.exchange.tables.huggingface import to_huggingface as to_huggingface
from data_stack.exchange.tables.pandas import from_pandas as from_pandas
from data_stack.exchange.tables.pandas import to_pandas as to_pandas
from data_stack.exchange.tables.polars import from_polars as from_polars
from data_stack.exchange.tables.polars import to_polars as to_polars
from data_stack.factories.base_factory import BaseDatasetFactory as BaseDatasetFactory
from data_stack.factories.base_factory import HigherOrderDatasetFactory as HigherOrderDatasetFactory
from data_stack.factories.base_factory import InformedDatasetFactory as InformedDatasetFactory
from data_stack.factories.catalogue import Catalogue as Catalogue
from data_stack.factories.catalogue import CatalogueDataset as CatalogueDataset
from data_stack.factories.catalogue import CatalogueEntry as CatalogueEntry
from data_stack.factories.catalogue import CatalogueName as CatalogueName
from data_stack.factories.declarative import DatasetCard as DatasetCard
from data_stack.factories.declarative import DatasetFactory as DatasetFactory
from data_stack.factories.declarative import PreparedResources as PreparedResources
from data_stack.factories.declarative import Resources as Resources
from data_stack.formats.text_tables.reading import from_csv as from_csv
from data_stack.formats.text_tables.reading import from_jsonl as from_jsonl
from data_stack.io.resource_definition import ResourceDefinition as ResourceDefinition
from data_stack.io.resources import ResourceFactory as ResourceFactory
from data_stack.io.resources import StreamedResource as StreamedResource
from data_stack.io.retriever import RetrieverFactory as RetrieverFactory
from data_stack.io.storage_connectors import CachedStorageConnector as CachedStorageConnector
from data_stack.io.storage_connectors import FileStorageConnector as FileStorageConnector
from data_stack.io.storage_connectors import FsspecStorageConnector as FsspecStorageConnector
from data_stack.io.storage_connectors import InMemoryStorageConnector as InMemoryStorageConnector
from data_stack.io.storage_connectors import MongoDBStorageConnector as MongoDBStorageConnector
from data_stack.io.storage_connectors import StorageConnector as StorageConnector
from data_stack.io.storage_connectors import StorageConnectorFactory as StorageConnectorFactory
from data_stack.loader.loader import Loader as Loader
from data_stack.loading import datasets as datasets
from data_stack.loading import describe as describe
from data_stack.loading import load as load
from data_stack.repository.croissant import from_croissant as from_croissant
from data_stack.repository.croissant import to_croissant as to_croissant
from data_stack.repository.default_storage import default_storage as default_storage
from data_stack.repository.default_storage import (
    storage_connector_from_url as storage_connector_from_url,
)
from data_stack.repository.description import DatasetDescription as DatasetDescription
from data_stack.repository.encoders import encoder as encoder
from data_stack.repository.encoders import encoder_from_state as encoder_from_state
from data_stack.repository.licenses import policy as policy
from data_stack.repository.repository import DatasetRepository as DatasetRepository
from data_stack.repository.repository import default_repository as default_repository
from data_stack.reproduce.difference import diff as diff
from data_stack.reproduce.duplicates import find_duplicates as find_duplicates
from data_stack.reproduce.lock import lock as lock
from data_stack.reproduce.planning import plan as plan
from data_stack.reproduce.recipes import from_recipe as from_recipe
from data_stack.show.reporting import (
    DatasetIteratorReportGenerator as DatasetIteratorReportGenerator,
)
from data_stack.stores.copies import copy_datasets as copy_datasets
from data_stack.stores.disk_usage import disk_usage as disk_usage
from data_stack.stores.garbage import collect_garbage as collect_garbage
from data_stack.stores.inventory import take_inventory as take_inventory
from data_stack.stores.publishing import publish as publish
from data_stack.stores.removal import remove_dataset as remove_dataset
from data_stack.stores.splits import load_splits as load_splits
from data_stack.stores.splits import save_splits as save_splits
from data_stack.stores.verification import verify_storage as verify_storage

__version__: str

__all__: list[str]
