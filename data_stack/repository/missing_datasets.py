"""Explains why no dataset has a name, and what to do about it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from packaging.version import InvalidVersion, Version

from data_stack.exception import install_command
from data_stack.plugins.first_party import extras_of, is_extra, package_of
from data_stack.plugins.manager import PluginManager
from data_stack.util.suggestions import did_you_mean

#: Known datasets that an error lists.
_MAX_NAMES_SHOWN: Final = 20

#: A dataset of the Hugging Face Hub without its scheme.
_NAME_OF_THE_HUB: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)

#: What ``load_dataset`` of Hugging Face calls the readers of files.
_READERS_OF_THE_HUB: Final = frozenset(
    ("arrow", "audiofolder", "csv", "imagefolder", "json", "parquet", "text", "webdataset")
)

#: Names of distributions, https://packaging.python.org/specifications/name-normalization
_DISTRIBUTION: Final = re.compile(r"[A-Z0-9]([A-Z0-9._-]{0,98}[A-Z0-9])?", re.IGNORECASE | re.ASCII)

#: The names of data_stack's own packages begin with the first, and earlier with the second.
_PREFIXES_OF_OWN_PACKAGES: Final = ("lazy-data-stack-", "datastack-")

#: A version that is longer is no version of a package.
_MAX_VERSION_CHARACTERS: Final = 100


def explain_unknown_dataset(
    identifier: str, reason: str, names: Sequence[str], plugins: PluginManager | None
) -> str:
    """Return why no dataset has a name, and what to do.

    Args:
        identifier: the name.
        reason: why no plugin provides the dataset; empty without plugins.
        names: the names of all known datasets.
        plugins: the plugins that were asked, if any.
    """
    reason = reason or f"no dataset {identifier!r:.80} is registered"
    scheme_advice = ""
    if plugins is not None:
        if os.path.exists(identifier):
            path = os.path.join(os.curdir, identifier)
            return f"{reason}. To open the file or folder with this name, write {path!r:.200}"
        if identifier in _READERS_OF_THE_HUB:
            return f"{reason}. To open files, pass their path: data_stack.load('./train.csv')"
        if _NAME_OF_THE_HUB.fullmatch(identifier):
            reason += f". A dataset of the Hugging Face Hub is loaded by 'hf:{identifier}'"
        extra = extras_of("datasets").get(identifier.partition("@")[0])
        if extra is not None:
            return f"{reason}. It {_explain_package(extra)}"
        scheme_advice = explain_scheme(identifier, plugins)
    return (
        f"{reason}{did_you_mean(identifier, names)}{scheme_advice}. "
        f"Known datasets: {list_names(names)}. "
        f"Plugins provide more; `data-stack doctor` shows the installed ones."
    )


def explain_scheme(identifier: str, plugins: PluginManager) -> str:
    """Say what to do about a name that no catalogue takes.

    Args:
        identifier: ``"scheme:name"``, or a scheme alone, with or without its ``:``.
        plugins: the plugins, which provide the catalogues.

    Returns:
        What follows the first sentence of an error, so it begins with ``". "``; empty for a name
        without a scheme.
    """
    scheme, colon, _ = identifier.partition(":")
    extras = extras_of("catalogues")
    if not colon and scheme not in extras:
        return ""
    known = sorted(plugins.provided("catalogues"))
    if scheme in known:
        return (
            f". A dataset of the catalogue is {scheme}:name, {scheme}:name@version or "
            f"{scheme}:name#part"
        )
    if scheme in extras:
        return f". The catalogue {scheme!r} {_explain_package(extras[scheme])}"
    suggestion = did_you_mean(scheme, {*known, *extras})
    return (
        f". No catalogue {scheme!r:.40} is installed{suggestion}; "
        f"installed are: {', '.join(known) or 'none'}"
    )


def list_names(names: Sequence[str]) -> str:
    """Return names in one line, at most twenty of them."""
    if not names:
        return "none"
    shown = ", ".join(names[:_MAX_NAMES_SHOWN])
    n_more = len(names) - _MAX_NAMES_SHOWN
    if n_more > 0:
        return f"{shown} and {n_more:,} more"
    return shown


def advise_install(distribution: str) -> str:
    """Return how to get a distribution such as ``"lazy-data-stack-digits 0.2.0"``.

    The name comes from a file that anyone may have written: a published description or a lock
    file. Installing a package runs the code of its author. So the text has a command for
    data_stack's own packages only.

    Args:
        distribution: its name and version, separated by a space.
    """
    name, _, version = distribution.partition(" ")
    for prefix in _PREFIXES_OF_OWN_PACKAGES:
        extra = name.removeprefix(prefix)
        if name.startswith(prefix) and is_extra(extra):
            return f"`{install_command(extra)}`"
    if not _DISTRIBUTION.fullmatch(name) or (version and not _is_version(version)):
        return "it names no valid package; ask its author for the code"
    package = f"{name} {version}".rstrip()
    return f"it names the package {package}, which you may install if you trust its author"


def _is_version(text: str) -> bool:
    """Return whether a text is a version as PEP 440 describes it, of a usual length."""
    if len(text) > _MAX_VERSION_CHARACTERS:
        return False
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _explain_package(extra: str) -> str:
    """Return the end of a sentence: which package has something, and how to install it."""
    package = package_of(extra)
    return (
        f"is in the package {package}, which is not installed: {advise_install(package)}; "
        f"or see `data-stack doctor`"
    )
