"""The hook of this package: it writes ``croissant.json`` beside published datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from data_stack.plugins import hookimpl
from data_stack.util.json_text import json_text


@hookimpl
def data_stack_documents() -> Mapping[str, Callable[[str, Any], bytes]]:
    """``croissant.json``."""
    return {"croissant.json": describe_in_croissant}


def describe_in_croissant(name: str, storage: Any) -> bytes:
    """Return the Croissant document of a prepared dataset.

    Args:
        name: of the dataset.
        storage: the store that has it; None for the default store.

    Raises:
        ConfigError, DatasetNotFoundError, PluginError: as for :func:`data_stack.to_croissant`.
    """
    # Only when a dataset is published: this module is imported with all other plugins.
    from data_stack_croissant.writing import to_croissant

    return json_text(to_croissant(name, storage)).encode()
