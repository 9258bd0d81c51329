"""Reads and writes Croissant documents by the package of the extra ``croissant``.

Croissant is MLCommons' vocabulary for datasets, see https://docs.mlcommons.org/croissant.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from data_stack.exception import MissingDependencyError
from data_stack.plugins.first_party import package_of
from data_stack.repository.default_storage import Storage

_EXTRA = "croissant"


def from_croissant(
    place: str | os.PathLike[str], storage: Storage | None = None, *, progress: bool | None = None
) -> Any:
    """Return the samples of a dataset that a Croissant document describes.

    They are dicts by the names of its fields.

    ::

        flowers = data_stack.from_croissant("https://example.org/flowers/croissant.json")
        flowers["train"][0]                    # {"petal": 1.4, "species": "setosa"}

    The first use retrieves the files into the store, checks their digests and sizes, and turns the
    records into Parquet there, from which they are then read lazily. mlcroissant validates the
    document; it downloads and unpacks nothing.

    Args:
        place: path or URL of the document.
        storage: where the dataset is kept; None for the default store.
        progress: draw bars; see :func:`data_stack.load`.

    Returns:
        One iterator; or a dict of them, where a field refers to a list of splits, by the names of
        the splits, and where there are several record sets, by their identifiers, followed by ``/``
        and the split.

    Raises:
        DatasetFileCorruptError: the document is not valid.
        ConfigError: a field needs something that is not read; it is named with its record set. Or a
            FileSet has no files, or too many.
        CatalogueError, DatasetNotFoundError: the Hub does not list the files of a repository that
            the document names.
        MaliciousFilePathError: the document names files outside of its folder.
        RetrievalError: a file cannot be retrieved, or differs from its digest in the document.
        PreparationError: a file does not match the document; the cause names the field.
        MissingDependencyError: the package of the extra ``croissant`` is not installed.
    """
    return _import_package("from_croissant()").from_croissant(place, storage, progress=progress)


def to_croissant(name: str, storage: Storage | None = None, **config: Any) -> dict[str, Any]:
    """Describe a dataset in Croissant 1.1.

    The document has its card, sources, prepared files with their digests, splits and columns.

    ::

        Path("croissant.json").write_text(json.dumps(data_stack.to_croissant("digits")))

    Retrieves and prepares nothing; prepared files and columns are described if the dataset is
    prepared. Their ``contentUrl`` is relative to the dataset's folder ``name/version``, next to
    whose ``manifest.json`` the document belongs. The columns of Parquet, CSV and JSON lines files
    are fields. Of splits in other formats, whose samples Croissant has no words to read, the
    records are the names of their files, and those of the record set ``SPLIT/columns`` the names,
    types and shapes of columns.

    Args:
        name: the name of the dataset, see :func:`data_stack.load`.
        storage: where the dataset is kept; None for the default store.
        config: options of the dataset.

    Returns:
        Plain JSON data; equal for equal datasets, without times.

    Raises:
        DatasetNotFoundError, PluginError: as for :func:`data_stack.load`.
        ConfigError: its factory declares no card, or a source has no digest and is not prepared, so
            that none is known.
        MissingDependencyError: the package of the extra ``croissant`` is not installed.
    """
    document: dict[str, Any] = _import_package("to_croissant()").to_croissant(
        name, storage, **config
    )
    return document


def _import_package(needed_by: str) -> ModuleType:
    """Import the package that reads and writes Croissant.

    Args:
        needed_by: the function of the user, for the error.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import data_stack_croissant
    except ModuleNotFoundError as error:
        if error.name != "data_stack_croissant":
            raise
        raise MissingDependencyError(needed_by, package_of(_EXTRA), _EXTRA) from error
    return data_stack_croissant
