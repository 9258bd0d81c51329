"""Completion of values in shells; it imports no plugin."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The installed datasets whose names begin with ``incomplete``."""
    from data_stack.plugins.installed import InstalledPlugins, read_disabled

    names = InstalledPlugins.read(read_disabled()).dataset_names
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_places(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders."""
    return [CompletionItem(incomplete, type="file")]
