"""Files of installed packages as sources."""

from __future__ import annotations

import os
from importlib.util import find_spec

from data_stack.io.retriever.file import copy_file
from data_stack.io.retriever.transfer import SourceError, Transfer


def fetch_package(source: str, transfer: Transfer) -> None:
    """Copy a file of an installed package: ``package:sklearn/datasets/data/iris.csv``.

    It runs no code of the package; the import finders locate its folder.
    """
    package, *names = source.partition(":")[2].split("/")
    # find_spec() would import the parents of a submodule.
    if (
        not package.isidentifier()
        or not names
        or any(name in ("", ".", "..") or "\\" in name for name in names)
    ):
        raise SourceError("not of the form package:NAME/folder/file")
    spec = find_spec(package)
    if spec is None:
        raise SourceError(f"no package {package!r} is installed here")
    for folder in spec.submodule_search_locations or ():
        path = os.path.join(folder, *names)
        if os.path.lexists(path):
            return copy_file(path, transfer)
    raise SourceError(f"the installed package {package!r} has no file {'/'.join(names)}")
