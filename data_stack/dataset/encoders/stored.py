"""Encoders from their states, and fitted ones in a store: what was learned once, the same for everyone who opens it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.encoders.categorical import CategoricalEncoder, OneHotEncoder, TextLabelEncoder
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.continuous import ContinuousEncoder
from data_stack.dataset.encoders.encoder import BUILT_IN_KINDS, Encoder, restore
from data_stack.dataset.encoders.features import FeatureEncoder
from data_stack.dataset.encoders.images import ImageEncoder
from data_stack.dataset.encoders.transformer import SklearnEncoder
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.storage_connectors import StorageConnector

__all__ = ["encoder_from_state", "load_encoder", "save_encoder"]

_FORMAT = "data_stack.encoders"
_BUILT_IN: tuple[type[Encoder], ...] = (
    CategoricalEncoder,
    ClassMapping,
    ContinuousEncoder,
    FeatureEncoder,
    ImageEncoder,
    OneHotEncoder,
    SklearnEncoder,
    TextLabelEncoder,
)
BUILT_IN_KINDS.update({encoder_class.kind: encoder_class for encoder_class in _BUILT_IN})


def encoder_from_state(state: Any, kinds: Mapping[str, type[Encoder]] | None = None) -> Encoder:
    """The encoder that gave ``state``, of whichever kind.

    Args:
        state: what ``encoder.state()`` gave; it may come from a file of anyone's, and can make nothing but encoders.
        kinds: further classes by kind; those of plugins are known to :func:`data_stack.repository.encoders.encoder_from_state`.

    Raises:
        ConfigError: it is no state, or of another kind.
    """
    return restore(state, {**BUILT_IN_KINDS, **(kinds or {})})


def save_encoder(encoder: Encoder, storage_connector: StorageConnector, identifier: str) -> None:
    """Store an encoder, fitted or not, under ``identifier``, as JSON with a digest.

    Raises:
        ConfigError: something in it is no plain data.
        StorageError: it could not be written.
    """
    fields = {"format": _FORMAT, "version": 1, "encoder": encoder.state()}
    text = json.dumps({**fields, "digest": _digest(fields)}, indent=1, allow_nan=False) + "\n"
    storage_connector.set_resource(identifier, [text.encode("ascii")])


def load_encoder(
    storage_connector: StorageConnector, identifier: str, kinds: Mapping[str, type[Encoder]] | None = None
) -> Encoder:
    """The encoder stored under ``identifier``; it transforms as it did where it was fitted, bit by bit.

    Args:
        storage_connector: the store.
        identifier: in it.
        kinds: as of :func:`encoder_from_state`.

    Raises:
        ResourceNotFoundError: nothing is stored there.
        DatasetFileCorruptError: it is no stored encoder, or damaged.
        ConfigError: it is of an unknown kind, or of another format.
    """
    with storage_connector.get_resource(identifier) as resource:
        data = resource.read()
    try:
        fields = json.loads(data)
        stated = fields.pop("digest")
        actual = _digest(fields)
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError) as error:
        raise DatasetFileCorruptError(f"{identifier!r} holds no encoder: {error!s:.200}") from error
    if stated != actual:
        raise DatasetFileCorruptError(f"the encoder in {identifier!r} is damaged: its contents do not have the digest it states")
    if fields.keys() != {"format", "version", "encoder"} or (fields["format"], fields["version"]) != (_FORMAT, 1):
        raise ConfigError(f"{identifier!r} is of another format or version: {fields.get('format')!r:.40}")
    return encoder_from_state(fields["encoder"], kinds)


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(fields).encode("ascii")).hexdigest()
