"""The options, the completion, the output of every command."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.shell_completion import CompletionItem

from data_stack.exception import ConfigError
from data_stack.show.markup import Block, Paragraph, Table, as_text, printable
from data_stack.util.suggestions import did_you_mean

if TYPE_CHECKING:
    from data_stack.io.storage_connectors import StorageConnector
    from data_stack.repository.repository import DatasetRepository


def complete_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The installed datasets whose names begin with ``incomplete``."""
    from data_stack.plugins.installed import InstalledPlugins, read_disabled

    names = InstalledPlugins(read_disabled()).dataset_names
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_places(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files and folders."""
    return [CompletionItem(incomplete, type="file")]


name_argument = click.argument("name", metavar="NAME", shell_complete=complete_names)

#: Set by ``--offline``.
OFFLINE = "DATA_STACK_OFFLINE"


@dataclass
class Settings:
    """The options that every command has.

    Attributes:
        storage: URL or path of the store; None: the default store.
        as_json: print JSON on stdout instead of text.
        debug: show tracebacks and all log messages.
        stdout: receives the JSON; all other output then goes to stderr.
    """

    storage: str | None = None
    as_json: bool = False
    debug: bool = False
    stdout: TextIO | None = None

    def connector(self) -> StorageConnector:
        """The chosen store, or the default store; nothing is created or contacted yet.

        Raises:
            ConfigError: the URL is not that of a store.
        """
        from data_stack.repository.default_storage import as_storage_connector

        return as_storage_connector(self.storage)

    def existing_connector(self, *, may_be_new: bool = False) -> StorageConnector:
        """The store for commands that only read; a folder must exist, so that a typo does not look like an empty store.

        Args:
            may_be_new: whether the folder of ``DATA_STACK_HOME`` may be missing.

        Raises:
            StorageError: the folder does not exist, or is a file.
            ConfigError: the URL is not that of a store.
        """
        from data_stack.repository.default_storage import HOME, check_there

        connector = self.connector()
        check_there(
            connector, may_be_new=self.storage is None and (may_be_new or not os.environ.get(HOME))
        )
        return connector


def repository() -> DatasetRepository:
    """The repository of ``data_stack.load``."""
    from data_stack.repository.repository import default_repository

    return default_repository()


def _take(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is None:
        return
    if parameter.name == "offline":
        os.environ[OFFLINE] = "1"  # also read by legacy factories; main restores it
        return
    settings = context.ensure_object(Settings)
    setattr(settings, str(parameter.name), value)
    if parameter.name == "as_json" and settings.stdout is None:
        # Plugins may print; stdout must stay JSON.
        settings.stdout = sys.stdout
        context.with_resource(contextlib.redirect_stdout(sys.stderr))
    if parameter.name == "debug":
        logging.getLogger("data_stack").setLevel(logging.DEBUG)


def _common_options() -> list[click.Parameter]:
    """The options of :class:`Settings`; the one nearest to the end of the line wins."""
    store = "The store: a folder, or a URL: mongodb://…, s3://…, file://…, a plugin's scheme.\n"
    store += "[env: DATA_STACK_HOME; default: the user's cache folder]"
    take: dict[str, Any] = {"expose_value": False, "callback": _take}
    flag = {**take, "is_flag": True, "default": None}
    return [
        click.Option(
            ["--storage"], metavar="URL_OR_PATH", help=store, shell_complete=complete_places, **take
        ),
        click.Option(["--json", "as_json"], help="Print JSON on standard output.", **flag),
        click.Option(["--offline"], help="Use no network. [env: DATA_STACK_OFFLINE]", **flag),
        click.Option(["--debug"], help="Show tracebacks and all log messages.", **flag),
    ]


class Command(click.Command):
    """A command that has the options of :class:`Settings`, and gets them as its first argument."""

    def __init__(self, callback: Any, params: list[click.Parameter], **options: Any) -> None:
        run = click.make_pass_decorator(Settings, ensure=True)(callback)
        super().__init__(callback=run, params=[*params, *_common_options()], **options)


class Group(click.Group):
    """Commands that have the options of :class:`Settings`, also before the name of the command."""

    command_class = Command
    group_class = type

    def __init__(self, params: list[click.Parameter], **options: Any) -> None:
        super().__init__(params=[*params, *_common_options()], **options)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command, which click does from 8.4 on only."""
        if (
            args[0][:1].isalpha()
            and self.get_command(ctx, args[0]) is None
            and not ctx.resilient_parsing
        ):
            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


_EXIT_CODES = """\b
Exit codes:
  0    done
  1    the data or the operation failed; see the message
  2    wrong usage, or an unknown dataset, split or option
  130  interrupted
"""


@click.group(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES
)
@click.version_option(
    package_name="lazy-data-stack",
    message=f"data-stack %(version)s, Python {sys.version.split()[0]}",
)
def cli() -> None:
    """List, prepare, show, verify and copy datasets."""


#: Arguments of ``load`` and other functions that are not the dataset's, and how a command line gives them.
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
    """Options by name; a VALUE is JSON (``true``, ``3``, ``[1, 2]``), or else text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"an option must be KEY=VALUE, got {pair!r:.80}")
        if key in _NOT_OPTIONS:
            raise ConfigError(
                f"{key!r} is no option of a dataset, so -O cannot set it: {_NOT_OPTIONS[key]}"
            )
        options[key] = value
        with contextlib.suppress(ValueError):
            options[key] = json.loads(value)
    return options


_OPTION_HELP = "An option of the dataset; VALUE is JSON, or else text."
dataset_options = click.option(
    *("-O", "--option", "options"),
    multiple=True,
    metavar="KEY=VALUE",
    help=_OPTION_HELP,
    callback=_parse_options,
)


def find_place(settings: Settings, text: str, options: Mapping[str, Any]) -> str | Path | None:
    """The path or URL that a text names; None for the name of a dataset.

    As in :func:`data_stack.load`, no file or folder hides a dataset: ``digits`` is the dataset, ``./digits`` and ``digits/`` are
    the folder. A file or folder that exists, such as ``train.h5``, needs no ``./`` where no dataset has its name.

    Raises:
        UsageError: it is a path or URL, and options for a dataset are given.
    """
    from data_stack.repository.dataset_names import is_place

    path = os.path.expanduser(text)
    is_known = is_place(text) or (os.path.exists(path) and text not in repository().list())
    if not is_known:
        return None
    if options or settings.storage is not None:
        raise click.UsageError(
            f"--storage and -O require an installed dataset, but {text!r} is a file, folder or URL"
        )
    return text if "://" in text else Path(path)


def answer(settings: Settings, value: Any, *blocks: Block | str | None) -> None:
    """Write a result: ``value`` as JSON, in ASCII for any locale, or those of ``blocks`` that are neither None nor empty."""
    if settings.as_json:
        click.echo(json.dumps(value, indent=2, default=str), file=settings.stdout)
    else:
        echo(
            as_text(
                [Paragraph(block) if isinstance(block, str) else block for block in blocks if block]
            )
        )


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> Table:
    """A table with all of its rows; the columns numbered in ``right`` are flush right."""
    return Table(header, rows, frozenset(right), max_rows=sys.maxsize)


def echo(text: str = "", *, err: bool = False) -> None:
    """Write lines on stdout or stderr, with control characters escaped."""
    click.echo(printable(text, keep="\n\t"), err=err)
