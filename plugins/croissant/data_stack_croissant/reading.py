"""``data_stack.from_croissant``: the samples of a dataset that a document describes."""

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
        progress: whether to draw progress bars, see :func:`data_stack.load`.

    Returns:
        One iterator, or a dict of iterators by the names of the splits.

    Raises:
        MissingFileError: a local document does not exist.
        DatasetFileCorruptError: the document is not valid.
        ConfigError: the document needs something that is not read; the message names record set and
            field.
        CatalogueError, DatasetNotFoundError: a repository that the document names cannot be listed.
        MaliciousFilePathError: the document names files outside of its folder.
        RetrievalError: the document, or one of its files, cannot be retrieved.
        PreparationError: a file differs from its description in the document.
    """
    path_or_url, document = read_document(place)
    dataset = CroissantDataset(path_or_url, document, as_storage_connector(storage))
    name = dataset.card.name

    # The files of repositories of the Hub are retrieved by a plugin.
    default_manager().register_retrievers(definition.source for definition in dataset.sources)
    # A repository for this document alone, as other documents may have the same name. It has no
    # plugins, because looking for the name among them takes longer than all else.
    repository = DatasetRepository()
    repository.register(name, dataset)
    splits = repository.load(name, progress=progress)
    if list(splits) == [EVERYTHING]:
        return splits[EVERYTHING]
    return splits
