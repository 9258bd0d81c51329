"""The stores that the user of ``data-stack mcp`` named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from data_stack.agents.read_only_store import ReadOnlyStorageConnector
from data_stack.exception import ConfigError
from data_stack.io.redaction import redact
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.repository.default_storage import as_storage_connector, check_there

#: The name of a store that the user gave no name.
DEFAULT_STORE: Final = "default"

#: ``NAME=PATH_OR_URL``. Neither a URL nor a path that begins with ``/``, ``.`` or ``~`` matches.
_NAMED_STORE: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,39})=(.+)", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class NamedStore:
    """A store, and the name by which agents call it.

    Attributes:
        name: the name.
        connector: the store. Only a preparation that the user allows writes into it.
        url: the path or URL as the user wrote it, perhaps with a password; None for the default
            store.
    """

    name: str
    connector: StorageConnector
    url: str | None = field(default=None, repr=False)

    @property
    def reader(self) -> StorageConnector:
        """The store, which cannot be written through this connector."""
        return ReadOnlyStorageConnector(self.connector)

    def __str__(self) -> str:
        return repr(self.connector)


def open_stores(
    storage: str | None, named: Sequence[str], *, may_be_new: bool = False
) -> dict[str, NamedStore]:
    """Return the stores of a command line by their names.

    Args:
        storage: the path or URL of the store that has no name; None for the user's default store,
            unless ``named`` names one.
        named: ``"NAME=PATH_OR_URL"``, or a path or URL without a name.
        may_be_new: whether the folder of a store may be missing.

    Raises:
        ConfigError: two stores have one name, or a URL is not that of a store.
        StorageError: the place of a store does not exist.
    """
    stores: dict[str, NamedStore] = {}
    if storage is not None:
        _add_store(stores, DEFAULT_STORE, storage)
    for text in named:
        match = _NAMED_STORE.fullmatch(text)
        if match is None:
            _add_store(stores, DEFAULT_STORE, text)
        else:
            _add_store(stores, match[1], match[2])
    if not stores:
        connector = as_storage_connector(None)
        check_there(connector, may_be_new=True)
        stores[DEFAULT_STORE] = NamedStore(DEFAULT_STORE, connector)
        return stores
    for store in stores.values():
        check_there(store.connector, may_be_new=may_be_new)
    return stores


def _add_store(stores: dict[str, NamedStore], name: str, url: str) -> None:
    """Add the store at a path or URL.

    Raises:
        ConfigError: there is a store of this name already, or the URL is not that of a store.
    """
    if name in stores:
        raise ConfigError(
            f"two stores are called {name!r}; give each a name: --store NAME=PATH_OR_URL"
        )
    stores[name] = NamedStore(name, as_storage_connector(url), url)


def hide_secrets(text: str, stores: Sequence[NamedStore]) -> str:
    """Return a message without the credentials of stores and of URLs in it, as one line."""
    urls = [store.url for store in stores if store.url is not None]
    return redact(text, *urls)
