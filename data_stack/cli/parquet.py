"""The commands ``data-stack parquet …``: what a Parquet dataset is, its metadata made anew, and copies of it."""

from __future__ import annotations

import json
from typing import Any

import click

from data_stack.cli.settings import Settings, common_options, echo, print_json
from data_stack.dataset.reports.markup import columns

__all__ = ["parquet"]

_pass_settings = click.make_pass_decorator(Settings, ensure=True)
_source = click.argument("source", metavar="SRC")


@click.group("parquet")
@common_options
def parquet() -> None:
    """Look at Parquet datasets, make their metadata anew, copy them.

    SRC is a folder or file, or lies in a store (mongodb://HOST/DATABASE/NAME, s3://BUCKET/NAME, hdfs://…).
    """


@parquet.command("info")
@_source
@click.option("--values", is_flag=True, help="Print the values in the row-group indexes, too.")
@common_options
@_pass_settings
def info(settings: Settings, source: str, values: bool) -> None:
    """Tell what a Parquet dataset holds; only footers are read.

    Its schema and where that comes from, files, row groups, sizes, compression, row-group indexes, and what is kept beside them.
    """
    from data_stack.cli.parquet_facts import facts_of

    facts = facts_of(locate(source), with_values=values)
    if settings.as_json:
        print_json(facts)
        return
    fields, indexes, schema = facts.pop("fields"), facts.pop("indexes"), facts.pop("schema")
    _tell(settings, {**facts, "schema": schema["name"]})
    echo()
    for line in columns([tuple(fields[0]), *(tuple(map(_text, field.values())) for field in fields)] if fields else []):
        echo(line)
    echo(f"\nrow-group indexes: {indexes if isinstance(indexes, str) else len(indexes)}")
    for index in indexes if isinstance(indexes, list) else ():
        count = f"{index['n_values']:,} values" if "n_values" in index else f"not null in {index['n_row_groups']:,} row groups"
        echo(f"  {index['name']} of {index['field']}: {count}")
        for value, groups in index.get("values", ()):
            echo(f"    {value}: {_text(groups)}")


@parquet.command("generate-metadata")
@_source
@click.option(
    "--schema",
    "schema_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.json",
    help='The schema, as `info --json` prints it under "schema".  [default: the one that is there, or that the columns tell]',
)
@click.option(
    "--petastorm", is_flag=True, help="Write what Petastorm needs, too; where it is there already, it is kept up to date."
)
@common_options
@_pass_settings
def generate(settings: Settings, source: str, schema_file: str | None, petastorm: bool) -> None:
    """Write the manifest and _common_metadata of a Parquet dataset, out of the footers of its files.

    For a dataset that others wrote, or appended to. No row is read, and no Spark is needed.
    """
    from data_stack.formats.parquet.metadata_generation import generate_metadata

    schema = None if schema_file is None else _schema(schema_file)
    report = generate_metadata(locate(source), schema=schema, petastorm=petastorm)
    _tell(
        settings,
        {
            "n_files": len(report.manifest.files),
            "n_row_groups": report.manifest.n_row_groups,
            "n_rows": report.manifest.n_rows,
            "schema_from": report.schema_from,
            "dropped_indexes": report.dropped_indexes,
        },
    )
    if report.dropped_indexes:
        echo("Its row-group indexes were of other row groups and are removed; build them again: build_indexes().", err=True)


@parquet.command("copy")
@_source
@click.argument("target", metavar="DST")
@click.option("--fields", "fields", multiple=True, metavar="REGEX", help="Only fields whose whole name matches; may be repeated.")
@click.option(
    "--not-null", "not_null", multiple=True, metavar="FIELD", help="Leave out rows where this is null; may be repeated."
)
@click.option("--partition-by", multiple=True, metavar="FIELD", help="Fields that become folders.  [default: as in SRC]")
@click.option(
    "--row-group-mb", type=click.FloatRange(min=0, min_open=True), default=32.0, show_default=True, help="Before compression."
)
@click.option("--file-mb", type=click.FloatRange(min=0, min_open=True), default=512.0, show_default=True, help="As stored.")
@click.option(
    "--compression",
    type=click.Choice(["zstd", "snappy", "gzip", "lz4", "brotli", "none"]),
    default="zstd",
    show_default=True,
    help="Of all but the cells that are compressed themselves.",
)
@click.option("--overwrite", is_flag=True, help="Remove the dataset at DST first.")
@common_options
@_pass_settings
def copy(settings: Settings, /, source: str, target: str, fields: tuple[str, ...], **options: Any) -> None:
    """Copy a Parquet dataset: some fields, rows without nulls, other files. No cell is decoded.

    An interrupted copy goes on where it was. Row-group indexes are built anew for the copy.
    """
    from dataclasses import asdict

    from data_stack.formats.parquet.dataset_copying import copy_dataset

    options["partition_by"] = options["partition_by"] or None
    report = copy_dataset(locate(source), locate(target), fields=fields or None, **options)
    _tell(settings, asdict(report))
    if report.dropped_indexes:
        echo("Row-group indexes of SRC that are out of date, or of fields that are left out, were not copied.", err=True)


@parquet.command("throughput")
@_source
@click.option("--fields", "fields", multiple=True, metavar="REGEX", help="Only fields whose whole name matches; may be repeated.")
@click.option("--workers", type=click.IntRange(0, 1024), metavar="N", help="Threads or processes.  [default: one a processor]")
@click.option(
    "--worker-kind",
    type=click.Choice(["auto", "inline", "threads", "processes"]),
    default="auto",
    show_default=True,
    help="Who reads and decodes.",
)
@click.option("--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Rows of a batch.")
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Row groups at random, and their rows.")
@click.option("--window", type=click.IntRange(min=1), default=8, show_default=True, help="Row groups that are mixed.")
@click.option("--warmup", type=click.IntRange(min=0), default=1, show_default=True, help="Epochs that do not count.")
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Epochs that count.")
@common_options
@_pass_settings
def throughput(settings: Settings, /, source: str, fields: tuple[str, ...], **options: Any) -> None:
    """Measure how fast a Parquet dataset is read, in whole epochs.

    Rows and bytes a second, the time to the first batch, and memory. The first epoch fills the caches and does not
    count, unless --warmup 0 is given.
    """
    from data_stack.cli.parquet_facts import measure

    _tell(settings, measure(locate(source), fields or None, **options))


def _tell(settings: Settings, facts: dict[str, Any]) -> None:
    if settings.as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        echo(f"{key:<21}{_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
    return str(value)


def locate(text: str) -> Any:
    """What a path or URL means: ``mongodb://host/database/sets/frames`` is ``sets/frames`` in a database."""
    from data_stack.io.location import location_of
    from data_stack.io.url import scheme_of, split_url
    from data_stack.repository.default_storage import as_storage_connector

    if scheme_of(text) in (None, "file", "hdfs", "viewfs"):
        return text
    store, name = split_url(text)
    return location_of((as_storage_connector(store), name)).as_folder()


def _schema(path: str) -> Any:
    from data_stack.exception import ConfigError
    from data_stack.formats.parquet.schema import Schema

    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path!r} is no JSON: {error!s:.200}") from error
    return Schema.from_json(content.get("schema", content) if isinstance(content, dict) else content)
