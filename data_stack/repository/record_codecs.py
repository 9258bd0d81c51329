"""Types of record columns, those of plugins among them; with this imported, writers and readers know these by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_stack.codecs.provided import add_codec_provider
from data_stack.plugins.manager import default_manager

if TYPE_CHECKING:
    from data_stack.codecs import Codec

__all__ = ["plugin_codecs"]


def plugin_codecs() -> dict[str, Codec]:
    """The codecs that plugins bring, by type, sorted; imports the plugins that implement hooks."""
    return dict(sorted(default_manager().codecs().items()))


add_codec_provider(plugin_codecs)
