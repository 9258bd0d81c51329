"""The command ``data-stack diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings, answer, takes_settings
from data_stack.show.markup import whole_page


@click.command()
@click.argument("first", metavar="FIRST", shell_complete=complete_names)
@click.argument("second", metavar="SECOND", shell_complete=complete_names)
@click.option("--key", metavar="COLUMN", help="A column that identifies samples: its name, or its number.")
@click.option("--other-storage", metavar="URL", help="The store of SECOND.  [default: the store of FIRST]")
@click.option("--html", "page", metavar="FILE", help="Also write a page with samples.")
@takes_settings
def diff(settings: Settings, first: str, second: str, key: str | None, other_storage: str | None, page: str | None) -> int:
    """Compare two datasets, sample by sample.

    FIRST and SECOND are names, such as digits@1.0.0. Lists samples that were added, removed, moved to another split,
    relabelled and, with --key, changed. Exits with 1 if they differ.
    """
    from data_stack.repository.repository import default_repository
    from data_stack.reproduce.difference import diff as compare

    def load(name: str, storage: Any) -> Any:
        return default_repository().load(name, None, storage)

    column = int(key) if key is not None and key.lstrip("-").isdigit() else key
    connector = settings.connector()
    found = compare(load(first, connector), load(second, other_storage or connector), key=column)
    if page is not None:
        Path(page).write_text(whole_page(f"{first} and {second}", found.to_html()), encoding="utf-8")
    verdict = "the datasets differ" if found.differs else "the datasets are equal"
    answer(settings, found.to_dict(), *found.document(), verdict)
    return int(found.differs)
