"""Plugins bring types of record columns."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from data_stack.codecs import IntCodec, codec_of
from data_stack.exception import ConfigError
from data_stack.formats.records import RecordReader, RecordWriter
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


def test_a_spawned_process_reads_a_plugins_type_although_it_asks_no_plugins(site: Site, tmp_path: Path) -> None:
    site.install_hooks("turned", CODEC.replace("TYPE", "turned"))
    with RecordWriter(tmp_path / "records", {"text": "zstd(turned)"}) as writer:
        writer.append({"text": b"abc"})
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[0])"

    with RecordReader(tmp_path / "records") as reader:
        ran = subprocess.run(
            [sys.executable, "-c", program],
            input=pickle.dumps(reader),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(site.folder), "DATA_STACK_DISABLE_PLUGINS": "1"},
            check=True,
        )

    assert ran.stdout == b"{'text': b'abc'}\n"
