"""What cards and features say, as pure functions of plain data."""

from __future__ import annotations

from typing import Any

import pytest
from data_stack_huggingface.card import choose_config, info_of_config, license_of
from data_stack_huggingface.columns import parts_of
from data_stack_huggingface.features import features_of_card
from data_stack_huggingface.path_patterns import PathPattern

from data_stack import IteratorMeta
from data_stack.exception import CatalogueSchemaError, RevisionNotFoundError


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("**", "a/b/c", True),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/x/y/c", True),
        ("a/**/c", "a/x/y/d", False),
        ("*", "a/b", False),
        ("[ab]?", "bz", True),
        ("**", "a/.hidden", False),
        ("a/.*", "a/.hidden", True),
        ("**", "__cache__/a", False),
        ("__*/*", "__cache__/a", True),
    ],
)
def test_a_pattern_matches_part_by_part(pattern: str, path: str, is_match: bool) -> None:
    assert PathPattern(pattern).matches(path) is is_match


@pytest.mark.parametrize(
    ("card", "known", "chosen"),
    [
        ({}, ["plain"], "plain"),
        ({}, ["default", "other"], "default"),
        ({"configs": [{"config_name": "b", "default": True}, {}]}, ["a", "b"], "b"),
        ({"configs": [{"config_name": "gone", "default": True}]}, ["plain"], "plain"),
    ],
)
def test_the_default_configuration_is_marked_or_named_or_alone(
    card: dict[str, Any], known: list[str], chosen: str
) -> None:
    assert choose_config("a/b", None, known, card) == chosen


def test_a_configuration_that_is_asked_for_must_exist() -> None:
    assert choose_config("a/b", "en", ["de", "en"], {}) == "en"
    with pytest.raises(RevisionNotFoundError, match="no configuration 'fr': load hf:a/b#NAME"):
        choose_config("a/b", "fr", ["de", "en"], {})


def test_the_info_of_a_configuration_may_stand_among_the_configs() -> None:
    info = {"config_name": "en", "features": []}
    config = {"config_name": "de", "features": [1]}

    assert info_of_config({"dataset_info": [info]}, None) == info
    assert info_of_config({"dataset_info": [info], "configs": [config]}, "de") == config
    assert info_of_config({}, "fr") == {}


def test_licenses_are_joined_and_unknown_ones_are_none() -> None:
    assert license_of({"license": ["mit", "unknown", "cc0-1.0"]}) == "mit AND cc0-1.0"
    assert license_of({"license": "other"}) is None
    assert license_of({}) is None


def test_the_only_label_and_image_are_target_and_sample() -> None:
    features = {
        "id": {"_type": "Value", "dtype": "int64"},
        "picture": {"_type": "Image"},
        "kind": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    }

    parts = parts_of(features, list(features))
    without_labels = parts_of({}, ["a", "b"])

    assert parts.iterator_meta == IteratorMeta("picture", "kind")
    assert parts.class_names == ["cat", "dog"]
    assert without_labels.iterator_meta == IteratorMeta("a", 1)
    assert without_labels.class_names is None


def test_a_short_form_of_a_list_is_no_label() -> None:
    features = {
        "words": [{"_type": "Value", "dtype": "string"}],
        "kind": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    }

    parts = parts_of(features, list(features))

    assert parts.iterator_meta == IteratorMeta("words", "kind")


def test_a_damaged_list_of_features_is_as_none() -> None:
    assert features_of_card({"dataset_info": {"features": [{"dtype": "int32"}]}}, None) == {}


@pytest.mark.parametrize(
    "feature", [{}, {"list": {}}, {"dtype": {}}, {"struct": [{"name": "key"}]}]
)
def test_a_feature_without_a_description_is_unknown(feature: dict[str, Any]) -> None:
    features = [{"name": "x", **feature}, {"name": "y", "dtype": "int32"}]

    described = features_of_card({"dataset_info": {"features": features}}, None)

    assert list(described) == ["x", "y"]
    assert described["y"] == {"_type": "Value", "dtype": "int32"}


@pytest.mark.parametrize("key", ["1_0", "one", "01"])
def test_class_ids_that_are_no_integers_or_repeated_are_refused(key: str) -> None:
    names = {"0": "cat", "1": "dog", key: "bird"}
    features = [{"name": "kind", "dtype": {"class_label": {"names": names}}}]

    with pytest.raises(CatalogueSchemaError, match=f"class id '{key}'"):
        features_of_card({"dataset_info": {"features": features}}, None)
