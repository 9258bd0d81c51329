"""Lists the datasets of an HDF5 file."""

from __future__ import annotations

from typing import Any

from data_stack.formats.hdf5.apart import parse_apart
from data_stack.formats.hdf5.datasets import FoundDatasets, find_datasets
from data_stack.formats.hdf5.file import HDF5File
from data_stack.io.account import PlaceAccount
from data_stack.io.parsing import name_of
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource


def dataset_keys(resource: Any) -> list[str]:
    """Return the paths of the datasets of an HDF5 file that can be read, sorted.

    Links are left out, and so are the axes and blocks of a DataFrame that pandas stored;
    :func:`datasets_to_read` names them.

    Args:
        resource: a path, a resource or an open binary file.

    Raises:
        DatasetFileCorruptError: no HDF5 file, damaged, more than 10,000 objects, or DataFrames of
            pandas and nothing else.
    """
    return _find(resource).paths


def datasets_to_read(resource: Any) -> list[str]:
    """Return what :func:`dataset_keys` returns; a LeftOutWarning names what is left out."""
    datasets = _find(resource)
    account = PlaceAccount(name_of(resource), len(datasets.paths), tuple(datasets.left_out))
    account.warn()
    return datasets.paths


def _find(resource: Any) -> FoundDatasets:
    """Find the datasets of a file, which is parsed in another process before.

    An open file of the caller's cannot be passed to that process; it is parsed in this one.
    """
    if isinstance(resource, (PositionalFile, StreamedResource)):
        parse_apart(PositionalFile(resource), keys=None)
    return find_datasets(HDF5File(resource))
