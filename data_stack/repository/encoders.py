"""Makes and restores encoders by kind, including the kinds of plugins."""

from __future__ import annotations

from typing import Any

from data_stack.dataset.encoders import Encoder
from data_stack.dataset.encoders import encoder_from_state as encoder_from_known_state
from data_stack.dataset.encoders import load_encoder as load_known_encoder
from data_stack.dataset.encoders.encoder import built_in_kinds
from data_stack.exception import ConfigError
from data_stack.plugins.manager import default_manager
from data_stack.repository.default_storage import Storage
from data_stack.util.suggestions import did_you_mean


def encoder(kind: str, **config: Any) -> Encoder:
    """Make an encoder: ``encoder("categorical", unknown="index")``.

    Plugins are imported if the kind is not built in.

    Raises:
        ConfigError: the kind is unknown, or its encoder does not accept ``config``.
    """
    kinds = dict(built_in_kinds())
    if kind not in kinds:
        kinds.update(default_manager().provided("encoders"))
    if kind not in kinds:
        raise ConfigError(
            f"unknown kind of encoder {kind!r:.80}{did_you_mean(kind, kinds)}; "
            f"known kinds: {', '.join(sorted(kinds))}"
        )
    try:
        return kinds[kind](**config)
    except TypeError as error:
        raise ConfigError(
            f"an encoder {kind!r} cannot be made of {', '.join(config) or 'nothing'}: {error}"
        ) from error


def encoder_from_state(state: Any) -> Encoder:
    """Restore an encoder from its ``state``.

    Plugins are imported if the kind is not built in.

    Raises:
        ConfigError: ``state`` is not the state of an encoder, or its kind is unknown.
    """
    try:
        return encoder_from_known_state(state)
    except ConfigError:
        return encoder_from_known_state(state, default_manager().provided("encoders"))


def load_encoder(storage_connector: Storage, identifier: str) -> Encoder:
    """Load a stored encoder, also of a kind that a plugin brings; imports the plugins.

    See :func:`data_stack.dataset.encoders.load_encoder`.
    """
    kinds = default_manager().provided("encoders")
    return load_known_encoder(storage_connector, identifier, kinds)
