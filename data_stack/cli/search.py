"""The command ``data-stack search``: installed datasets by words that describe them."""

from __future__ import annotations

from dataclasses import asdict

import click

from data_stack.cli.settings import Settings, common_options, echo, pass_settings, print_columns, print_json

__all__ = ["search"]


@click.command()
@click.argument("terms", metavar="TERM...", nargs=-1, required=True)
@common_options
@pass_settings
def search(settings: Settings, terms: tuple[str, ...]) -> None:
    """Search the installed datasets.

    For example: data-stack search handwritten

    Finds the datasets whose name, title, description, keywords, licence and classes contain every TERM, also slightly
    misspelled; best match first. Imports the plugins.
    """
    from data_stack.repository.search import search_datasets

    found = search_datasets(" ".join(terms))
    if settings.as_json:
        print_json([asdict(each) for each in found])
        return
    if not found:
        echo("no installed dataset matches; `data-stack list` shows all")
        return
    print_columns(
        [
            ("name", "title", "license", "found in"),
            *(
                (
                    each.description.name,
                    each.description.description.partition("\n")[0] or "-",
                    each.description.license or "-",
                    ", ".join(each.parts),
                )
                for each in found
            ),
        ]
    )
