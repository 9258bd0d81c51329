"""The command ``data-stack search``."""

from __future__ import annotations

from dataclasses import asdict

import click

from data_stack.cli.settings import Settings, answer, table, takes_settings
from data_stack.show.markup import size_text

_NOTHING = "no installed dataset matches; `data-stack list` shows all"


@click.command()
@click.argument("terms", metavar="TERM...", nargs=-1, required=True)
@click.option("--catalogue", metavar="SCHEME", help="Search a catalogue, such as hf, instead; needs the network.")
@click.option("--catalogues", is_flag=True, help="Search all installed catalogues instead.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of datasets of a catalogue."
)
@takes_settings
def search(settings: Settings, terms: tuple[str, ...], catalogue: str | None, catalogues: bool, limit: int) -> None:
    """Search the installed datasets, or catalogues.

    For example: data-stack search handwritten

    Finds the datasets whose name, title, description, keywords, licence and classes contain every TERM, even if slightly
    misspelled; best matches first. Imports the plugins. Without --catalogue or --catalogues it uses no network.
    """
    if catalogue is not None or catalogues:
        _search_catalogues(settings, " ".join(terms), catalogue, limit)
        return
    from data_stack.repository.search import search_datasets

    found = search_datasets(" ".join(terms))
    rows = [
        (
            each.description.name,
            each.description.description.partition("\n")[0] or "-",
            each.description.license or "-",
            ", ".join(each.parts),
        )
        for each in found
    ]
    shown = table(("name", "title", "license", "found in"), rows) if found else _NOTHING
    answer(settings, [asdict(each) for each in found], shown)


def _search_catalogues(settings: Settings, text: str, scheme: str | None, limit: int) -> None:
    from data_stack.repository.catalogues import search_catalogues

    found = search_catalogues(text, scheme, limit=limit)
    rows = [(each.name, each.title or "-", each.license or "-", size_text(each.size)) for each in found]
    answer(settings, [asdict(each) for each in found], table(("name", "title", "license", "size"), rows, right=(3,)))
