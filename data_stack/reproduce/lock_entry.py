"""Lists the facts of a dataset that a lock file holds, as they are here."""

from __future__ import annotations

import importlib.metadata
import os
import re
from typing import Any

from data_stack.factories.declarative import DatasetFactory
from data_stack.io.redaction import hide_credentials

#: The name of data_stack on the package index.
_OUR_DISTRIBUTION = "lazy-data-stack"


def sources_of(factory: Any) -> list[dict[str, Any]]:
    """Return the declared sources of a dataset, sorted by identifier.

    Returns:
        For each source its ``identifier``, the ``size``, ``sha256`` and ``md5_sum`` that are
        declared, and its ``sources`` without credentials.
    """
    if not isinstance(factory, DatasetFactory):
        return []
    sources = []
    for definition in sorted(factory.sources, key=lambda definition: definition.identifier):
        source: dict[str, Any] = {}
        for name in ("identifier", "size", "sha256", "md5_sum"):
            value = getattr(definition, name)
            if value is not None:
                source[name] = value
        source["sources"] = [hide_credentials(os.fsdecode(place)) for place in definition.sources]
        sources.append(source)
    return sources


def prepared_of(factory: Any) -> list[dict[str, Any]]:
    """Return the prepared resources of a dataset, sorted by identifier.

    Returns:
        For each resource its ``identifier``, ``size`` and ``sha256``; nothing for a dataset that is
        not ready or has no manifest.
    """
    if not isinstance(factory, DatasetFactory):
        return []
    manifest = factory.manifest()
    if manifest is None:
        return []
    resources = []
    for record in sorted(manifest.prepared, key=lambda record: record.identifier):
        resources.append(
            {
                "identifier": record.identifier,
                "size": record.size,
                "sha256": record.sha256 or "",
            }
        )
    return resources


def libraries_of(distribution: str | None) -> list[str] | None:
    """Return data_stack and the distributions that a plugin requires, with their versions.

    Args:
        distribution: the distribution of the plugin; None if a program provides the dataset itself.

    Returns:
        Texts such as ``"numpy 2.1.0"``, sorted; None for a dataset without a plugin.
    """
    if distribution is None:
        return None
    libraries = []
    for name in sorted({_OUR_DISTRIBUTION, *_required_by(distribution)}):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # It is required on another platform only.
            continue
        libraries.append(f"{name} {version}")
    return libraries


def _required_by(distribution: str) -> list[str]:
    """Return the names of the distributions that a distribution requires without extras."""
    try:
        requirements = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    names = []
    for requirement in requirements:
        if "extra ==" not in requirement:
            name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            names.append(name.lower())
    return names
