"""Every plugin is loaded by itself: what is wrong with one is recorded and reaches only those who ask for it."""

from __future__ import annotations

import threading
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


def test_others_go_on_while_a_plugin_hangs_in_its_import(site: Site, manager: PluginManager) -> None:
    go_on = threading.Event()
    site.install_dataset(
        "hanging",
        """
        import threading
        for thread in threading.enumerate():
            if thread.name == "loads the hanging one":
                thread.has_begun.set()
                thread.go_on.wait()
        class Factory:
            def get_dataset_iterator(self, config): ...
        """,
    )
    site.install_dataset("whole")
    thread = threading.Thread(target=manager.load_dataset, args=("hanging",), name="loads the hanging one")
    thread.has_begun, thread.go_on = threading.Event(), go_on  # type: ignore[attr-defined]  # handed to the plugin
    thread.start()
    try:
        assert thread.has_begun.wait(30)  # type: ignore[attr-defined]

        assert manager.load_dataset("whole").__name__ == "Factory"
        assert {"hanging", "whole"} <= set(manager.dataset_names())
    finally:
        go_on.set()
        thread.join()
    assert site.records(manager.records())["hanging"].state == "ok"


def test_doctor_imports_all_and_shows_how_each_is(site: Site, manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install_dataset("whole")
    site.install_dataset("exits", "raise SystemExit(3)")
    site.install_dataset("number", "Factory = 7")
    site.install_dataset("blocked", "raise SystemExit(4)")
    site.install("odd", "[data_stack.datasets]\nbad name = module:Factory\n")
    site.install_hooks("hooks", "print(")
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "blocked")

    states = {name: record.state for name, record in site.records(manager.doctor()).items()}

    assert states == {
        "whole": "ok",
        "exits": "broken",
        "number": "broken",
        "blocked": "blocked",
        "bad name": "broken",
        "hooks": "broken",
    }
