"""The options and the output of every command."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

import click

from data_stack.cli.completion import complete_places
from data_stack.exception import ConfigError
from data_stack.show.markup import Block, Facts, Heading, Paragraph, Table, as_text, printable

if TYPE_CHECKING:
    from rich.console import Console

    from data_stack.io.storage_connectors import StorageConnector

_STORAGE_HELP = """The store: a folder, or a URL: mongodb://…, s3://…, file://…, a plugin's scheme.
[env: DATA_STACK_HOME; default: the user's cache folder]"""


#: The options that set an environment variable.
SWITCHES = {"offline": "DATA_STACK_OFFLINE", "no_color": "NO_COLOR"}

#: Colours of words in tables.
_STYLES = {"FAULT": "red", "DIFFERS": "red", "ok": "green", "broken": "red", "blocked": "yellow", "shadowed": "yellow"}

#: Rich's description of the lines of a table: one below the header.
_UNDERLINE = "    \n    \n -  \n" + 5 * "    \n"

_Command = TypeVar("_Command", bound=Callable[..., Any])


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
        check_there(connector, may_be_new=self.storage is None and (may_be_new or not os.environ.get(HOME)))
        return connector


#: Passes the Settings to a command; :func:`takes_settings` also adds their options.
pass_settings = click.make_pass_decorator(Settings, ensure=True)

dataset_options = click.option(
    "-O", "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the dataset; VALUE is JSON, or else text."
)


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse options ``KEY=VALUE``: VALUE is JSON (``true``, ``3``, ``[1, 2]``), or else text.

    Raises:
        ConfigError: an option lacks ``=`` or the key.
    """
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"an option must be KEY=VALUE, got {pair!r:.80}")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def is_place(settings: Settings, text: str, options: Mapping[str, Any]) -> bool:
    """Whether a text is a path or URL, not the name of an installed dataset.

    Raises:
        UsageError: it is a path or URL, and options for a dataset are given.
    """
    found = "://" in text or os.path.exists(os.path.expanduser(text))
    if found and (options or settings.storage is not None):
        raise click.UsageError(f"--storage and -O require an installed dataset, but {text!r} is a file, folder or URL")
    return found


def common_options(command: _Command) -> _Command:
    """Add the options of :class:`Settings` to a command or group; the option nearest to the end of the line wins."""
    for names, options in (
        (("--no-color",), {"is_flag": True, "default": None, "help": "Use no colours. [env: NO_COLOR]"}),
        (("--debug",), {"is_flag": True, "default": None, "help": "Show tracebacks and all log messages."}),
        (("--offline",), {"is_flag": True, "default": None, "help": "Use no network. [env: DATA_STACK_OFFLINE]"}),
        (("--json", "as_json"), {"is_flag": True, "default": None, "help": "Print JSON on standard output."}),
        (("--storage",), {"metavar": "URL_OR_PATH", "help": _STORAGE_HELP, "shell_complete": complete_places}),
    ):
        command = click.option(*names, expose_value=False, callback=_take, **options)(command)
    return command


def takes_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :class:`Settings` to a command, and pass the settings as its first argument."""
    return common_options(pass_settings(command))


def _take(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is None:
        return
    if parameter.name in SWITCHES:
        os.environ[SWITCHES[parameter.name]] = "1"  # also read by legacy factories and rich; main restores them
        return
    settings = context.ensure_object(Settings)
    setattr(settings, str(parameter.name), value)
    if parameter.name == "as_json" and settings.stdout is None:
        # Plugins may print; stdout must stay JSON.
        settings.stdout = sys.stdout
        context.with_resource(contextlib.redirect_stdout(sys.stderr))
    if parameter.name == "debug":
        logging.getLogger("data_stack").setLevel(logging.DEBUG)


def answer(settings: Settings, value: Any, *blocks: Block | str) -> None:
    """Write a result: ``value`` as JSON, in ASCII for any locale, or ``blocks`` of text, facts and tables."""
    if settings.as_json:
        click.echo(json.dumps(value, indent=2, default=str), file=settings.stdout)
    else:
        print_blocks([Paragraph(block) if isinstance(block, str) else block for block in blocks])


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Table:
    """A table with all of its rows; the columns numbered in ``right`` are flush right."""
    return Table(header, rows, frozenset(right), max_rows=sys.maxsize)


def uses_colours(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal with colours that the user has not switched off."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def echo(text: str = "", *, err: bool = False, style: str | None = None) -> None:
    """Write lines on stdout or stderr, with control characters escaped; ``style`` is a colour, for terminals."""
    shown = printable(text, keep="\n\t")
    has_style = style is not None and uses_colours(sys.stderr if err else sys.stdout)
    click.echo(click.style(shown, fg=style) if has_style else shown, err=err, color=has_style)


def terminal() -> Console | None:
    """Standard output if it is a terminal; None for a pipe or a file, which receive plain lines of any length."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    colours: Literal["auto"] | None = "auto" if uses_colours(sys.stdout) else None
    width = shutil.get_terminal_size().columns
    return Console(markup=False, highlight=False, force_jupyter=False, force_terminal=True, color_system=colours, width=width)


def print_blocks(blocks: Sequence[Block]) -> None:
    """Print a document; on a terminal its paragraphs and tables fit the width."""
    console = terminal()
    if console is None:
        echo(as_text(blocks))
        return
    from rich.text import Text

    for number, block in enumerate(blocks):
        if number:
            echo()
        if isinstance(block, Facts):
            _print_grid(console, block.rows)
        elif isinstance(block, Table):
            _print_grid(console, [block.header, *block.limit_rows()], block.right, has_header=True)
        else:
            console.print(Text(as_text([block]), "bold" if isinstance(block, Heading) else ""))


def _print_grid(
    console: Console, rows: Sequence[Sequence[str]], right: Collection[int] = (), *, has_header: bool = False
) -> None:
    from rich.box import Box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=Box(_UNDERLINE), show_header=has_header, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(next(iter(rows), ())):
        style = "" if has_header or number else "bold"
        justify: Literal["left", "right"] = "right" if number in right else "left"
        grid.add_column(Text(printable(name)), style=style, justify=justify, overflow="fold")
    for row in rows[has_header:]:
        grid.add_row(*(Text(printable(cell), _STYLES.get(cell, "")) for cell in row))
    console.print(grid)
