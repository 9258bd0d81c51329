"""Completion in shells; it imports no plugin."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

_SCHEMES = ("file://", "mongodb://", "s3://", "gs://", "az://", "sftp://", "hdfs://")

_SETUP = """\b
bash: add to ~/.bashrc  eval "$(data-stack completion bash)"
zsh:  add to ~/.zshrc   eval "$(data-stack completion zsh)"
fish: add to ~/.config/fish/config.fish  data-stack completion fish | source
"""


@click.command(epilog=_SETUP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, datasets and stores."""
    made = get_completion_class(shell)
    if made is not None:  # click has all three
        click.echo(made(context.find_root().command, {}, "data-stack", "_DATA_STACK_COMPLETE").source())


def complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The installed datasets whose names begin with ``incomplete``."""
    from data_stack.plugins.installed import InstalledPlugins, read_disabled

    names = InstalledPlugins.read(read_disabled()).dataset_names
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_places(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders, and the schemes of stores."""
    schemes = [scheme for scheme in _SCHEMES if incomplete and scheme.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *map(CompletionItem, schemes)]


def complete_sources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, schemes of stores and installed datasets."""
    return complete_places(context, parameter, incomplete) + complete_names(context, parameter, incomplete)
