"""The command ``data-stack diff``: what differs between two datasets."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings, common_options, echo, pass_settings, print_blocks, print_json

__all__ = ["diff"]


@click.command()
@click.argument("first", metavar="FIRST", shell_complete=complete_names)
@click.argument("second", metavar="SECOND", shell_complete=complete_names)
@click.option("--key", metavar="COLUMN", help="A column that identifies samples: its name, or its number.")
@click.option("--other-storage", metavar="URL", help="The store of SECOND.  [default: that of FIRST]")
@click.option("--html", "page", metavar="FILE", help="Also write a page with samples.")
@common_options
@pass_settings
@click.pass_context
def diff(
    context: click.Context,
    settings: Settings,
    first: str,
    second: str,
    key: str | None,
    other_storage: str | None,
    page: str | None,
) -> None:
    """Compare two datasets, sample by sample.

    FIRST and SECOND are names, such as digits@1.0.0. Lists samples that were added, removed, moved to another split,
    relabelled and, with --key, changed. Exits with 1 if they differ.
    """
    from data_stack.display.difference import diff as compare
    from data_stack.repository.repository import default_repository

    def load(name: str, storage: Any) -> Any:
        return default_repository().load(name, None, storage)

    column = int(key) if key is not None and key.lstrip("-").isdigit() else key
    connector = settings.connector()
    found = compare(load(first, connector), load(second, other_storage or connector), key=column)
    if page is not None:
        head = f'<head><meta charset="utf-8"><title>{html.escape(f"{first} and {second}")}</title></head>'
        Path(page).write_text(f"<!DOCTYPE html>\n<html>{head}<body>\n{found.to_html()}\n</body></html>\n", encoding="utf-8")
    if settings.as_json:
        print_json(found.to_dict())
    else:
        print_blocks(found.document())
        echo()
        echo("the datasets differ" if found.differs else "the datasets are equal")
    context.exit(1 if found.differs else 0)
