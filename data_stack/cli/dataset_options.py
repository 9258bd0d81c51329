"""The option ``-O KEY=VALUE``, which passes options to a dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from data_stack.exception import ConfigError

#: Arguments of ``load`` and other functions that are not options of a dataset, each with what to do
#: in a command line instead.
_NOT_OPTIONS = {
    "identifier": "the name is the first argument",
    "lock": "set the environment variable DATA_STACK_LOCK",
    "name": "the name is the first argument",
    "progress": "bars are drawn where standard error is a terminal",
    "repository": "a command uses the installed datasets",
    "self": "it has another meaning in Python",
    "split": "use --split NAME where the command has it, or NAME:SPLIT",
    "storage": "use --storage",
}


def _parse_options(
    context: click.Context, parameter: click.Parameter, pairs: Sequence[str]
) -> dict[str, Any]:
    """Return the options by name.

    Raises:
        ConfigError: a pair lacks its name or value, or its name cannot be an option of a dataset.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals_sign, text = pair.partition("=")
        if not equals_sign or not key:
            raise ConfigError(f"an option must be KEY=VALUE, got {pair!r:.80}")
        if key in _NOT_OPTIONS:
            raise ConfigError(
                f"{key!r} is no option of a dataset, so -O cannot set it: {_NOT_OPTIONS[key]}"
            )
        options[key] = _parse_value(text)
    return options


def _parse_value(text: str) -> Any:
    """Return a value of JSON (``true``, ``3``, ``[1, 2]``), or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


#: Adds ``-O`` to a command, which gets the options as its argument ``options``.
dataset_options = click.option(
    "-O",
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the dataset; VALUE is JSON, or else text.",
    callback=_parse_options,
)
