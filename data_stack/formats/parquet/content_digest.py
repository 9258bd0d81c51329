"""Identifies the content of row groups by a digest."""

from __future__ import annotations

import functools
import hashlib
import json

import numpy as np
import numpy.typing as npt

from data_stack.formats.parquet.footers import Footers
from data_stack.io.content import contents_of_resources


def digest_of_row_groups(footers: Footers, groups: npt.NDArray[np.int64]) -> str:
    """Return a digest of the content of row groups.

    The digest covers the path and the content of each file that has one of the row groups, and the
    numbers of the row groups in that file. So a file that changes elsewhere changes it, too.

    Args:
        footers: the footers of all files of the dataset.
        groups: the numbers of the row groups in the dataset.

    Returns:
        A SHA-256 in hexadecimal.

    Raises:
        ResourceChangedError: a file is not the one that was opened.
        ResourceNotFoundError: a file does not exist any more.
        StorageError: a file cannot be read.
    """
    file_of_group = footers.file_of[groups]
    files = np.unique(file_of_group).tolist()
    openers = [functools.partial(footers.open_unchanged, file) for file in files]
    contents = contents_of_resources(openers)
    # A file of this machine can be written to in place while it is read.
    for file in files:
        footers.check_local(file)

    paths = []
    numbers_in_files = []
    for file in files:
        groups_of_file = groups[file_of_group == file]
        paths.append(footers.files.paths[file])
        numbers_in_files.append(footers.index_of[groups_of_file].tolist())
    content = json.dumps([paths, contents, numbers_in_files])
    return hashlib.sha256(content.encode()).hexdigest()
