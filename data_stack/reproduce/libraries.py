"""The libraries of a plugin, with their versions, then and now."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
from collections.abc import Mapping
from typing import Any


def libraries_of(distribution: str | None) -> list[str] | None:
    """data_stack and the distributions that a plugin requires, with their versions; None for a dataset without plugin."""
    if distribution is None:
        return None
    names = {"datastack"}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        required = importlib.metadata.requires(distribution) or ()
        names |= {re.split(r"[^\w.-]", each, maxsplit=1)[0].lower() for each in required if "extra ==" not in each}
    found = []
    for name in sorted(names):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # of another platform
            found.append(f"{name} {importlib.metadata.version(name)}")
    return found


def differing_libraries(entry: Mapping[str, Any], distribution: str | None) -> str:
    """Which libraries of a plugin have other versions than in the lock, as the end of a sentence."""
    if distribution is None:
        return ""
    then, now = (
        dict(each.split(" ") for each in libraries or ()) for libraries in (entry.get("libraries"), libraries_of(distribution))
    )
    differing = [
        f"{name} {now.get(name, 'is missing')} here, {then[name]} then" for name in sorted(then) if now.get(name) != then[name]
    ]
    return f"; {', '.join(differing)}" if differing else ""
