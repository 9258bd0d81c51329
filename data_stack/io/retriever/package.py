"""Fetches files of installed packages."""

from __future__ import annotations

import os
from importlib.util import find_spec

from data_stack.io.retriever.file import copy_file
from data_stack.io.retriever.transfer import SourceError, Transfer


def fetch_package(source: str, transfer: Transfer) -> None:
    """Copy a file of an installed package: ``package:sklearn/datasets/data/iris.csv``.

    It runs no code of the package; the import finders locate its folder.

    Raises:
        SourceError: the source is malformed, the package or its file is missing, or as for
            :func:`~data_stack.io.retriever.file.copy_file`.
    """
    _, _, package_and_path = source.partition(":")
    package, *names = package_and_path.split("/")
    # find_spec() imports the parents of a submodule, so only a top-level package is allowed.
    is_top_package = package.isidentifier()
    if not is_top_package or not names or any(_leads_elsewhere(name) for name in names):
        raise SourceError("not of the form package:NAME/folder/file")

    spec = find_spec(package)
    if spec is None:
        raise SourceError(f"no package {package!r} is installed here")
    for folder in spec.submodule_search_locations or ():
        path = os.path.join(folder, *names)
        if os.path.lexists(path):
            copy_file(path, transfer)
            return
    raise SourceError(f"the installed package {package!r} has no file {'/'.join(names)}")


def _leads_elsewhere(name: str) -> bool:
    """Return whether a part of a path is no plain name of a file or folder."""
    return name in ("", ".", "..") or "\\" in name
