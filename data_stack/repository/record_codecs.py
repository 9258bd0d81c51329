"""Types of record columns that plugins bring; importing this module registers them with readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_stack.codecs.codec import add_codec_provider
from data_stack.plugins.manager import default_manager

if TYPE_CHECKING:
    from data_stack.codecs import Codec


def plugin_codecs() -> dict[str, Codec]:
    """The codecs that plugins bring, by type, sorted; imports the plugins that implement hooks."""
    return dict(sorted(default_manager().codecs().items()))


add_codec_provider(plugin_codecs)
