"""Errors of Python's functions name the options of the command."""

from __future__ import annotations

import pytest

from data_stack.cli.group import cli, name_of_option
from data_stack.cli.main import main  # noqa: F401  # adds the commands


@pytest.mark.parametrize(
    ("command_name", "argument", "expected"),
    [
        ("convert", "source_format", "--from"),
        ("convert", "columns", "--columns"),
        ("show", "output", "--output"),
        ("show", "format", "-O format="),
        ("verify", "format", "format="),
    ],
)
def test_an_argument_of_python_has_an_option(
    command_name: str, argument: str, expected: str
) -> None:
    command = cli.commands[command_name]

    assert name_of_option(command, argument) == expected
