"""Completes the arguments of a command line in the shell."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the installed datasets whose names begin with ``incomplete``."""
    from data_stack.plugins.installed import InstalledPlugins, read_disabled

    names = InstalledPlugins(read_disabled()).dataset_names
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_places(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete a file or folder."""
    return [CompletionItem(incomplete, type="file")]
