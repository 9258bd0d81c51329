"""Plugins bring types of record columns."""

from __future__ import annotations

from typing import Any

import pytest

from data_stack.codecs import IntCodec, codec_of
from data_stack.exception import ConfigError
from data_stack.repository import plugin_codecs

Site = Any  # the class in conftest.py, which cannot be imported from here

CODEC = """
    from dataclasses import dataclass

    from data_stack.codecs import Codec
    from data_stack.plugins import hookimpl

    @dataclass(frozen=True)
    class Reversed(Codec):
        def encode(self, value):
            return value[::-1]

        def decode(self, record):
            return record[::-1]

    @hookimpl
    def data_stack_codecs():
        return {"TYPE": Reversed()}
"""


def test_a_plugins_type_is_known_like_one_that_is_built_in(site: Site) -> None:
    site.install_hooks("turned", CODEC.replace("TYPE", "turned"))

    assert codec_of("turned").encode(b"abc") == b"cba"
    assert codec_of("zstd(turned)[]").decode(codec_of("zstd(turned)").encode(b"abc")) == b"abc"
    assert list(plugin_codecs()) == ["turned"]
    assert codec_of("turned", {"turned": IntCodec()}) == IntCodec()
    with pytest.raises(ConfigError, match=r"column type 'turnd' \(did you mean 'turned'\?\)"):
        codec_of("turnd")
