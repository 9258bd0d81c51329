"""The hook of this package: it writes ``croissant.json`` beside published datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from data_stack.plugins import hookimpl
from data_stack.util.json_text import json_text


@hookimpl
def data_stack_documents() -> Mapping[str, Callable[[str, Any], bytes]]:
    """Return the document ``croissant.json`` that is published beside the files of a dataset."""
    return {"croissant.json": describe_in_croissant}


def describe_in_croissant(name: str, storage: Any) -> bytes:
    """Return the Croissant document of a prepared dataset.

    Args:
        name: name of the dataset.
        storage: the store of the dataset; None for the default store.

    Returns:
        JSON in UTF-8.

    Raises:
        DatasetNotFoundError: no dataset has that name.
        PluginError: the plugin of the dataset is broken.
        ConfigError: the factory of the dataset declares no card, or a source has no digest.
    """
    # Imported only when a dataset is published: all plugins are imported to list their hooks.
    from data_stack_croissant.writing import to_croissant

    return json_text(to_croissant(name, storage)).encode()
