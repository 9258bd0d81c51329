"""Completion in shells: the command that prints the script, and what is completed. No plugin is imported."""

from __future__ import annotations

import ast
import contextlib
import re
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

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
    """Print the script that completes commands, options, datasets, splits and stores."""
    made = get_completion_class(shell)
    if made is not None:  # click has all three
        click.echo(made(context.find_root().command, {}, "data-stack", "_DATA_STACK_COMPLETE").source())


def complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The installed datasets whose names begin so."""
    return [CompletionItem(name) for name in _installed() if name.startswith(incomplete)]


def complete_splits(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The splits of the dataset NAME that begin so, as its source file declares them."""
    name = context.params.get("name") or next(iter(context.args), "")  # click stops parsing at an option without its value
    entry_point = _installed().get(name, "")
    with contextlib.suppress(OSError, SyntaxError, TypeError, ValueError, RecursionError):
        return [CompletionItem(split) for split in _read_splits(entry_point) if split.startswith(incomplete)]
    return []


def complete_places(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders, and the schemes of stores."""
    schemes = [scheme for scheme in _SCHEMES if incomplete and scheme.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *map(CompletionItem, schemes)]


def complete_sources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What :func:`complete_places` and :func:`complete_names` find."""
    return complete_places(context, parameter, incomplete) + complete_names(context, parameter, incomplete)


def _installed() -> dict[str, str]:
    """The names of the installed datasets, and where their factories are."""
    from data_stack.plugins.installed import InstalledPlugins, read_disabled

    installed = InstalledPlugins.read(read_disabled())
    return {name: installed.providers(name)[0].entry_point for name in installed.dataset_names}


def _read_splits(entry_point: str) -> tuple[str, ...]:
    """The value of ``splits`` in the source of a class, ``"package.module:Class"``; () if it is not written there."""
    module, _, name = entry_point.partition(":")
    package, *parts = module.split(".")
    spec = find_spec(package) if package else None
    for part in parts:  # find_spec(module) would import the packages above it
        package = f"{package}.{part}"
        spec = None if spec is None else PathFinder.find_spec(package, spec.submodule_search_locations)
    if spec is None or spec.origin is None:
        return ()
    for each in ast.parse(Path(spec.origin).read_bytes()).body:
        for line in each.body if isinstance(each, ast.ClassDef) and each.name == name else ():
            if isinstance(line, (ast.Assign, ast.AnnAssign)) and line.value and re.match(r"splits\b", ast.unparse(line)):
                return tuple(map(str, ast.literal_eval(line.value)))
    return ()
