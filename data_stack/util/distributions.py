"""The installed distributions of packages."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from collections.abc import Mapping


def distributions_of(package: str) -> tuple[str, ...]:
    """The installed distributions of an importable package, with their versions: ``"lazy-data-stack-digits 0.2.0"``."""
    with contextlib.suppress(Exception):  # the metadata of some other package may be damaged
        names = _packages_distributions().get(package, ())
        return tuple(f"{name} {importlib.metadata.version(name)}" for name in dict.fromkeys(names))
    return ()


def distribution_of(module: str) -> str | None:
    """The installed distribution of a module or class, with its version."""
    return next(iter(distributions_of(module.partition(":")[0].partition(".")[0])), None)


@functools.cache
def _packages_distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()  # reads the metadata of all distributions
