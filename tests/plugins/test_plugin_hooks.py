"""Plugins bring URL schemes, engines, encoders, column types; one that breaks the contract brings nothing, others do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.cli.datasets import engine_of
from data_stack.codecs import IntCodec, codec_of
from data_stack.dataset.encoders import encoder_from_state
from data_stack.dataset.encoders.encoder import built_in_kinds
from data_stack.exception import ConfigError, PluginError
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.plugins import PluginManager, default_manager
from data_stack.repository import encoders, storage_connector_from_url

Site = Any  # the class in conftest.py, which cannot be imported from here

STORAGE = """
    from data_stack.io.storage_connectors import InMemoryStorageConnector
    from data_stack.plugins import hookimpl

    def connect(url):
        connector = InMemoryStorageConnector()
        connector.url = url
        return connector

    @hookimpl
    def data_stack_storage_connectors():
        return {"SCHEME": connect}
"""


def test_a_plugins_scheme_makes_its_connector_from_the_whole_url(site: Site) -> None:
    site.install_hooks("remote", STORAGE.replace("SCHEME", "remote"))

    connector = storage_connector_from_url("REMOTE://user:secret@host/bucket?x=1")

    assert vars(connector)["url"] == "REMOTE://user:secret@host/bucket?x=1"


def hook(kind: str, body: str, parameters: str = "") -> str:
    return f"from data_stack.plugins import hookimpl\n@hookimpl\ndef data_stack_{kind}({parameters}):\n    {body}"


BROKEN = {
    "unknown_hook": (hook("storage_conectors", "return {}"), "data_stack_storage_conectors"),
    "wrong_signature": (hook("storage_connectors", "return {}", "url"), "data_stack_storage_connectors"),
    "unmarked": ("def data_stack_storage_connectors(): return {}", "no hook marked"),
    "exits": (hook("storage_connectors", "raise SystemExit(5)"), "SystemExit: 5"),
    "generator": (hook("storage_connectors", "yield {}"), "returned generator"),
    "not_callable": (hook("storage_connectors", "return {'remote': 1}"), "'remote': 1"),
    "no_scheme": (hook("storage_connectors", "return {'Remote://': print}"), "'Remote://'"),
    "built_in": (
        hook("storage_connectors", "return {'remote': print, 'file': print}"),
        "'file' of data_stack_storage_",
    ),
    "engine": (hook("engines", "return {'processes': print}"), "'processes' of data_stack_engines is taken"),
    "encoder": (hook("encoders", "return {'times': dict}"), "'times'"),
    "codec": (hook("codecs", "return {'turned': print}"), "'turned'"),
    "catalogue": (hook("catalogues", "from data_stack import Catalogue\n    return {'calc': Catalogue}"), "'calc'"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_hooks_that_break_the_contract_are_taken_back_whole(site: Site, manager: PluginManager, kind: str) -> None:
    source, reason = BROKEN[kind]
    site.install_hooks("broken", source)
    site.install_hooks("whole", STORAGE.replace("SCHEME", "whole"))

    schemes = manager.storage_schemes()

    assert set(schemes) == {"whole"}
    assert isinstance(schemes["whole"]("whole://x"), InMemoryStorageConnector)
    records = site.records(manager.doctor())
    assert (records["broken"].state, records["whole"].state) == ("broken", "ok")
    assert reason in str(records["broken"].error)


def test_the_later_of_two_plugins_with_one_scheme_brings_nothing(site: Site, manager: PluginManager) -> None:
    site.install_hooks("first", STORAGE.replace("SCHEME", "remote"))
    site.install_hooks("second", STORAGE.replace('{"SCHEME": connect}', '{"second": connect, "remote": connect}'))

    schemes = manager.storage_schemes()

    assert set(schemes) == {"remote"}
    records = site.records(manager.records())
    assert (records["first"].state, records["second"].state) == ("ok", "broken")
    assert "'remote' of data_stack_storage_connectors is taken" in str(records["second"].error)


def test_a_broken_plugin_is_tried_once_for_schemes_and_again_by_the_doctor(site: Site, manager: PluginManager) -> None:
    site.install_hooks("remote", "raise ValueError")
    assert not manager.storage_schemes()
    module = site.folder / "remote_plugin_hooks.py"
    module.write_text(
        "from data_stack.plugins import hookimpl\n@hookimpl\ndef data_stack_storage_connectors(): return {'remote': print}"
    )

    assert not manager.storage_schemes()
    assert site.records(manager.doctor())["remote"].state == "ok"
    assert set(manager.storage_schemes()) == {"remote"}


def test_a_plugin_may_ask_for_a_scheme_while_it_is_imported(site: Site, manager: PluginManager) -> None:
    site.install_hooks("asking", "import data_stack\ndata_stack.storage_connector_from_url('asking://x')")
    site.install_hooks("whole", STORAGE.replace("SCHEME", "whole"))

    assert isinstance(storage_connector_from_url("whole://x"), InMemoryStorageConnector)
    with pytest.raises(ConfigError, match="asking://"):
        storage_connector_from_url("asking://x")


def test_a_connector_that_cannot_be_made_is_told_without_the_url(site: Site) -> None:
    source = STORAGE.replace("SCHEME", "remote").replace("connector = ", "raise OSError('no route to ' + url)\n        ")
    site.install_hooks("remote", source)

    with pytest.raises(PluginError, match=r"plugin 'remote' of remote-plugin 1.0 .* \(OSError\)") as caught:
        storage_connector_from_url("remote://user:secret@host")

    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


ENGINE = """
    from data_stack.distributed import ProcessEngine
    from data_stack.plugins import hookimpl

    def engine(master, *, attempts):
        return ProcessEngine(int(master), attempts=attempts)

    @hookimpl
    def data_stack_engines():
        return {"NAME": engine}
"""


def test_a_plugins_engine_is_asked_for_by_its_name(site: Site) -> None:
    site.install_hooks("several", ENGINE.replace("NAME", "several"))

    engine = engine_of("several", None, "3")

    assert repr(engine) == "ProcessEngine(3, attempts=3)"
    with pytest.raises(ConfigError, match=r"'sevral' \(did you mean 'several'\?\); known engines: processes, (.*, )?several"):
        engine_of("sevral", None, None)


ENCODER = """
    from data_stack.dataset.encoders import Encoder
    from data_stack.plugins import hookimpl

    class Times(Encoder):
        kind = "times"

        def __init__(self, factor=2):
            self._factor = factor
            self._remember({})

        def config(self):
            return {"factor": self._factor}

        def _transform(self, column):
            return column * self._factor

    @hookimpl
    def data_stack_encoders():
        return {"times": Times}
"""


def test_a_plugins_encoder_is_made_by_its_kind_and_rebuilt_from_its_state(site: Site) -> None:
    site.install_hooks("times", ENCODER.replace("times", "times"))

    encoder = encoders.encoder("times", factor=3)

    assert encoder.transform(np.array([1, 2])).tolist() == [3, 6]
    assert {*built_in_kinds(), *default_manager().encoder_kinds()} == {*built_in_kinds(), "times"}
    assert encoders.encoder_from_state(encoder.state()) == encoder
    with pytest.raises(ConfigError, match=r"encoder 'times'.*data_stack.repository.encoders"):
        encoder_from_state(encoder.state())


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
    assert list(default_manager().codecs()) == ["turned"]
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
