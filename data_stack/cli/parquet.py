"""The commands ``data-stack parquet …``."""

from __future__ import annotations

from typing import Any

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.settings import Settings, answer, common_options, table, takes_settings
from data_stack.show.markup import Facts

__all__ = ["parquet"]

_source = click.argument("source", metavar="SRC", shell_complete=complete_places)


@click.group("parquet")
@common_options
def parquet() -> None:
    """Describe Parquet datasets, and rebuild their metadata.

    SRC is a folder, a file or a URL (mongodb://HOST/DATABASE/NAME, s3://BUCKET/NAME, hdfs://…).
    """


@parquet.command("info")
@_source
@takes_settings
def info(settings: Settings, source: str) -> None:
    """Describe a Parquet dataset; reads only footers.

    Prints the schema and its origin, files, row groups and sizes.
    """
    from data_stack.cli.parquet_facts import facts_of

    facts = facts_of(_folder(source))
    fields, schema = facts["fields"], facts["schema"]
    others = {key: value for key, value in facts.items() if key != "fields"} | {"schema": schema["name"]}
    rows = [tuple(map(_text, field.values())) for field in fields]
    answer(settings, facts, _facts(others), *([table(tuple(fields[0]), rows)] if fields else []))


@parquet.command("generate-metadata")
@_source
@click.option("--petastorm", is_flag=True, help="Also write Petastorm's metadata; existing metadata is always updated.")
@takes_settings
def generate(settings: Settings, source: str, petastorm: bool) -> None:
    """Rebuild the manifest of a Parquet dataset from the footers of its files.

    Use it for datasets that other tools wrote or appended to. It reads no rows and needs no Spark.
    """
    from data_stack.formats.parquet.inference import generate_metadata

    manifest = generate_metadata(_folder(source), petastorm=petastorm)
    facts = {
        "n_files": len(manifest.files),
        "n_row_groups": sum(len(file.row_groups) for file in manifest.files),
        "n_rows": manifest.n_rows,
    }
    answer(settings, facts, _facts(facts))


def _facts(facts: dict[str, Any]) -> Facts:
    return Facts([(key, _text(value)) for key, value in facts.items()])


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if type(value) is int else str(value)


def _folder(text: str) -> Any:
    from data_stack.repository.places import locate

    source = locate(text)
    return source if isinstance(source, str) else source.as_folder()
