"""The installed distributions of packages."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping


def distributions_of(package: str) -> tuple[str, ...]:
    """Return the installed distributions of an importable package, with their versions.

    For example ``("lazy-data-stack-digits 0.2.0",)``. The tuple is empty if no distribution has
    the package, or if the metadata of an installed distribution is damaged.
    """
    try:
        names = _packages_distributions().get(package, ())
        distinct_names = dict.fromkeys(names)
        return tuple(f"{name} {importlib.metadata.version(name)}" for name in distinct_names)
    except Exception:  # noqa: BLE001  # damaged metadata may raise anything
        return ()


def distribution_of(module: str) -> str | None:
    """Return the installed distribution of a module or class, with its version.

    Args:
        module: such as ``"data_stack_digits.factory"`` or ``"data_stack_digits:DigitsFactory"``.

    Returns:
        Such as ``"lazy-data-stack-digits 0.2.0"``; None if no distribution has the module.
    """
    module_name, _, _ = module.partition(":")
    package, _, _ = module_name.partition(".")
    distributions = distributions_of(package)
    if not distributions:
        return None
    return distributions[0]


@functools.cache
def _packages_distributions() -> Mapping[str, list[str]]:
    # This reads the metadata of all installed distributions, hence once.
    return importlib.metadata.packages_distributions()
