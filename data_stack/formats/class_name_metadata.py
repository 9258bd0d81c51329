"""Keeps the names of classes in the metadata of a file, as ``datasets`` of Hugging Face does.

Arrow and Parquet files have key-value metadata. Under the key ``huggingface``, ``datasets`` keeps
the *features* of columns, such as ``{"_type": "ClassLabel", "names": ["cat", "dog"]}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.util.logger import logger
from data_stack.util.untrusted_text import parse_json

#: The key of the features.
FEATURES_KEY: Final = b"huggingface"


def metadata_of_class_names(class_names: Mapping[str, Sequence[str]]) -> dict[bytes, bytes]:
    """Return the metadata in which ``datasets`` finds the names of classes.

    Args:
        class_names: the names by column, each of which is int64.
    """
    if not class_names:
        return {}
    features = {}
    for column, names in class_names.items():
        features[column] = {"names": list(names), "_type": "ClassLabel"}
    return {FEATURES_KEY: json.dumps({"info": {"features": features}}).encode()}


def class_names_in_metadata(metadata: Mapping[bytes, bytes], place: str) -> dict[str, list[str]]:
    """Return the names of classes in metadata, by column; empty without such.

    Other features say nothing that the types of the columns do not say. So damaged features are no
    reason to refuse the columns.

    Args:
        metadata: the metadata of a file or dataset.
        place: the file, for the log.
    """
    if FEATURES_KEY not in metadata:
        return {}
    try:
        info = parse_json(metadata[FEATURES_KEY])["info"]
        features = dict(info.get("features") or {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning(
            "The names of classes in %s are not read: its metadata of Hugging Face are damaged "
            "(%.200s).",
            place,
            error,
        )
        return {}
    class_names = {}
    for column, feature in features.items():
        names = class_names_of(feature)
        if names is not None:
            class_names[column] = names
    return class_names


def class_names_of(feature: Any) -> list[str] | None:
    """Return the names of the classes of a feature; None without such."""
    if not isinstance(feature, Mapping) or feature.get("_type") != "ClassLabel":
        return None
    names = feature.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return names
