"""Reads what the metadata of a README, the *card*, says about the configurations of a dataset.

Cards are made by strangers. A function of this module raises AttributeError, KeyError, TypeError or
ValueError if the card is damaged, unless its docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from data_stack.exception import CatalogueError, RevisionNotFoundError

_MAX_LISTED_CONFIGS = 50


def configs_by_name(entries: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the entries of ``configs`` or ``dataset_info`` by the configurations' names."""
    return {_config_name(entry): entry for entry in entries}


def _config_name(entry: Mapping[str, Any]) -> str:
    """Return the name of the configuration of an entry."""
    return str(entry.get("config_name", "default"))


def default_config(card: Mapping[str, Any]) -> str | None:
    """Return the default configuration of a card.

    Returns:
        The name of the configuration that is marked as the default. If none is marked, it is
        ``default`` if there is such a configuration, or the only name. None if there are several.

    Raises:
        CatalogueError: several are marked.
    """
    configs = card.get("configs") or ()
    names = [_config_name(config) for config in configs]
    marked_names = [_config_name(config) for config in configs if config.get("default")]
    if len(marked_names) > 1:
        raise CatalogueError(
            f"the card marks several configurations as the default "
            f"({', '.join(marked_names):.200}), which the package datasets refuses, too: report "
            f"it to its owner, or load one by its name: hf:OWNER/NAME#{marked_names[0]}"
        )
    if marked_names:
        return marked_names[0]
    if "default" in names:
        return "default"
    return names[0] if len(names) == 1 else None


def choose_config(
    repo: str, asked_config: str | None, known_configs: Iterable[str], card: Mapping[str, Any]
) -> str:
    """Return the configuration that the user asked for, or the default one.

    Args:
        repo: owner and name of the dataset.
        asked_config: the name that the user gave; None for the default.
        known_configs: names of the configurations with files.
        card: the metadata.

    Raises:
        RevisionNotFoundError: the configuration does not exist, or there are several and no
            default.
        CatalogueError: as for :func:`default_config`.
    """
    known_names = list(known_configs)
    chosen_name = asked_config
    if chosen_name is None:
        chosen_name = default_config(card)
        if chosen_name not in known_names:
            chosen_name = _only_name(known_names)
    if chosen_name not in known_names:
        problem = "several configurations"
        if asked_config is not None:
            problem = f"no configuration {asked_config!r:.80}"
        listed_names = ", ".join(sorted(known_names)[:_MAX_LISTED_CONFIGS])
        raise RevisionNotFoundError(
            f"hf:{repo} has {problem}: load hf:{repo}#NAME, with one of {listed_names}"
        )
    return chosen_name


def _only_name(names: list[str]) -> str:
    """Return the only name, or ``default`` if there are several."""
    return names[0] if len(names) == 1 else "default"


def info_of_config(card: Mapping[str, Any], config: str | None) -> Mapping[str, Any]:
    """Return what a card says about the columns and the splits of a configuration.

    That is its ``dataset_info``; if there is none, its ``configs``, which may have features too.

    Args:
        card: the metadata.
        config: name of the configuration; None for the default.

    Returns:
        The entry of the card; may be empty.

    Raises:
        CatalogueError: as for :func:`default_config`.
    """
    entries = card.get("dataset_info") or []
    if not isinstance(entries, list):
        entries = [entries]
    infos = configs_by_name(entries)
    name = config or default_config(card)
    if not name:
        name = _only_name(list(infos))
    configs = configs_by_name(card.get("configs") or ())
    return infos.get(name) or configs.get(name) or {}


def license_of(card: Mapping[str, Any]) -> str | None:
    """Return the licenses of a card, joined by AND; None if it states none. It raises nothing."""
    licenses = card.get("license")
    if not isinstance(licenses, list):
        licenses = [licenses]
    names = [str(name) for name in licenses if name not in (None, "unknown", "other")]
    return " AND ".join(names) or None
