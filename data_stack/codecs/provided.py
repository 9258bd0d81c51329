"""Registers codecs of plugins without importing numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data_stack.codecs.codec import Codec

_providers: list[Callable[[], Mapping[str, Codec]]] = []


def add_codec_provider(provider: Callable[[], Mapping[str, Codec]]) -> None:
    """Register a function that returns codecs by type, for types that are neither registered nor passed.

    Codecs of earlier providers take precedence; registering a provider twice has no effect.
    """
    if provider not in _providers:
        _providers.append(provider)


def find_provided_codecs() -> dict[str, Codec]:
    """The codecs of all providers, by type."""
    codecs: dict[str, Codec] = {}
    for provider in _providers:
        codecs = {**provider(), **codecs}
    return codecs
