"""What holds for every command: where the bytes are, and how to talk."""

from __future__ import annotations

import contextlib
import json
import logging
import os
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
    "dataset_options",
    "echo",
    "locate",
    "parse_options",
    "pass_settings",
    "print_columns",
    "print_json",
]

_STORAGE_HELP = """The store: a folder, or a URL: mongodb://…, s3://…, file://…, a plugin's scheme.
[env: DATA_STACK_HOME; default: the user's cache folder]"""


_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass
class Settings:
    """The options that every command has.

    Attributes:
        storage: URL or path of the store; None: the default one.
        as_json: print JSON on stdout instead of text.
        debug: show tracebacks and all log messages.
        stdout: where JSON goes; all other output goes to stderr then.
    """

    storage: str | None = None
    as_json: bool = False
    debug: bool = False
    stdout: TextIO | None = None

    def connector(self) -> StorageConnector:
        """The chosen store, or the default one; nothing is created or contacted yet.

        Raises:
            ConfigError: the URL names no store.
        """
        from data_stack.repository.default_storage import as_storage_connector

        return as_storage_connector(self.storage)

    def existing_connector(self, *, may_be_new: bool = False) -> StorageConnector:
        """The store for commands that only read; a folder must exist, so that a typo does not look like an empty store.

        Args:
            may_be_new: whether the folder of ``DATA_STACK_HOME`` may be missing.

        Raises:
            StorageError: the folder does not exist, or is a file.
            ConfigError: the URL names no store.
        """
        from data_stack.repository.default_storage import HOME, check_there

        connector = self.connector()
        check_there(connector, may_be_new=self.storage is None and (may_be_new or not os.environ.get(HOME)))
        return connector


#: Passes the Settings to a command.
pass_settings = click.make_pass_decorator(Settings, ensure=True)

dataset_options = click.option(
    "-O", "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the dataset; VALUE is JSON, or else text."
)


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


def locate(text: str) -> Any:
    """A path or URL as it is, or a place in a store, also of a plugin's scheme: ``mongodb://host/database/sets/train``."""
    from data_stack.io.location import location_of
    from data_stack.io.url import scheme_of, split_url
    from data_stack.repository.default_storage import as_storage_connector

    if "://" not in text or scheme_of(text) in ("file", "hdfs", "viewfs"):
        return text
    store, name = split_url(text)
    return location_of((as_storage_connector(store), name))


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
        os.environ["DATA_STACK_OFFLINE"] = "1"  # legacy factories read it too; main restores it
        return
    settings = context.ensure_object(Settings)
    setattr(settings, str(parameter.name), value)
    if parameter.name == "as_json" and settings.stdout is None:
        # Plugins may print; stdout must stay JSON.
        settings.stdout = sys.stdout
        context.with_resource(contextlib.redirect_stdout(sys.stderr))
    if parameter.name == "debug":
        logging.getLogger("data_stack").setLevel(logging.DEBUG)


def print_json(value: Any) -> None:
    """Write ``value`` on stdout, in ASCII for any locale."""
    settings = click.get_current_context().find_object(Settings)
    click.echo(json.dumps(value, indent=2, default=str), file=settings.stdout if settings else None)


def echo(text: str = "", *, err: bool = False) -> None:
    """Write lines on stdout or stderr, with control characters escaped."""
    click.echo(printable(text, keep="\n\t"), err=err)


def print_columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print a table whose first row is its header; the columns numbered in ``right`` are flush right."""
    for line in columns(rows, right):
        echo(line)
