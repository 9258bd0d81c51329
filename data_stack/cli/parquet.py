"""The commands ``data-stack parquet …``."""

from __future__ import annotations

import json
from typing import Any

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.settings import Settings, answer, common_options, echo, table, takes_settings
from data_stack.show.markup import Facts

__all__ = ["parquet"]

_source = click.argument("source", metavar="SRC", shell_complete=complete_places)


@click.group("parquet")
@common_options
def parquet() -> None:
    """Describe, copy and measure Parquet datasets, and rebuild their metadata.

    SRC is a folder, a file or a URL (mongodb://HOST/DATABASE/NAME, s3://BUCKET/NAME, hdfs://…).
    """


@parquet.command("info")
@_source
@click.option("--values", is_flag=True, help="Also print the values in the row-group indexes.")
@takes_settings
def info(settings: Settings, source: str, values: bool) -> None:
    """Describe a Parquet dataset; reads only footers.

    Prints the schema and its origin, files, row groups, sizes, compression, row-group indexes and other metadata.
    """
    from data_stack.cli.parquet_facts import facts_of

    facts = facts_of(_folder(source), with_values=values)
    fields, indexes, schema = facts["fields"], facts["indexes"], facts["schema"]
    others = {key: value for key, value in facts.items() if key not in ("fields", "indexes")} | {"schema": schema["name"]}
    rows = [tuple(map(_text, field.values())) for field in fields]
    found = [f"row-group indexes: {indexes if isinstance(indexes, str) else len(indexes)}"]
    for index in indexes if isinstance(indexes, list) else ():
        count = f"{index['n_values']:,} values" if "n_values" in index else f"not null in {index['n_row_groups']:,} row groups"
        found.append(f"  {index['name']} of {index['field']}: {count}")
        found += [f"    {value}: {_text(groups)}" for value, groups in index.get("values", ())]
    answer(settings, facts, _facts(others), *([table(tuple(fields[0]), rows)] if fields else []), "\n".join(found))


@parquet.command("generate-metadata")
@_source
@click.option(
    "--schema",
    "schema_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.json",
    help='The schema, as `info --json` prints it under "schema".  [default: the existing one, or inferred from the columns]',
)
@click.option("--petastorm", is_flag=True, help="Also write Petastorm's metadata; existing metadata is always updated.")
@takes_settings
def generate(settings: Settings, source: str, schema_file: str | None, petastorm: bool) -> None:
    """Rebuild the manifest of a Parquet dataset from the footers of its files.

    Use it for datasets that other tools wrote or appended to. It reads no rows and needs no Spark.
    """
    from data_stack.formats.parquet.metadata_generation import generate_metadata

    schema = None if schema_file is None else _schema(schema_file)
    report = generate_metadata(_folder(source), schema=schema, petastorm=petastorm)
    facts = {
        "n_files": len(report.manifest.files),
        "n_row_groups": report.manifest.n_row_groups,
        "n_rows": report.manifest.n_rows,
        "schema_from": report.schema_from,
        "dropped_indexes": report.dropped_indexes,
    }
    answer(settings, facts, _facts(facts))
    if report.dropped_indexes:
        echo("Removed outdated row-group indexes; rebuild them with build_indexes().", err=True)


@parquet.command("copy")
@_source
@click.argument("target", metavar="DST", shell_complete=complete_places)
@click.option("--fields", "fields", multiple=True, metavar="REGEX", help="Only fields whose whole name matches; may be repeated.")
@click.option("--not-null", "not_null", multiple=True, metavar="FIELD", help="Skip rows where FIELD is null; may be repeated.")
@click.option("--partition-by", multiple=True, metavar="FIELD", help="Fields that become folders.  [default: as in SRC]")
@click.option(
    "--row-group-mb", type=click.FloatRange(min=0, min_open=True), default=32.0, show_default=True, help="Uncompressed size."
)
@click.option("--file-mb", type=click.FloatRange(min=0, min_open=True), default=512.0, show_default=True, help="Size on disk.")
@click.option(
    "--compression",
    type=click.Choice(["zstd", "snappy", "gzip", "lz4", "brotli", "none"]),
    default="zstd",
    show_default=True,
    help="Compression of all cells that are not already compressed.",
)
@click.option("--overwrite", is_flag=True, help="Delete the dataset at DST first.")
@takes_settings
def copy(settings: Settings, /, source: str, target: str, fields: tuple[str, ...], **options: Any) -> None:
    """Copy all or some fields of a Parquet dataset into new files, without decoding.

    An interrupted copy resumes. Row-group indexes are rebuilt for the copy.
    """
    from dataclasses import asdict

    from data_stack.formats.parquet.dataset_copying import copy_dataset

    options["partition_by"] = options["partition_by"] or None
    report = copy_dataset(_folder(source), _folder(target), fields=fields or None, **options)
    answer(settings, asdict(report), _facts(asdict(report)))
    if report.dropped_indexes:
        echo("Did not copy row-group indexes of SRC that are outdated, or of fields that are not copied.", err=True)


@parquet.command("throughput")
@_source
@click.option("--fields", "fields", multiple=True, metavar="REGEX", help="Only fields whose whole name matches; may be repeated.")
@click.option("--workers", type=click.IntRange(0, 1024), metavar="N", help="Threads or processes.  [default: one per processor]")
@click.option(
    "--worker-kind",
    type=click.Choice(["auto", "inline", "threads", "processes"]),
    default="auto",
    show_default=True,
    help="Kind of workers that read and decode.",
)
@click.option("--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Rows per batch.")
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Shuffle row groups and rows.")
@click.option("--window", type=click.IntRange(min=1), default=8, show_default=True, help="Row groups to shuffle together.")
@click.option("--warmup", type=click.IntRange(min=0), default=1, show_default=True, help="Epochs to run before measuring.")
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Epochs to measure.")
@takes_settings
def throughput(settings: Settings, /, source: str, fields: tuple[str, ...], **options: Any) -> None:
    """Measure the read throughput of a Parquet dataset over whole epochs.

    Prints rows and bytes per second, the time to the first batch, and memory. The first epoch fills the caches and is not
    measured, unless you pass --warmup 0.
    """
    from data_stack.cli.parquet_facts import measure

    figures = measure(_folder(source), fields or None, **options)
    answer(settings, figures, _facts(figures))


def _facts(facts: dict[str, Any]) -> Facts:
    return Facts([(key, _text(value)) for key, value in facts.items()])


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
    return str(value)


def _folder(text: str) -> Any:
    from data_stack.repository.places import locate

    source = locate(text)
    return source if isinstance(source, str) else source.as_folder()


def _schema(path: str) -> Any:
    from data_stack.exception import ConfigError
    from data_stack.formats.parquet.schema import Schema

    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path!r} is not JSON: {error!s:.200}") from error
    return Schema.from_json(content.get("schema", content) if isinstance(content, dict) else content)
