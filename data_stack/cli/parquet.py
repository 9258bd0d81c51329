"""The commands on Parquet datasets: parquet info, parquet generate-metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.group import cli
from data_stack.cli.output import print_result, whole_table
from data_stack.cli.settings import Settings
from data_stack.show.markup import Facts

_source_argument = click.argument("source", metavar="SRC", shell_complete=complete_places)


@cli.group("parquet")
def parquet() -> None:
    """Describe Parquet datasets, and rebuild their metadata.

    SRC is a folder, a file or a URL (mongodb://HOST/DATABASE/NAME, s3://BUCKET/NAME, hdfs://…).
    """


@parquet.command("info")
@_source_argument
def info(settings: Settings, source: str) -> None:
    """Describe a Parquet dataset; reads only footers.

    Prints the schema and its origin, files, row groups and sizes.
    """
    from data_stack.formats.parquet.description import describe_dataset

    description = describe_dataset(_dataset_at(source))
    fields = description["fields"]

    facts_of_dataset = dict(description)
    del facts_of_dataset["fields"]  # shown as a table
    facts_of_dataset["schema"] = description["schema"]["name"]
    table = None
    if fields:
        rows = [[_as_text(value) for value in facts.values()] for facts in fields]
        table = whole_table(tuple(fields[0]), rows)
    print_result(settings, description, _as_facts(facts_of_dataset), table)


@parquet.command("generate-metadata")
@_source_argument
@click.option(
    "--petastorm",
    is_flag=True,
    help="Also write Petastorm's metadata; existing metadata is always updated.",
)
def generate(settings: Settings, source: str, petastorm: bool) -> None:
    """Rebuild the manifest of a Parquet dataset from the footers of its files.

    Use it for datasets that other tools wrote or appended to. It reads no rows and needs no Spark.
    """
    from data_stack.formats.parquet.metadata_generation import generate_metadata

    manifest = generate_metadata(_dataset_at(source), petastorm=petastorm)
    facts = {
        "n_files": len(manifest.files),
        "n_row_groups": sum(len(file.row_groups) for file in manifest.files),
        "n_rows": manifest.n_rows,
    }
    print_result(settings, facts, _as_facts(facts))


def _dataset_at(text: str) -> Any:
    """Return the folder of a store that a URL names.

    Paths, and URLs that Arrow opens itself, are returned unchanged.
    """
    from data_stack.io.location import location_of
    from data_stack.io.url import StorageURL

    url = StorageURL.parse(text)
    if url is None or url.scheme in ("file", "hdfs", "viewfs"):
        return text
    return location_of(url).as_folder()


def _as_facts(facts: Mapping[str, Any]) -> Facts:
    return Facts([(name, _as_text(value)) for name, value in facts.items()])


def _as_text(value: Any) -> str:
    """Return a fact as text: a list with commas, a number with separators."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    is_number = type(value) is int  # not a bool, which is an int too
    return f"{value:,}" if is_number else str(value)
