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
    assert set(encoders.encoder_kinds()) == {*BUILT_IN_KINDS, "times"}
    assert encoders.encoder_from_state(encoder.state()) == encoder
    with pytest.raises(ConfigError, match=r"encoder 'times'.*data_stack.repository.encoders"):
        encoder_from_state(encoder.state())
