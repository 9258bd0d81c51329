"""Every plugin is loaded by itself: what is wrong with one is recorded and reaches only those who ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from data_stack.exception import ConfigError, PluginError
from data_stack.plugins import PluginManager

Site = Any  # the class in conftest.py, which cannot be imported from here

BROKEN = {
    "exits": ("import sys; sys.exit('bye')", SystemExit),
    "stops": ("raise GeneratorExit", GeneratorExit),
    "no_python": ("def Factory(:", SyntaxError),
    "lacks_class": ("factory = 1", AttributeError),
    "cannot_be_shown": ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E", Exception),
    "number": ("Factory = 7", ConfigError),
    "other_class": ("class Factory: pass", ConfigError),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_dataset_raises_its_own_error_and_disturbs_no_other(site: Site, manager: PluginManager, kind: str) -> None:
    source, error = BROKEN[kind]
    site.install_dataset("broken", source)
    site.install_dataset("whole")

    with pytest.raises(PluginError, match=r"dataset 'broken' of broken-plugin 1\.0") as caught:
        manager.load_dataset("broken")

    assert isinstance(caught.value.__cause__, error)
    assert manager.load_dataset("whole").__name__ == "Factory"
    records = site.records(manager.records())
    assert (records["broken"].state, records["whole"].state) == ("broken", "ok")
    assert type(caught.value.__cause__).__name__ in str(records["broken"].error)
    assert {"broken", "whole"} <= set(manager.dataset_names())


def test_ctrl_c_while_a_plugin_is_imported_reaches_the_user(site: Site, manager: PluginManager) -> None:
    site.install_dataset("numbers", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        manager.load_dataset("numbers")

    assert site.records(manager.records())["numbers"].state == "listed"
