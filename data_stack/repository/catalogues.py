"""Searches catalogues, which list datasets that others publish."""

from __future__ import annotations

from collections.abc import Mapping

from data_stack.exception import (
    CatalogueUnavailableError,
    ConfigError,
    DataStackError,
    install_command,
)
from data_stack.factories.catalogue import Catalogue, CatalogueEntry
from data_stack.io.retriever import is_offline
from data_stack.plugins.manager import default_manager
from data_stack.repository.missing_datasets import explain_scheme
from data_stack.util.logger import logger


def find_catalogue(scheme: str) -> Catalogue:
    """Return an installed catalogue, such as that of ``"hf"``.

    Raises:
        ConfigError: it is not installed; the message says how to get it, or which are.
    """
    plugins = default_manager()
    catalogue: Catalogue | None = plugins.provided("catalogues").get(scheme)
    if catalogue is None:
        raise ConfigError(f"unknown catalogue{explain_scheme(f'{scheme}:', plugins)}")
    return catalogue


def search_catalogues(
    text: str, scheme: str | None = None, *, limit: int = 20
) -> list[CatalogueEntry]:
    """Ask catalogues for datasets that match some words; needs the network.

    Args:
        text: words, as the catalogue takes them.
        scheme: the catalogue to ask; None for all installed ones. Of these, the log names those
            that fail.
        limit: how many to ask of each.

    Raises:
        ConfigError: the catalogue is unknown, or none is installed.
        CatalogueUnavailableError: ``DATA_STACK_OFFLINE`` is set.
        CatalogueError: the one catalogue that was asked failed.
    """
    catalogues: Mapping[str, Catalogue]
    if scheme is not None:
        catalogues = {scheme: find_catalogue(scheme)}
    else:
        catalogues = default_manager().provided("catalogues")
    if not catalogues:
        raise ConfigError(
            "no catalogue is installed; `data-stack doctor` lists the plugins that are. "
            f"`{install_command('huggingface')}` brings that of the Hugging Face Hub"
        )
    if is_offline():
        raise CatalogueUnavailableError(
            "catalogues need the network, and data_stack is offline: DATA_STACK_OFFLINE is set"
        )
    entries: list[CatalogueEntry] = []
    for name in sorted(catalogues):
        try:
            entries += catalogues[name].search(text, limit)[:limit]
        except DataStackError as error:
            was_named_by_user = scheme is not None
            if was_named_by_user:
                raise
            logger.warning("catalogue %s could not be asked: %s", name, error)
    return entries
