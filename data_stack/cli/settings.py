"""The options that every command has."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click

from data_stack.cli.completion import complete_places

if TYPE_CHECKING:
    from data_stack.io.storage_connectors import StorageConnector

#: The variable of the environment that ``--offline`` sets.
OFFLINE = "DATA_STACK_OFFLINE"

_STORAGE_HELP = (
    "The store: a folder, or a URL: mongodb://…, s3://…, file://…, a plugin's scheme.\n"
    "[env: DATA_STACK_HOME; default: the user's cache folder]"
)


@dataclass
class Settings:
    """The values of the options that every command has, and the command that runs.

    Attributes:
        storage: URL or path of the store; None: the default store.
        as_json: print JSON on stdout instead of text.
        debug: show tracebacks and all log messages.
        stdout: receives the JSON; all other output then goes to stderr.
        command: the command that runs, for messages that name its options.
    """

    storage: str | None = None
    as_json: bool = False
    debug: bool = False
    stdout: TextIO | None = None
    command: click.Command | None = None

    def connector(self) -> StorageConnector:
        """Return the chosen store, or the default store; nothing is created or contacted yet.

        Raises:
            ConfigError: the URL is not that of a store.
        """
        from data_stack.repository.default_storage import as_storage_connector

        return as_storage_connector(self.storage)

    def existing_connector(self, *, may_be_new: bool = False) -> StorageConnector:
        """Return the store for commands that only read.

        The folder of a store must exist, so that a typo does not look like an empty store. The
        default folder of the user need not exist, because the first preparation creates it.

        Args:
            may_be_new: whether the folder of ``DATA_STACK_HOME`` may be missing too.

        Raises:
            StorageError: the folder does not exist, or is a file.
            ConfigError: the URL is not that of a store.
        """
        from data_stack.repository.default_storage import HOME, check_there

        connector = self.connector()
        is_users_default = self.storage is None and not os.environ.get(HOME)
        is_home_that_may_be_new = self.storage is None and may_be_new
        check_there(connector, may_be_new=is_users_default or is_home_that_may_be_new)
        return connector


def common_options() -> list[click.Parameter]:
    """Return the options of :class:`Settings`, which stand before or after a command's name.

    If an option is given twice, the last one counts. The default of every option is None, so that
    an option before the command's name is kept if the command does not get it again.
    """
    return [
        click.Option(
            ["--storage"],
            metavar="URL_OR_PATH",
            help=_STORAGE_HELP,
            shell_complete=complete_places,
            expose_value=False,
            callback=_set_storage,
        ),
        click.Option(
            ["--json", "as_json"],
            is_flag=True,
            default=None,
            help="Print JSON on standard output.",
            expose_value=False,
            callback=_set_json,
        ),
        click.Option(
            ["--offline"],
            is_flag=True,
            default=None,
            help="Use no network. [env: DATA_STACK_OFFLINE]",
            expose_value=False,
            callback=_set_offline,
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            default=None,
            help="Show tracebacks and all log messages.",
            expose_value=False,
            callback=_set_debug,
        ),
    ]


def _set_storage(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Settings).storage = value


def _set_json(context: click.Context, parameter: click.Parameter, value: bool | None) -> None:
    if value is None:
        return
    settings = context.ensure_object(Settings)
    settings.as_json = value
    if settings.stdout is None:
        # Plugins may print; stdout must stay JSON.
        settings.stdout = sys.stdout
        context.with_resource(contextlib.redirect_stdout(sys.stderr))


def _set_offline(context: click.Context, parameter: click.Parameter, value: bool | None) -> None:
    if value is not None:
        # Legacy factories read this variable, too; main() restores it.
        os.environ[OFFLINE] = "1"


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool | None) -> None:
    if value is None:
        return
    context.ensure_object(Settings).debug = value
    logging.getLogger("data_stack").setLevel(logging.DEBUG)
