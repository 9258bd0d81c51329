"""Reads the Hub's descriptions of columns, the *features*, from Parquet files and from cards.

A feature in the form of files is ``{"_type": "Value", "dtype": "int32"}``; in the form of cards it
is ``{"dtype": "int32"}``. Functions return the form of files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.exception import CatalogueSchemaError
from data_stack.values.text_numbers import integer_of
from data_stack_huggingface.card import info_of_config

#: dtypes of cards that are features of their own.
_MEDIA_DTYPES = ("image", "audio", "video")


def features_of_files(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the features in the metadata of Parquet files, by column; may be empty."""
    try:
        stored_metadata = json.loads(metadata[b"huggingface"])
        stored_features = stored_metadata["info"]["features"].items()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}

    features = {}
    for name, feature in stored_features:
        is_readable = isinstance(feature, dict)
        features[name] = feature if is_readable else {}
    return features


def features_of_card(card: Mapping[str, Any], config: str | None) -> dict[str, Any]:
    """Return the features in the ``dataset_info`` of a card, by column; may be empty.

    Args:
        card: metadata of the README.
        config: name of the configuration; None for the default.

    Raises:
        CatalogueSchemaError: a class id has no name.
        CatalogueError: the card marks several configurations as the default.
    """
    try:
        return _features_of_list(info_of_config(card, config).get("features") or ())
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return {}


def _features_of_list(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the features that a card lists, by their names."""
    features = {}
    for entry in entries:
        description = {key: entry[key] for key in entry if key != "name"}
        features[str(entry["name"])] = _feature_of_card(description)
    return features


def _feature_of_card(description: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the feature of a card; an empty or unknown one becomes ``{}``."""
    if not description:
        return {}
    # The first key is the kind of the feature; others, such as "length", qualify it.
    kind, content = next(iter(description.items()))
    if kind == "dtype":
        if isinstance(content, dict):
            return _feature_of_card(content)
        if content in _MEDIA_DTYPES:
            return {"_type": _camel_case(content)}
        return {"_type": "Value", "dtype": content}
    if kind in ("list", "sequence", "large_list"):
        return _list_of_card(kind, content, description)
    if kind == "struct" and isinstance(content, list):
        return _features_of_list(content)
    if kind == "class_label" and isinstance(content.get("names"), dict):
        return {"_type": "ClassLabel", "names": _names_of_ids(content["names"])}
    if isinstance(content, dict):
        return {**content, "_type": _camel_case(kind)}
    return {}


def _list_of_card(kind: str, content: Any, description: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the feature of a column of lists.

    Args:
        kind: ``"list"``, ``"sequence"`` or ``"large_list"``.
        content: the feature of the elements; a text is their dtype.
        description: the whole feature, such as ``{"list": "int32", "length": 3}``.
    """
    element = content
    if isinstance(content, str):
        element = {"dtype": content}
    elif isinstance(content, list) and kind != "sequence":
        # A sequence of several features is a dict of lists, not a list of dicts.
        element = {"struct": content}
    feature: dict[str, Any] = {"_type": "List", "feature": {}}
    if kind == "large_list":
        feature["_type"] = "LargeList"
    if isinstance(element, dict):
        feature["feature"] = _feature_of_card(element)
    if "length" in description:
        feature["length"] = description["length"]
    return feature


def _names_of_ids(names: Mapping[Any, Any]) -> list[Any]:
    """Return the names of classes in the order of their ids.

    Raises:
        CatalogueSchemaError: an id is no integer, occurs twice, or is missing, so that other ids
            would get its name.
    """
    name_of_id: dict[int, Any] = {}
    for key, name in names.items():
        number_of_key = integer_of(str(key))
        if number_of_key is None or number_of_key in name_of_id:
            raise CatalogueSchemaError(
                f"the card has a name for the class id {key!r:.80}, which is no integer or occurs "
                "twice: report it to its owner"
            )
        name_of_id[number_of_key] = name
    names_in_order = []
    for number in range(len(name_of_id)):
        if number not in name_of_id:
            raise CatalogueSchemaError(
                f"the card has names for the class ids {sorted(name_of_id)!s:.200}, but not for "
                f"{number}: report it to its owner"
            )
        names_in_order.append(name_of_id[number])
    return names_in_order


def _camel_case(name: str) -> str:
    """Return the name of a feature in files by its name in cards: ``array2_d`` is ``Array2D``."""
    return "".join(part.capitalize() for part in name.split("_"))
