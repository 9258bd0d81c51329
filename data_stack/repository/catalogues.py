"""Datasets of catalogues by their names, ``hf:owner/name``; advice about names that nothing has."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from packaging.version import InvalidVersion, Version

from data_stack.exception import (
    CatalogueUnavailableError,
    ConfigError,
    DataStackError,
    install_command,
)
from data_stack.factories.catalogue import CatalogueEntry
from data_stack.io.retriever import is_offline
from data_stack.plugins.manager import PluginManager, default_manager
from data_stack.util.logger import logger
from data_stack.util.suggestions import did_you_mean

#: The folders in ``plugins`` of data_stack's repository, and the datasets that they provide.
_DATASETS: Final[Mapping[str, str]] = {
    "classics": "20-newsgroups adult ag-news california-housing cifar10 cifar100 covertype emnist-balanced emnist-byclass "
    "emnist-bymerge emnist-digits emnist-letters emnist-mnist fashion-mnist imdb-reviews kmnist penguins qmnist speech-commands "
    "stl10 svhn titanic usps wine-quality",
    "digits": "digits",
    "iris": "iris",
}
FOLDERS: Final[Mapping[str, str]] = {
    name: folder for folder, names in _DATASETS.items() for name in names.split()
}
"""Where the datasets of data_stack's own packages are, by their names."""

SCHEME_FOLDERS: Final[Mapping[str, str]] = {
    "doi": "doi",
    "hf": "huggingface",
    "openml": "openml",
    "sklearn": "sklearn",
}
"""Where the catalogues of data_stack's own packages are, by their schemes."""

_MAX_NAMES_SHOWN: Final = 20
_NAME_OF_THE_HUB: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


#: Names of distributions, https://packaging.python.org/specifications/name-normalization
_DISTRIBUTION: Final = re.compile(r"[A-Z0-9]([A-Z0-9._-]{0,98}[A-Z0-9])?", re.IGNORECASE | re.ASCII)


def advise_install(distribution: str) -> str:
    """How to get a distribution such as ``"lazy-data-stack-digits 0.2.0"``, formerly ``"datastack-digits 1.0.0"``.

    A file that anyone may have written names it: a published description or a lock file. So a command is given for data_stack's
    own packages alone; to install another one runs the code of its author.
    """
    name, _, version = distribution.partition(" ")
    folder = name.removeprefix("lazy-data-stack-").removeprefix("datastack-")
    if folder in {*_DATASETS, *SCHEME_FOLDERS.values()}:
        return f"`{install_command(folder)}`"
    if not _DISTRIBUTION.fullmatch(name) or (version and not _is_version(version)):
        return "it names no valid package; ask its author for the code"
    return (
        f"it names the package {name} {version}".rstrip()
        + ", which you may install if you trust its author"
    )


def _is_version(text: str) -> bool:
    """Whether a text is a version as PEP 440 describes it, of a usual length."""
    try:
        Version(text[:100])
    except InvalidVersion:
        return False
    return len(text) <= 100


def explain_unknown_dataset(
    identifier: object, reason: str, names: Sequence[str], plugins: PluginManager | None
) -> str:
    """Why no dataset has a name, and what to do.

    Args:
        identifier: the name.
        reason: from the plugins; empty without plugins.
        names: of all known datasets.
        plugins: the plugins that were asked, if any.
    """
    reason = reason or f"no dataset {identifier!r:.80} is registered"
    text = identifier if isinstance(identifier, str) and plugins is not None else ""
    if os.path.exists(text):
        return f"{reason}. To open the file or folder with this name, write {os.path.join(os.curdir, text)!r:.200}"
    if _NAME_OF_THE_HUB.fullmatch(text):
        reason += f". A dataset of the Hugging Face Hub is loaded by 'hf:{text}'"
    if folder := FOLDERS.get(text.partition("@")[0]):
        return f"{reason}. It {_explain_folder(folder)}"
    scheme = "" if plugins is None else explain_scheme(text, plugins)
    return (
        f"{reason}{did_you_mean(identifier, names)}{scheme}. Known datasets: {list_names(names)}. "
        f"Plugins provide more; `data-stack doctor` shows the installed ones."
    )


def list_names(names: Sequence[str]) -> str:
    """Names in one line, at most twenty of them."""
    shown = ", ".join(names[:_MAX_NAMES_SHOWN]) or "none"
    return (
        shown
        if len(names) <= _MAX_NAMES_SHOWN
        else f"{shown} and {len(names) - _MAX_NAMES_SHOWN:,} more"
    )


def explain_scheme(identifier: str, plugins: PluginManager) -> str:
    """What to do about a name, or a scheme with or without ``:``, that no catalogue takes; empty for other names."""
    scheme, colon, _ = identifier.partition(":")
    known = sorted(plugins.provided("catalogues")) if colon or scheme in SCHEME_FOLDERS else []
    if scheme in known:
        return f". A dataset of the catalogue is {scheme}:name, {scheme}:name@version or {scheme}:name#part"
    if scheme in SCHEME_FOLDERS:
        return f". The catalogue {scheme!r} {_explain_folder(SCHEME_FOLDERS[scheme])}"
    near = did_you_mean(scheme, {*known, *SCHEME_FOLDERS})
    return (
        f". No catalogue {scheme!r:.40} is installed{near}; installed are: {', '.join(known) or 'none'}"
        if colon
        else ""
    )


def _explain_folder(folder: str) -> str:
    package = f"lazy-data-stack-{folder}"
    return f"is in the package {package}, which is not installed: {advise_install(package)}; or see `data-stack doctor`"


def search_catalogues(
    text: str, scheme: str | None = None, *, limit: int = 20
) -> list[CatalogueEntry]:
    """Ask catalogues for datasets that match some words; needs the network.

    Args:
        text: words, as the catalogue takes them.
        scheme: the catalogue to ask; None for all that are installed: then the log names those that fail.
        limit: how many to ask of each.

    Raises:
        ConfigError: the catalogue is unknown.
        CatalogueUnavailableError: ``DATA_STACK_OFFLINE`` is set.
        CatalogueError: the one catalogue that was asked failed.
    """
    catalogues, found = default_manager().provided("catalogues"), list["CatalogueEntry"]()
    if not catalogues or (scheme is not None and scheme not in catalogues):
        asked = "" if scheme is None else scheme
        raise ConfigError(f"unknown catalogue{explain_scheme(f'{asked}:', default_manager())}")
    if is_offline():
        raise CatalogueUnavailableError(
            "catalogues need the network, but DATA_STACK_OFFLINE is set or --offline given"
        )
    for each in sorted(catalogues) if scheme is None else [scheme]:
        try:
            found += catalogues[each].search(text, limit)[:limit]
        except DataStackError as error:
            if scheme is not None:
                raise
            logger.warning("catalogue %s could not be asked: %s", each, error)
    return found
