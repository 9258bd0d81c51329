"""The command ``data-stack publish``."""

from __future__ import annotations

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings, answer, takes_settings


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_names)
@click.argument("destination", metavar="DESTINATION")
@takes_settings
def publish(settings: Settings, name: str, destination: str) -> None:
    """Write a dataset as plain files, which data_stack.load reads lazily from a web server, a store or a folder.

    For example: data-stack publish digits /srv/www/digits

    Prepares the dataset first if it is not ready. Published files never change; an interrupted command resumes.
    Prints the digest that pins the dataset; append it to the URL after a #.
    """
    from data_stack.stores.publishing import publish as publish_dataset

    pin = publish_dataset(name, destination, settings.connector())
    facts = {"name": name, "destination": destination, "pin": pin}
    answer(settings, facts, f"{name} is published in {destination}; load it by its URL, pinned by #{pin}")
