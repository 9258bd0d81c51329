"""Plugins bring kinds of encoders; their states are rebuilt through the default plugin manager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data_stack.dataset.encoders import encoder_from_state
from data_stack.dataset.encoders.encoder import BUILT_IN_KINDS
from data_stack.exception import ConfigError
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
    with pytest.raises(ConfigError, match=r"encoder 'times'.*data_stack.repository.encoders"):
        encoder_from_state(alone.state())
