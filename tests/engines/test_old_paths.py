"""The old paths of the engines work as before, and warn."""

from __future__ import annotations

import importlib

import pytest

from data_stack import engines
from data_stack.engines import attempts


@pytest.mark.parametrize(
    ("module_name", "name", "value"),
    [
        ("data_stack.distributed", "ProcessEngine", engines.ProcessEngine),
        ("data_stack.distributed.attempts", "ProcessEngine", engines.ProcessEngine),
        ("data_stack.distributed.attempts", "Failure", attempts.Failure),
        ("data_stack.distributed.attempts", "attempt", attempts.attempt),
        ("data_stack.distributed.attempts", "pack", attempts.pack),
        ("data_stack.distributed.attempts", "unpack", attempts.unpack),
        ("data_stack.factories.engine", "PreparationEngine", engines.PreparationEngine),
    ],
)
def test_an_old_name_is_the_new_one(module_name: str, name: str, value: object) -> None:
    module = importlib.import_module(module_name)

    with pytest.warns(DeprecationWarning, match=rf"{module_name}\.{name} is deprecated"):
        assert getattr(module, name) is value


@pytest.mark.parametrize(
    "module_name",
    ["data_stack.distributed", "data_stack.distributed.attempts", "data_stack.factories.engine"],
)
def test_other_names_are_unknown_on_old_paths(module_name: str) -> None:
    module = importlib.import_module(module_name)

    assert not hasattr(module, "SparkEngine")
