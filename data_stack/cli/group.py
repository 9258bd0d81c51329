"""The root of the ``data-stack`` command, to which each file of commands adds its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from data_stack.cli.settings import Settings, common_options
from data_stack.util.suggestions import did_you_mean

_EXIT_CODES = """\b
Exit codes:
  0    done
  1    the data or the operation failed; see the message
  2    wrong usage, or an unknown dataset, split or option
  130  interrupted
"""

#: What other programs, and Python, call commands of ours.
_NAMES_OF_OTHERS = {
    "cat": "head",
    "clean": "gc",
    "compare": "diff",
    "cp": "copy",
    "create": "new",
    "delete": "remove",
    "describe": "info",
    "download": "prepare",
    "export": "convert",
    "init": "new",
    "load": "head",
    "ls": "list",
    "open": "browse",
    "rm": "remove",
    "sample": "head",
    "samples": "head",
    "size": "du",
    "statistics": "report --statistics",
    "stats": "report --statistics",
    "tail": "head",
    "test": "check",
    "view": "show",
}


class Command(click.Command):
    """A command that has the options of :class:`Settings`, and gets them as its first argument.

    Args:
        name: the name of the command in a command line.
        callback: runs the command; it may return the exit code.
        params: the arguments and options that only this command has.
        help: the docstring of the callback.
    """

    def __init__(
        self,
        name: str | None,
        callback: Callable[..., int | None],
        params: list[click.Parameter],
        help: str | None = None,  # noqa: A002  # the name that click gives it
    ) -> None:
        super().__init__(
            name,
            callback=click.make_pass_decorator(Settings, ensure=True)(callback),
            params=[*params, *common_options()],
            help=help,
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and note which one it is, for errors that name its options."""
        ctx.ensure_object(Settings).command = self
        return super().invoke(ctx)


class Group(click.Group):
    """Commands that have the options of :class:`Settings`, also before the name of the command.

    Args:
        name: the name of the group in a command line.
        callback: called before each command of the group; does nothing.
        params: the options that only this group has.
        help: the docstring of the callback.
        epilog: shown below the help.
        context_settings: see click.
    """

    command_class = Command

    #: Groups within this one have its class; click asks for the word ``type``.
    group_class = type

    def __init__(
        self,
        name: str | None,
        callback: Callable[..., None],
        params: list[click.Parameter],
        help: str | None = None,  # noqa: A002  # the name that click gives it
        epilog: str | None = None,
        context_settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            name,
            callback=callback,
            params=[*params, *common_options()],
            help=help,
            epilog=epilog,
            context_settings=context_settings,
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or suggest the nearest one, which click does from 8.4 on only."""
        name = args[0]
        is_name = name[:1].isalpha()
        is_completing = ctx.resilient_parsing
        if is_name and not is_completing and self.get_command(ctx, name) is None:
            known_names = self.list_commands(ctx)
            suggestion = did_you_mean(name, known_names)
            other_name = _NAMES_OF_OTHERS.get(name)
            if other_name is not None and other_name.split()[0] in known_names:
                suggestion = f"; here it is `{ctx.command_path} {other_name}`"
            ctx.fail(f"no command {name!r}{suggestion}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)
@click.version_option(
    package_name="lazy-data-stack",
    message=f"data-stack %(version)s, Python {sys.version.split()[0]}",
)
def cli() -> None:
    """List, prepare, show, verify and copy datasets."""


def name_of_option(command: click.Command, argument: str) -> str:
    """Return how a command takes an argument of Python, for messages.

    Args:
        command: the command that was called.
        argument: the name of the argument, such as ``"columns"``.

    Returns:
        The option of the command: ``"--columns"``, or ``"-O columns="`` if the command takes
        options of datasets by ``-O``. If it does not take the argument at all, ``"columns="``.
    """
    takes_dataset_options = False
    for parameter in command.params:
        if not isinstance(parameter, click.Option):
            continue
        if parameter.name == argument:
            return max(parameter.opts, key=len)
        if "-O" in parameter.opts:
            takes_dataset_options = True
    if takes_dataset_options:
        return f"-O {argument}="
    return f"{argument}="
