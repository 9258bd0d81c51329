"""Imports the layers that a recipe may name."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil

from data_stack.dataset.iterator import DatasetIteratorIF, layers
from data_stack.dataset.iterator.layer import LAYERS
from data_stack.exception import MissingDependencyError


def import_layers() -> dict[str, type[DatasetIteratorIF]]:
    """Return all layers by their names in recipes.

    A layer registers itself when its module is imported. Those of optional packages are imported
    where these are installed.
    """
    import data_stack.dataset.splits.parts
    import data_stack.formats.stored_cache

    for module in pkgutil.iter_modules(layers.__path__, f"{layers.__name__}."):
        importlib.import_module(module.name)
    with contextlib.suppress(MissingDependencyError):
        import data_stack.formats.text_tables.reading  # noqa: F401  # it registers its layer
    return LAYERS
