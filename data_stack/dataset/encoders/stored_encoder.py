"""Saves encoders in a store, and loads them from their stored states."""

from __future__ import annotations

import binascii
import os
from collections.abc import Mapping
from typing import Any

from data_stack.codecs.plain_data import from_plain, shorten
from data_stack.dataset.encoders.encoder import Encoder, built_in_kinds
from data_stack.exception import ConfigError
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.url import store_at
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import JsonObject, seal_json

_FORMAT = "data_stack.encoders 2"
_STATE_KEYS = {"kind", "config", "learned", "fitted_on"}

#: Encoders turn a range into a list, so a few bytes of a state must not describe a long one.
_MAX_IN_A_RANGE = 1 << 20

#: What the constructor or ``_remember`` of an encoder raises for a damaged state.
_ERRORS_OF_DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    binascii.Error,
)


def save_encoder(
    encoder: Encoder, storage_connector: StorageConnector | str | os.PathLike[str], identifier: str
) -> None:
    """Store an encoder, fitted or not, as JSON with a digest.

    Args:
        encoder: the encoder.
        storage_connector: the store, or its path or URL.
        identifier: the identifier of the resource in the store.

    Raises:
        ConfigError: a part of the encoder is not plain data.
        StorageError: the resource could not be written.
    """
    data = seal_json({"format": _FORMAT, "encoder": encoder.state()})
    store_at(storage_connector).set_resource(identifier, [data])


def load_encoder(
    storage_connector: StorageConnector | str | os.PathLike[str],
    identifier: str,
    kinds: Mapping[str, Any] | None = None,
) -> Encoder:
    """Read a stored encoder, which transforms bit by bit as it did where it was fitted.

    Args:
        storage_connector: the store, or its path or URL.
        identifier: the identifier of the resource in the store.
        kinds: further classes by kind, as of :func:`encoder_from_state`.

    Raises:
        ResourceNotFoundError: nothing is stored there.
        DatasetFileCorruptError: the resource is damaged, of another format, or not a stored
            encoder.
        ConfigError: the encoder is of an unknown kind.
    """
    with store_at(storage_connector).get_resource(identifier) as resource:
        fields = JsonObject.unseal(resource.read(), f"the encoder in {identifier!r}")
    fields.known_format(_FORMAT)
    return encoder_from_state(fields.value("encoder"), kinds)


def encoder_from_state(state: Any, kinds: Mapping[str, type[Encoder]] | None = None) -> Encoder:
    """Rebuild an encoder from its state.

    Args:
        state: what ``encoder.state()`` returned. It may come from an untrusted file.
        kinds: further classes by kind.
            :func:`data_stack.repository.encoders.encoder_from_state` knows those of plugins.

    Raises:
        ConfigError: the state is damaged, or of an unknown kind.
    """
    known_kinds = dict(built_in_kinds())
    known_kinds.update(kinds or {})
    if not isinstance(state, dict) or state.keys() != _STATE_KEYS:
        raise ConfigError(
            f"the state of an encoder has {', '.join(sorted(_STATE_KEYS))}, got {shorten(state)}"
        )
    kind = state["kind"]
    if not isinstance(kind, str) or kind not in known_kinds:
        raise ConfigError(
            f"unknown kind of encoder {shorten(kind)}{did_you_mean(kind, known_kinds)}; "
            "one of a plugin is rebuilt by data_stack.repository.encoders"
        )
    try:
        return _rebuild(known_kinds[kind], state["config"], state["learned"], state["fitted_on"])
    except _ERRORS_OF_DAMAGE as error:
        raise ConfigError(f"damaged state of a {kind!r} encoder: {error!s:.300}") from error


def _rebuild(encoder_class: type[Encoder], config: Any, learned: Any, fitted_on: Any) -> Encoder:
    """Make an encoder of the parts of a state, which are not checked.

    Raises:
        ConfigError, or one of :data:`_ERRORS_OF_DAMAGE`: the parts are damaged.
    """
    if not isinstance(fitted_on, (str, type(None))):
        raise TypeError(f"fitted_on is a fingerprint, not {shorten(fitted_on)}")
    parsers = {"range": _parse_range}
    parsers.update(encoder_class._state_parsers)
    options = {name: from_plain(value, parsers) for name, value in config.items()}
    encoder = encoder_class(**options)

    learns = encoder._learner() is not None
    if not learns and learned != {}:
        raise ValueError("an encoder without a fit has learned something")
    if learns and learned is not None:
        encoder._remember({name: from_plain(value, parsers) for name, value in learned.items()})
    encoder.fitted_on = fitted_on
    return encoder


def _parse_range(ends: Any) -> range:
    """Return a range of a state.

    Raises:
        ConfigError: it is not a range, or longer than a million.
    """
    positions: range = from_plain({"range": ends})
    if len(positions) > _MAX_IN_A_RANGE:
        raise ConfigError(
            f"the state of an encoder has a range of {len(positions):,} values; "
            f"the limit is {_MAX_IN_A_RANGE:,}"
        )
    return positions
