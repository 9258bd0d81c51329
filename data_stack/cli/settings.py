"""What holds for every command: where the bytes are, and how to talk."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from data_stack.dataset.reports.markup import columns, printable
from data_stack.exception import ConfigError

if TYPE_CHECKING:
    from data_stack.io.storage_connectors import StorageConnector

__all__ = [
    "Settings",
    "common_options",
    "echo",
    "parse_options",
    "parse_seconds",
    "pass_settings",
    "print_columns",
    "print_json",
]

_STORAGE_HELP = """The store: a folder, or a URL: mongodb://…, s3://…, file://…, a plugin's scheme.
[env: DATA_STACK_HOME; default: the user's cache folder]"""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass
class Settings:
    """The options that every command has.

    Attributes:
        storage: URL or path of the store; None: the default one.
        as_json: print JSON on stdout instead of text.
        debug: show tracebacks and all log messages.
        stdout: where JSON goes, while everything else that is printed goes to stderr.
    """

    storage: str | None = None
    as_json: bool = False
    debug: bool = False
    stdout: TextIO | None = None

    def connector(self) -> StorageConnector:
        """The store that was asked for, or the default one; nothing is created or contacted yet.

        Raises:
            ConfigError: the URL names no store.
        """
        from data_stack.repository.default_storage import as_storage_connector

        return as_storage_connector(self.storage)

    def existing_connector(self, *, may_be_new: bool = False) -> StorageConnector:
        """The same for commands that only look: a folder that was named has to be there, so that a typo is no empty store.

        Args:
            may_be_new: for commands that tell of what is installed too: ``DATA_STACK_HOME`` may name what ``prepare`` will make.

        Raises:
            StorageError: it is not there, or a file.
            ConfigError: the URL names no store.
        """
        from data_stack.repository.default_storage import HOME, check_there

        connector = self.connector()
        check_there(connector, may_be_new=self.storage is None and (may_be_new or not os.environ.get(HOME)))
        return connector


#: Hands a command its Settings.
pass_settings = click.make_pass_decorator(Settings, ensure=True)


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Options given as ``KEY=VALUE``: VALUE is JSON (``true``, ``3``, ``[1, 2]``), or else text.

    Raises:
        ConfigError: one has no ``=``.
    """
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"an option is KEY=VALUE, got {pair!r:.80}")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def parse_seconds(text: str) -> float | None:
    """A duration such as ``"24h"``, ``"30m"`` or ``"90"`` (seconds); None if it is not one."""
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _SECONDS[match[2]]


def common_options(command: _Command) -> _Command:
    """Give a command, or the group before it, the options of :class:`Settings`; where both have one, the later counts."""
    for names, options in (
        (("--debug",), {"is_flag": True, "default": None, "help": "Show tracebacks and all log messages."}),
        (("--offline",), {"is_flag": True, "default": None, "help": "Use no network. [env: DATA_STACK_OFFLINE]"}),
        (("--json", "as_json"), {"is_flag": True, "default": None, "help": "Print JSON on standard output."}),
        (("--storage",), {"metavar": "URL_OR_PATH", "help": _STORAGE_HELP}),
    ):
        command = click.option(*names, expose_value=False, callback=_take, **options)(command)
    return command


def _take(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is None:
        return
    if parameter.name == "offline":
        os.environ["DATA_STACK_OFFLINE"] = "1"  # main restores it; thus it reaches factories in the original's manner too
        return
    settings = context.ensure_object(Settings)
    setattr(settings, str(parameter.name), value)
    if parameter.name == "as_json" and settings.stdout is None:
        # Plugins may print while they are imported or at work; what is on stdout must stay JSON.
        settings.stdout = sys.stdout
        context.with_resource(contextlib.redirect_stdout(sys.stderr))
    if parameter.name == "debug":
        logging.getLogger("data_stack").setLevel(logging.DEBUG)


def print_json(value: Any) -> None:
    """Write ``value`` on stdout, in ASCII so that no locale can spoil it."""
    settings = click.get_current_context().find_object(Settings)
    click.echo(json.dumps(value, indent=2, default=str), file=settings.stdout if settings else None)


def echo(text: str = "", *, err: bool = False) -> None:
    """Write a line, or several, on stdout or stderr; a stranger's names, labels and messages cannot steer the terminal."""
    click.echo(printable(text, keep="\n\t"), err=err)


def print_columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print a table whose first row is its header; the columns numbered in ``right`` are flush right."""
    for line in columns(rows, right):
        echo(line)
