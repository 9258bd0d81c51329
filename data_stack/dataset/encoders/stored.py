"""Stores encoders as JSON; makes them of their states."""

from __future__ import annotations

import binascii
import importlib
import os
import pkgutil
from collections.abc import Mapping
from typing import Any

from data_stack.codecs.plain_data import from_plain, shorten
from data_stack.dataset.encoders.encoder import BUILT_IN_KINDS, Encoder
from data_stack.dataset.encoders.transformer import load_transformer
from data_stack.exception import ConfigError
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.url import store_at
from data_stack.util.suggestions import did_you_mean
from data_stack.values.strict_json import JsonObject, seal_json

_FORMAT = "data_stack.encoders 2"
_MAX_IN_A_RANGE = 1 << 20
_STATE_KEYS = {"kind", "config", "learned", "fitted_on"}

for _module in pkgutil.iter_modules([os.path.dirname(__file__)]):
    importlib.import_module(f"{__package__}.{_module.name}")


def save_encoder(encoder: Encoder, storage_connector: StorageConnector | str | os.PathLike[str], identifier: str) -> None:
    """Store an encoder, fitted or not, under ``identifier``, as JSON with a digest; the store may be a path or a URL.

    Raises:
        ConfigError: a part of it is not plain data.
        StorageError: it could not be written.
    """
    store_at(storage_connector).set_resource(identifier, [seal_json({"format": _FORMAT, "encoder": encoder.state()})])


def load_encoder(
    storage_connector: StorageConnector | str | os.PathLike[str],
    identifier: str,
    kinds: Mapping[str, type[Encoder]] | None = None,
) -> Encoder:
    """Read the encoder stored under ``identifier``; it transforms bit by bit as it did where it was fitted.

    Args:
        storage_connector: the store, or its path or URL.
        identifier: in it.
        kinds: as of :func:`encoder_from_state`.

    Raises:
        ResourceNotFoundError: nothing is stored there.
        DatasetFileCorruptError: it is damaged, or not a stored encoder.
        ConfigError: it is of an unknown kind, or of another format.
    """
    with store_at(storage_connector).get_resource(identifier) as resource:
        fields = JsonObject.unseal(resource.read(), f"the encoder in {identifier!r}")
    if (stored_format := fields.text("format")) != _FORMAT:
        raise ConfigError(f"the encoder in {identifier!r} has the format {stored_format!r:.40}; this version reads {_FORMAT!r}")
    return encoder_from_state(fields.value("encoder"), kinds)


def encoder_from_state(state: Any, kinds: Mapping[str, type[Encoder]] | None = None) -> Encoder:
    """Rebuild the encoder whose ``state()`` this is.

    Args:
        state: the result of ``encoder.state()``; may come from an untrusted file.
        kinds: further classes by kind; :func:`data_stack.repository.encoders.encoder_from_state` knows those of plugins.

    Raises:
        ConfigError: the state is damaged, or of an unknown kind.
    """
    kinds = {**BUILT_IN_KINDS, **(kinds or {})}
    if not isinstance(state, dict) or state.keys() != _STATE_KEYS:
        raise ConfigError(f"the state of an encoder has {', '.join(sorted(_STATE_KEYS))}, got {shorten(state)}")
    kind, config, learned, fitted_on = state["kind"], state["config"], state["learned"], state["fitted_on"]
    if not isinstance(kind, str) or kind not in kinds:
        advice = f"{did_you_mean(kind, kinds)}; one of a plugin is rebuilt by data_stack.repository.encoders"
        raise ConfigError(f"unknown kind of encoder {shorten(kind)}{advice}")
    special = {"range": _short_range, "sklearn": load_transformer}
    try:
        if not isinstance(fitted_on, (str, type(None))):
            raise TypeError(f"fitted_on is a fingerprint, not {shorten(fitted_on)}")
        encoder = kinds[kind](**{name: from_plain(value, special) for name, value in config.items()})
        if encoder._learner() is None:
            if learned != {}:
                raise ValueError("it has nothing to learn")
        elif learned is not None:
            encoder._remember({name: from_plain(value, special) for name, value in learned.items()})
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, binascii.Error) as error:
        raise ConfigError(f"damaged state of a {kind!r} encoder: {error!s:.300}") from error
    encoder.fitted_on = fitted_on
    return encoder


def _short_range(ends: Any) -> range:
    """A range in a state; limited, because encoders turn these few bytes into lists.

    Raises:
        ConfigError: it is not a range, or longer than a million.
    """
    decoded: range = from_plain({"range": ends})
    if len(decoded) > _MAX_IN_A_RANGE:
        raise ConfigError(f"the state of an encoder has a range of {len(decoded):,} values; the limit is {_MAX_IN_A_RANGE:,}")
    return decoded
