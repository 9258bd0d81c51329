"""The fork server imports what its forks would import one by one."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_stack import Loader
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.processes import fork_server
from data_stack.processes.held_modules import modules_imported_since, modules_to_unpickle


class Unmade:
    """A value that must not be made: asking it for anything is an error."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"it was asked for {name}")


@pytest.fixture
def users_module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("module_of_a_user")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_modules_of_ours_and_slow_packages_are_held() -> None:
    names = {"data_stack.values.times", "numpy.random", "json", "PIL.Image"}

    assert modules_to_unpickle(names) == {"data_stack.values.times", "numpy.random", "PIL.Image"}


def test_a_fork_asks_for_its_own_imports(
    users_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_modules = len(sys.modules)
    monkeypatch.setitem(sys.modules, "data_stack.values.made_up", types.ModuleType("made_up"))
    monkeypatch.setitem(sys.modules, "another_users_module", users_module)

    assert modules_imported_since(n_modules) == ["data_stack.values.made_up"]


def test_a_users_module_counts_by_what_it_refers_to(users_module: types.ModuleType) -> None:
    vars(users_module).update(
        Image=Image, random=np.random.default_rng, array=np.ndarray, Path=Path, number=3
    )

    held = modules_to_unpickle({users_module.__name__})

    assert "PIL.Image" in held
    assert "numpy" in held
    assert {name.partition(".")[0] for name in held} == {"PIL", "numpy"}


def test_values_that_are_made_on_demand_stay_unmade(users_module: types.ModuleType) -> None:
    vars(users_module).update(value=Unmade(), Image=Image)

    assert modules_to_unpickle({users_module.__name__}) == {"PIL.Image"}


def test_what_the_program_itself_refers_to_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(sys.modules["__main__"]), "Image", Image)

    assert modules_to_unpickle({"__main__", "module_that_was_never_imported"}) == set()


def turn(image: Any) -> Any:
    return Image.fromarray(image).rotate(90)


def test_the_server_imports_before_workers_are_forked() -> None:
    samples = SequenceDatasetIterator([np.zeros((4, 2, 2), np.uint8)])
    with Loader(samples.map(turn, column=0), 2, workers=1, worker_kind="processes"):
        server: Any = fork_server._server

        assert "PIL.Image" in server.held
