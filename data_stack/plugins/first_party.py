"""Which of data_stack's own packages provides what, whether it is installed or not."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Literal, TypeAlias

from data_stack.util.untrusted_text import parse_toml

Kind: TypeAlias = Literal["datasets", "catalogues", "engines", "documents"]


def extras_of(kind: Kind) -> Mapping[str, str]:
    """Return the names of things of a kind, each with the extra of data_stack that brings it.

    ``extras_of("datasets")["cifar10"]`` is ``"classics"``; catalogues are named by their schemes,
    and documents by the names of their files.
    """
    extras: dict[str, str] = {}
    for extra, names in _read_table()[kind].items():
        extras.update(dict.fromkeys(names, extra))
    return MappingProxyType(extras)


def is_extra(name: str) -> bool:
    """Return whether an extra of data_stack has this name and brings one of its own packages."""
    return any(name in extras for extras in _read_table().values())


def package_of(extra: str) -> str:
    """Return the name of the package that an extra brings."""
    return f"lazy-data-stack-{extra}"


@functools.cache
def _read_table() -> dict[str, dict[str, list[str]]]:
    """Return by kind the names that each extra brings."""
    path = resources.files(__package__).joinpath("first_party.toml")
    table: dict[str, dict[str, list[str]]] = parse_toml(path.read_bytes())
    return table
