"""Lists who prepared the datasets in a stack, when, and from which sources."""

from __future__ import annotations

from typing import Any

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.recipes.nodes import list_origins

#: What is listed of a dataset.
_KEYS = ("name", "version", "split", "config", "distribution", "preparation")


def provenance(iterator: DatasetIteratorIF) -> list[dict[str, Any]]:
    """Return who prepared each dataset of a stack, when, and from which sources.

    Returns:
        Plain JSON data, see ``iterator.provenance``.
    """
    origins, _ = list_origins(iterator)
    return [{key: origin.get(key) for key in _KEYS} for origin in origins]
