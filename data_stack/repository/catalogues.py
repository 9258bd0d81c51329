"""Datasets of catalogues by their names: ``hf:owner/name``."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from data_stack.exception import CatalogueUnavailableError, ConfigError, DataStackError, PluginError
from data_stack.factories.catalogue_name import CatalogueName
from data_stack.io.retriever import is_offline
from data_stack.plugins.manager import PluginManager, default_manager
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.unknown_names import explain_scheme
from data_stack.util.logger import logger

if TYPE_CHECKING:
    from data_stack.factories.catalogue import CatalogueEntry
    from data_stack.factories.factory import BaseDatasetFactory

_MAX_KEPT = 64


class Catalogues:
    """The catalogues of installed plugins, and the exact versions of datasets that they have found.

    Args:
        plugins: bring the catalogues.
    """

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins
        self._found: dict[str, BaseDatasetFactory] = {}

    def parse(self, identifier: str) -> CatalogueName | None:
        """The parts of a catalogue's name; None for other names and ``distribution:name``. May import plugins with hooks."""
        name = CatalogueName.parse(identifier)
        is_known = name is not None and not self._plugins.providers(identifier) and name.scheme in self._plugins.catalogues()
        return name if is_known else None

    def find(self, name: CatalogueName, storage: Storage | None) -> tuple[str, BaseDatasetFactory]:
        """The name of a dataset with its exact version, and a factory with that store.

        Raises:
            DatasetNotFoundError, CatalogueError: as for :meth:`Catalogue.find`.
            PluginError: the catalogue's plugin does not keep its contract.
        """
        store = as_storage_connector(storage)
        found = self._found.get(str(name)) or self._plugins.catalogues()[name.scheme].find(name, store)
        card = getattr(found, "card", None)
        if card is None or card.name != name.folder:
            raise PluginError(f"the catalogue {name.scheme!r} returned a card whose name is not {name.folder!r}: {card!r:.200}")
        exact = str(replace(name, version=card.version))
        self._found[exact] = found
        if len(self._found) > _MAX_KEPT:
            self._found.pop(next(iter(self._found)), None)
        made = copy.copy(found)
        made.storage_connector = store
        return exact, made


def search_catalogues(
    text: str, scheme: str | None = None, *, limit: int = 20, plugins: PluginManager | None = None
) -> list[CatalogueEntry]:
    """Ask catalogues for datasets that match some words; needs the network.

    Args:
        text: words, as the catalogue takes them.
        scheme: the catalogue to ask; None for all that are installed: then the log names those that fail.
        limit: how many to ask of each.
        plugins: bring the catalogues; None for those of ``data_stack.load``.

    Raises:
        ConfigError: the catalogue is unknown.
        CatalogueUnavailableError: ``DATA_STACK_OFFLINE`` is set.
        CatalogueError: the one catalogue that was asked failed.
    """
    plugins = plugins or default_manager()
    catalogues, found = plugins.catalogues(), list["CatalogueEntry"]()
    if not catalogues or (scheme is not None and scheme not in catalogues):
        asked = "" if scheme is None else scheme
        raise ConfigError(f"unknown catalogue{explain_scheme(f'{asked}:', plugins)}")
    if is_offline():
        raise CatalogueUnavailableError("catalogues need the network, but DATA_STACK_OFFLINE is set or --offline given")
    for each in sorted(catalogues) if scheme is None else [scheme]:
        try:
            found += catalogues[each].search(text, limit)[:limit]
        except DataStackError as error:
            if scheme is not None:
                raise
            logger.warning("catalogue %s could not be asked: %s", each, error)
    return found
