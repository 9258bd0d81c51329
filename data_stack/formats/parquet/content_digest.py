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
    """Return a SHA-256 of row groups: of their files' contents and paths, and their numbers there.

    Args:
        footers: of all files.
        groups: the numbers of the row groups in the dataset.

    Raises:
        ResourceChangedError: a file is not the one that was opened.
    """
    files_of_groups = footers.file_of[groups]
    files = np.unique(files_of_groups).tolist()
    paths = [footers.files.paths[file] for file in files]
    contents = contents_of_resources(
        [functools.partial(footers.open_unchanged, file) for file in files]
    )
    for file in files:  # none was written to meanwhile
        footers.check_local(file)
    numbers = [footers.index_of[groups[files_of_groups == file]].tolist() for file in files]
    return hashlib.sha256(json.dumps([paths, contents, numbers]).encode()).hexdigest()
