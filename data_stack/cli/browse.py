"""The command ``data-stack browse``."""

from __future__ import annotations

import os

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.settings import Settings, answer, dataset_options, is_place, parse_options, takes_settings


@click.command("browse")
@click.argument("source", metavar="NAME | PATH | URL", shell_complete=complete_places)
@click.option("--split", metavar="SPLIT", help="Only this split.  [default: all, side by side]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="The port.  [default: any free one]")
@click.option("--no-open", is_flag=True, help="Print the URL only.")
@dataset_options
@takes_settings
def browse(settings: Settings, source: str, split: str | None, port: int, no_open: bool, options: tuple[str, ...]) -> None:
    """Show a dataset in the web browser.

    For example: data-stack browse mnist

    The source is an installed dataset, which is prepared first if it is not ready, or a folder, a file or a URL in a format
    that data-stack convert reads: records, Parquet, WebDataset, images, HDF5 …; a folder of such folders opens as splits.

    The page is served on 127.0.0.1, requires the token in its URL, and is read-only. Ctrl-C ends it.
    """
    from data_stack.browse.browser import Browser
    from data_stack.browse.server import serve
    from data_stack.repository.repository import default_repository

    def announce(url: str) -> None:
        answer(settings, {"url": url}, f"{url}\nCtrl-C ends it.")

    given = parse_options(options)
    is_file, repository = is_place(settings, source, given), default_repository()
    about = repository.describe(source)
    loaded = repository.load(source, split, settings.connector(), **given)
    splits = loaded if isinstance(loaded, dict) else {split or "all": loaded}
    for each in splits.values():
        if hasattr(each, "limit_cache"):  # Parquet; a page needs few row groups
            each.limit_cache(16 << 20)
    title = os.path.basename(source.rstrip("/")) if is_file else about.name
    browser = Browser(title or source, splits, {} if is_file else dict(about.facts()))
    serve(browser, port=port, opens=not no_open, announce=announce)
