"""Stores encoders as JSON."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping

from data_stack.dataset.encoders.encoder import Encoder, encoder_from_state
from data_stack.exception import ConfigError
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.url import store_at
from data_stack.util.untrusted_text import JsonObject, seal_json

_FORMAT = "data_stack.encoders 2"

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
