"""``data_stack.from_croissant``: a dataset that others describe in Croissant, as samples."""

from __future__ import annotations

import os
from typing import Any

from data_stack import DatasetRepository
from data_stack.plugins import default_manager
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack_croissant.croissant_dataset import CroissantDataset
from data_stack_croissant.document import read_document
from data_stack_croissant.record_set import EVERYTHING


def from_croissant(
    place: str | os.PathLike[str], storage: Storage | None = None, *, progress: bool | None = None
) -> Any:
    """Return the samples of a dataset that a Croissant document describes.

    :func:`data_stack.from_croissant` has the whole description.

    Args:
        place: path or URL of the document.
        storage: where the dataset is kept; None for the default store.
        progress: draw bars; see :func:`data_stack.load`.

    Returns:
        One iterator, or a dict of iterators by the names of the splits.

    Raises:
        DatasetFileCorruptError, ConfigError, CatalogueError, DatasetNotFoundError,
            MaliciousFilePathError, RetrievalError, PreparationError: as for
            :func:`data_stack.from_croissant`.
    """
    path_or_url, document = read_document(place)
    dataset = CroissantDataset(path_or_url, document, as_storage_connector(storage))
    name = dataset.card.name

    # Plugins retrieve the files of repositories of the Hub.
    default_manager().register_retrievers(definition.source for definition in dataset.sources)
    # A repository of its own, so that other documents of that name stay apart. It has no plugins:
    # to look for that name among them would take longer than all else.
    repository = DatasetRepository()
    repository.register(name, dataset)
    splits = repository.load(name, progress=progress)
    if list(splits) == [EVERYTHING]:
        return splits[EVERYTHING]
    return splits
