"""The errors of data_stack: their tree, their messages, and that they survive pickling."""

from __future__ import annotations

import inspect
import pickle

from data_stack import exception
from data_stack.exception import ArgumentError, ConfigError, DataStackError


def test_the_tree_names_every_error() -> None:
    tree = inspect.getdoc(exception) or ""

    for name, error_class in inspect.getmembers(exception, inspect.isclass):
        if issubclass(error_class, DataStackError):
            assert f" {name}" in tree or name == "DataStackError"


def test_an_argument_is_named_as_in_python() -> None:
    error = ArgumentError("choose one by", "columns")

    assert str(error) == "choose one by columns="
    assert isinstance(error, ConfigError)


def test_an_argument_can_be_named_as_in_the_shell() -> None:
    error = ArgumentError("say which it is by", "source_format", ["csv", "npz"])

    assert error.message_naming("--from") == "say which it is by --from: csv or npz"


def test_the_name_of_an_argument_survives_pickling() -> None:
    error = ArgumentError("choose one by", "target_format", ["csv", "npz"])

    copy = pickle.loads(pickle.dumps(error))

    assert str(copy) == "choose one by target_format=: csv or npz"
    assert (copy.advice, copy.argument, copy.choices) == (
        "choose one by",
        "target_format",
        ("csv", "npz"),
    )
