"""Plugins bring engines of preparations."""

from __future__ import annotations

from typing import Any

import pytest

from data_stack.cli.datasets import engine_of
from data_stack.exception import ConfigError

Site = Any  # the class in conftest.py, which cannot be imported from here

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
