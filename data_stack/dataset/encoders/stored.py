"""Fitted encoders in a store: what was learned once, the same for everyone who opens it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.encoders.encoder import Encoder
from data_stack.dataset.encoders.kinds import encoder_from_state
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.storage_connectors import StorageConnector

__all__ = ["load_encoder", "load_encoders", "save_encoder", "save_encoders"]

_FORMAT = "data_stack.encoders"


def save_encoder(encoder: Encoder, storage_connector: StorageConnector, identifier: str) -> None:
    """Store an encoder, fitted or not, under ``identifier``, as JSON with a digest.

    Raises:
        ConfigError: something in it is no plain data.
        StorageError: it could not be written.
    """
    _save({"encoder": encoder.state()}, storage_connector, identifier)


def save_encoders(encoders: Mapping[Any, Encoder], storage_connector: StorageConnector, identifier: str) -> None:
    """Store the encoders of several columns together, as :func:`save_encoder` stores one; keys are ints or strings.

    Raises:
        ConfigError: something in one of them is no plain data.
        StorageError: they could not be written.
    """
    for key in encoders:
        if type(key) not in (int, str):
            raise ConfigError(f"encoders are stored by the position or key of their column, not by {key!r:.80}")
    states = [[key, encoder.state()] for key, encoder in encoders.items()]
    _save({"encoders": states}, storage_connector, identifier)


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
        ConfigError: it is of an unknown kind, or several encoders.
    """
    return encoder_from_state(_load(storage_connector, identifier, "encoder"), kinds)


def load_encoders(
    storage_connector: StorageConnector, identifier: str, kinds: Mapping[str, type[Encoder]] | None = None
) -> dict[Any, Encoder]:
    """The encoders stored under ``identifier`` by :func:`save_encoders`, by column.

    Raises:
        as :func:`load_encoder`.
    """
    states = _load(storage_connector, identifier, "encoders")
    if not isinstance(states, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (int, str) for pair in states
    ):
        raise DatasetFileCorruptError(f"{identifier!r} has no list of encoders by column")
    return {key: encoder_from_state(state, kinds) for key, state in states}


def _save(content: dict[str, Any], storage_connector: StorageConnector, identifier: str) -> None:
    fields = {"format": _FORMAT, "version": 1, **content}
    text = json.dumps({**fields, "digest": _digest(fields)}, indent=1, allow_nan=False) + "\n"
    storage_connector.set_resource(identifier, [text.encode("ascii")])


def _load(storage_connector: StorageConnector, identifier: str, name: str) -> Any:
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
    if fields.get("format") != _FORMAT or fields.get("version") != 1:
        raise ConfigError(f"{identifier!r} is of another format or version: {fields.get('format')!r:.40}")
    if fields.keys() != {"format", "version", name}:
        there = "several encoders: use load_encoders" if "encoders" in fields else "one encoder: use load_encoder"
        raise ConfigError(f"{identifier!r} holds {there}")
    return fields[name]


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(fields).encode("ascii")).hexdigest()
