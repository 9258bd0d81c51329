"""The commands that write datasets for others: publish, croissant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from data_stack.cli.dataset_options import dataset_options
from data_stack.cli.group import cli
from data_stack.cli.names import name_argument
from data_stack.cli.output import echo, print_result
from data_stack.cli.settings import Settings
from data_stack.util.json_text import json_text


@cli.command()
@name_argument
@click.argument("destination", metavar="DESTINATION")
def publish(settings: Settings, name: str, destination: str) -> None:
    """Write a dataset as plain files, which data_stack.load reads lazily by their URL.

    For example: data-stack publish digits /srv/www/digits

    DESTINATION is a folder, such as that of a web server, or the URL of one in a store. Prepares
    the dataset first if it is not ready. Published files never change; an interrupted command
    resumes. Prints the digest that pins the dataset; append it to the URL after a #.
    """
    from data_stack.stores.publishing import publish_dataset

    published = publish_dataset(name, destination, settings.connector())
    facts = {
        "name": name,
        "destination": destination,
        "pin": published.pin,
        "documents": published.documents,
        "missing_documents": published.missing_documents,
    }
    print_result(
        settings,
        facts,
        f"{name} is published in {destination}; load it by its URL, pinned by #{published.pin}",
        *published.explain_missing_documents(),
    )


@cli.command()
@name_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The file to write.  [default: standard output]",
)
@dataset_options
def croissant(settings: Settings, name: str, output: str | None, options: dict[str, Any]) -> None:
    """Describe a dataset in Croissant, the vocabulary of MLCommons.

    Writes JSON with the license, sources, splits, and, if the dataset is prepared, its files and
    columns.
    """
    from data_stack.repository.croissant import to_croissant

    document = to_croissant(name, settings.existing_connector(may_be_new=True), **options)
    text = json_text(document)
    if output is None:
        click.echo(text)
        return
    Path(output).write_text(text + "\n", encoding="utf-8")
    if "recordSet" not in document:
        echo(
            f"{output} does not describe the columns, because the dataset is not prepared: "
            f"data-stack prepare {name}",
            err=True,
        )
