"""The command ``data-stack croissant``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings, common_options, dataset_options, echo, parse_options, pass_settings


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_names)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="The file to write.  [default: standard output]"
)
@dataset_options
@common_options
@pass_settings
def croissant(settings: Settings, name: str, output: str | None, options: tuple[str, ...]) -> None:
    """Describe a dataset in Croissant, the vocabulary of MLCommons.

    Writes JSON with the licence, sources, splits, and, if the dataset is prepared, its files and columns.
    """
    from data_stack.repository.croissant.writing import to_croissant

    document = to_croissant(name, settings.existing_connector(may_be_new=True), **parse_options(options))
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if output is None:
        click.echo(text)
        return
    Path(output).write_text(text + "\n", encoding="utf-8")
    if "recordSet" not in document:
        echo(f"{output} does not describe the columns, because the dataset is not prepared: data-stack prepare {name}", err=True)
