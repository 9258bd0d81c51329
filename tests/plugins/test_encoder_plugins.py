"""Plugins bring kinds of encoders; their states are rebuilt through the default plugin manager."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.dataset.encoders import encoder_from_state
from data_stack.dataset.encoders.encoder import BUILT_IN_KINDS
from data_stack.exception import ConfigError
from data_stack.plugins import PluginManager
from data_stack.repository import encoders

Site = Any  # the class in conftest.py, which cannot be imported from here

ENCODER = """
    from data_stack.dataset.encoders import Encoder
    from data_stack.plugins import hookimpl

    class Times(Encoder):
        kind = "KIND"

        def __init__(self, factor=2):
            self._factor = factor
            self._remember({})

        def config(self):
            return {"factor": self._factor}

        def _transform(self, column):
            return column * self._factor

    class Abstract(Encoder):
        kind = "KIND"

    @hookimpl
    def data_stack_encoders():
        return {"KIND": Times}
"""


def test_a_plugins_encoder_is_made_by_its_kind(site: Site) -> None:
    site.install_hooks("times", ENCODER.replace("KIND", "times"))

    encoder = encoders.encoder("times", factor=3)

    assert encoder.transform(np.array([1, 2])).tolist() == [3, 6]
    assert "times" in encoders.encoder_kinds()
    assert set(encoders.encoder_kinds()) == {*BUILT_IN_KINDS, "times"}


def test_the_state_of_a_plugins_encoder_is_rebuilt(site: Site) -> None:
    site.install_hooks("times", ENCODER.replace("KIND", "times"))
    alone = encoders.encoder("times", factor=5)

    assert encoders.encoder_from_state(alone.state()) == alone
    with pytest.raises(ConfigError, match=r"kind of encoder 'times'.*data_stack.repository.encoders"):
        encoder_from_state(alone.state())


BROKEN = {
    "other_kind": "return {'one_hot': Times}",
    "taken": "Times.kind = 'one_hot'; return {'one_hot': Times}",
    "no_class": "return {'times': Times()}",
    "other_class": "return {'times': dict}",
    "abstract": "return {'times': Abstract}",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_hooks_that_break_the_contract_are_taken_back_whole(site: Site, manager: PluginManager, kind: str) -> None:
    site.install_hooks("broken", ENCODER.replace("KIND", "times").replace('return {"times": Times}', BROKEN[kind]))
    site.install_hooks("whole", ENCODER.replace("KIND", "whole"))

    kinds = manager.encoder_kinds()

    assert set(kinds) == {"whole"}
    records = site.records(manager.records())
    assert (records["broken"].state, records["whole"].state) == ("broken", "ok")


def test_the_example_of_the_documentation_works(site: Site) -> None:
    text = (Path(data_stack.__file__).parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
    (example,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "data_stack_encoders" in block)
    site.install_hooks("log", example)

    encoder = encoders.encoder("log", offset=1.0)

    assert encoder.transform([1.0, math.e]).tolist() == [1, 2]
    assert encoders.encoder_from_state(encoder.state()) == encoder
