"""The freest form of a dataset factory, as the original had it."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.meta import IteratorMeta

if TYPE_CHECKING:
    from data_stack.io.storage_connectors import StorageConnector


class BaseDatasetFactory(ABC):  # noqa: B024  # the original's is abstract in name only, and its clients construct it
    """Makes the iterators of one dataset; the freest form: a subclass does everything in ``get_dataset_iterator``.

    Nothing else of a subclass is ever called. :class:`data_stack.factories.declarative.DatasetFactory` is the form that
    retrieves, stores and checks by itself.

    Args:
        storage_connector: where the dataset's resources are kept, for the subclass to use; None if it keeps none.
    """

    def __init__(self, storage_connector: StorageConnector | None = None) -> None:
        self.storage_connector: Any = storage_connector

    def get_dataset_iterator(self, config: Any = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """An iterator as ``config`` wants it, e.g. ``{"split": "train"}``, and the layout of its samples."""
        raise NotImplementedError(f"{type(self).__name__} must define get_dataset_iterator(config)")
