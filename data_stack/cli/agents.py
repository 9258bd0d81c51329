"""The command for coding agents: mcp."""

from __future__ import annotations

import os

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.group import cli
from data_stack.cli.settings import OFFLINE, Settings


@cli.command()
@click.option(
    "--store",
    "named_stores",
    metavar="[NAME=]URL_OR_PATH",
    multiple=True,
    help="A store that the agent may read; several with names.  [default: the store of --storage]",
    shell_complete=complete_places,
)
@click.option(
    "--allow-download",
    is_flag=True,
    help="Let the agent use the network: to ask sources and catalogues, and to download.",
)
@click.option(
    "--allow-prepare",
    is_flag=True,
    help="Let the agent prepare datasets that are not ready, which writes into their store.",
)
@click.option(
    "--no-installed",
    is_flag=True,
    help="Hide the datasets of installed packages; no code of a plugin's dataset runs.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=1, max=3600),
    default=60,
    show_default=True,
    help="Maximum time of one call.",
)
@click.option(
    "--max-answer-bytes",
    type=click.IntRange(10_000, 10_000_000),
    default=50_000,
    show_default=True,
    help="Maximum size of the text of one answer.",
)
@click.option(
    "--max-samples",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number of samples in one answer.",
)
@click.option(
    "--max-samples-read",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Maximum number of samples that one call of statistics or diff reads.",
)
def mcp(
    settings: Settings,
    named_stores: tuple[str, ...],
    allow_download: bool,
    allow_prepare: bool,
    no_installed: bool,
    max_seconds: float,
    max_answer_bytes: int,
    max_samples: int,
    max_samples_read: int,
) -> None:
    """Serve datasets to a coding agent, for reading.

    For example: data-stack mcp --store /data/sets --store runs=s3://bucket/runs

    Speaks the Model Context Protocol on standard input and output: an agent starts this command
    and lists, describes, plans, samples and compares the datasets of installed packages and of
    these stores. It reads no other file, writes nothing and uses no network but that of the
    stores, unless an option here allows it. Needs the package mcp (extra: mcp).
    """
    if settings.as_json:
        raise click.UsageError("--json has no meaning here: the protocol is JSON already")

    from data_stack.agents.limits import Limits
    from data_stack.agents.permissions import Permissions
    from data_stack.agents.server import serve
    from data_stack.agents.stores import open_stores
    from data_stack.agents.tools import DatasetTools

    if not allow_download:
        # main() restores it.
        os.environ[OFFLINE] = "1"
    permissions = Permissions(
        installed=not no_installed, download=allow_download, prepare=allow_prepare
    )
    limits = Limits(
        max_seconds=max_seconds,
        max_answer_bytes=max_answer_bytes,
        max_samples=max_samples,
        max_samples_read=max_samples_read,
    )
    stores = open_stores(settings.storage, named_stores, may_be_new=allow_prepare)
    serve(DatasetTools(stores, permissions, limits), permissions, limits)
