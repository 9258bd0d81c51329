"""The commands on files in formats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from data_stack.cli import common
from data_stack.cli.common import Settings, answer, cli, table
from data_stack.exception import ConfigError
from data_stack.show.markup import Facts

_FORMAT = "FORMAT"

#: The options of ``data-stack convert`` by the arguments of ``convert()``.
_OPTIONS_OF_ARGUMENTS = {
    "columns": "--columns",
    "source_format": "--from",
    "target_format": "--to",
    "shardlen": "--shardlen",
}


class ConvertCommand(common.Command):
    """The command whose help lists the known formats, those of plugins too."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of the formats below the options."""
        # Imported for the help alone: importing all formats would slow each command down.
        from data_stack.formats.registry import all_formats, writable_formats

        writable = writable_formats()
        rows = []
        for name, format_ in all_formats().items():
            description = ", ".join(format_.suffixes) or "a folder"
            if name not in writable:
                description += " (of SRC only)"
            rows.append((name, description))
        with formatter.section("Formats"):
            formatter.write_dl(rows)


@cli.command("convert", cls=ConvertCommand)
@click.argument("source", metavar="SRC", shell_complete=common.complete_places)
@click.argument("target", metavar="DST", shell_complete=common.complete_places)
@click.option(
    "--from",
    "source_format",
    metavar=_FORMAT,
    help="The format of SRC, see below.  [default: detected]",
)
@click.option(
    "--to",
    "target_format",
    metavar=_FORMAT,
    help="The format of DST, see below.  [default: by its suffix, else records]",
)
@click.option(
    "--columns",
    metavar="A,NEW=OLD",
    help="Only these columns; NEW=OLD renames one, or names a position: image=0.",
)
@click.option(
    "--shardlen",
    type=click.IntRange(min=1),
    help="Samples per shard, for records, webdataset and parquet.",
)
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Read all samples back and compare them.",
)
@common.dataset_options
def convert_dataset(
    settings: Settings, source: str, target: str, options: dict[str, Any], **how: Any
) -> None:
    """Convert a dataset into another format.

    For example: data-stack convert train.h5 train --columns image=x,label=y

    SRC is a file, a folder, an installed dataset (mnist:train), or a URL (mongodb://HOST/DATABASE/NAME, s3://BUCKET/NAME);
    DST is a file or a folder, local or in a store. -O is an option of an installed dataset, or says
    how to read a file: -O delimiter=";".

    An existing DST is never overwritten. DST appears under its name when it is complete and verified; an interrupted conversion
    leaves nothing behind and starts over.
    """
    from data_stack.formats.conversion import convert

    found, options_of_file = _source(settings, source, options, how["source_format"])
    try:
        report = convert(found, target, options=options_of_file, **how)
    except ConfigError as error:
        raise ConfigError(_in_words_of_shell(str(error))) from error
    compared = f"{report.n_verified:,} read back and equal" if report.n_verified else "not verified"
    text = (
        f"{report.target} ({report.target_format}) has {report.n_samples:,} samples of {report.source}; {compared}, in "
        f"{report.seconds:.3f} s\ncolumns: "
        + ", ".join(f"{name} ({kind})" for name, kind in report.columns.items())
    )
    answer(settings, asdict(report), text)


def _in_words_of_shell(message: str) -> str:
    """Return a message with the options of the command in place of the arguments of ``convert()``."""
    for argument, option in _OPTIONS_OF_ARGUMENTS.items():
        message = message.replace(f"{argument}=", option)
    return message


def _split_of_folder(
    settings: Settings, text: str, options: Mapping[str, Any], source_format: str | None
) -> Any:
    """The samples of a split of a folder, ``./pets:train``; None if the text names something else.

    Raises:
        UnknownSplitError: the folder has no such split.
    """
    name, _, split = text.rpartition(":")
    folder = os.path.expanduser(name)
    names_split = name and split and "/" not in split and "://" not in text
    if not names_split or os.path.exists(os.path.expanduser(text)) or not os.path.isdir(folder):
        return None
    if common.find_place(settings, name, {}) is None:  # it is a dataset
        return None
    how: dict[str, Any] = {} if source_format is None else {"format": source_format}
    return common.repository().load(os.path.abspath(folder), split, **how, **options)


def _source(
    settings: Settings, text: str, options: Mapping[str, Any], source_format: str | None
) -> tuple[Any, Mapping[str, Any]]:
    """A path or URL and how to read it, or else the samples of an installed dataset.

    Raises:
        ConfigError: the dataset has several splits, and ``text`` names none of them.
        DatasetNotFoundError: neither a path nor a dataset of this name exists.
    """
    from data_stack.exception import ConfigError, DatasetNotFoundError

    samples = _split_of_folder(settings, text, options, source_format)
    if samples is not None:
        return samples, {}
    place = common.find_place(settings, text, {})
    if place is not None:
        return os.fspath(place), options
    if source_format is not None:
        raise ConfigError(f"no file or folder exists at {text!r}")
    try:
        common.repository().describe(text)
        name, split = text, ""
    except DatasetNotFoundError:
        name, _, split = text.rpartition(":")
        if not name or not split or "/" in split:
            raise
    loaded = common.repository().load(name, split or None, settings.connector(), **options)
    if not isinstance(loaded, dict):
        return loaded, {}
    if len(loaded) > 1:
        raise ConfigError(
            f"dataset {name!r} has the splits {', '.join(loaded)}; choose one, such as {name}:{next(iter(loaded))}"
        )
    return next(iter(loaded.values())), {}


@cli.group("records")
def records() -> None:
    """Update the manifests of record datasets."""


@records.command("seal")
@click.argument("folder", metavar="FOLDER")
def seal(settings: Settings, folder: str) -> None:
    """Write the manifest of a record dataset, or of each of its shards, that Granular wrote or appended to.

    The manifest has checksums of all complete samples. Samples in an earlier manifest are verified against it.
    """
    from data_stack.formats.records import write_manifest

    n_samples = write_manifest(folder)
    answer(settings, {"n_samples": n_samples}, f"sealed {n_samples:,} samples of {folder}")


def facts_of(source: Any) -> dict[str, Any]:
    """Collect the facts in the footers of a dataset, as plain JSON data.

    Args:
        source: as for ``ParquetDataset``.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        DatasetFileCorruptError: a footer, or a metadata file, is damaged.
    """
    from data_stack.formats.parquet.files import find_files, partition_names
    from data_stack.formats.parquet.footers import Footers
    from data_stack.formats.parquet.inference import read_schema
    from data_stack.formats.parquet.metadata import is_foreign
    from data_stack.formats.parquet.schema import SCHEMA_KEY
    from data_stack.formats.parquet.types import dtype_name

    footers = Footers(find_files(source))
    schema, metadata, manifest = (
        read_schema(footers),
        footers.metadata,
        None if footers.files.given else footers.manifest,
    )
    stored: dict[str, int] = {}
    for footer in map(footers.facts, range(len(footers.files.paths))):
        for name, numbers in footer.columns.items():
            stored[name] = stored.get(name, 0) + int(footer.chunks["n_bytes"][:, numbers].sum())
    listed = {each.name: each.row_groups for each in manifest.files} if manifest else {}
    there = {
        path: tuple(footers.n_rows[footers.file_of == number].tolist())
        for number, path in enumerate(footers.files.paths)
    }
    state = (
        "up to date" if listed == there else "outdated; run `data-stack parquet generate-metadata`"
    )
    writer = (
        "data_stack"
        if SCHEMA_KEY in metadata
        else "Petastorm"
        if any(map(is_foreign, metadata))
        else "the columns"
    )
    rows, fields = footers.n_rows.tolist(), []
    for field in schema:
        about = {
            "name": field.name,
            "dtype": dtype_name(field.dtype),
            "shape": str(field.shape),
            "codec": repr(field.codec),
        }
        fields.append({**about, "nullable": field.nullable, "stored_bytes": stored.get(field.name)})
    return {
        "name": footers.files.folder.name,
        "n_rows": sum(rows),
        "n_files": len(footers.files.paths),
        "stored_bytes": sum(stored.values()),
        "n_row_groups": len(footers),
        "row_group_rows": [min(rows, default=0), max(rows, default=0)],
        "partition_by": partition_names(footers.files.partitions),
        "manifest": state if manifest else "none",
        "schema_from": writer,
        "schema": schema.to_json(),
        "fields": fields,
    }


_place = click.argument("source", metavar="SRC", shell_complete=common.complete_places)


@cli.group("parquet")
def parquet() -> None:
    """Describe Parquet datasets, and rebuild their metadata.

    SRC is a folder, a file or a URL (mongodb://HOST/DATABASE/NAME, s3://BUCKET/NAME, hdfs://…).
    """


@parquet.command("info")
@_place
def info(settings: Settings, source: str) -> None:
    """Describe a Parquet dataset; reads only footers.

    Prints the schema and its origin, files, row groups and sizes.
    """
    facts = facts_of(_folder(source))
    fields, schema = facts["fields"], facts["schema"]
    others = {key: value for key, value in facts.items() if key != "fields"} | {
        "schema": schema["name"]
    }
    rows = [tuple(map(_text, field.values())) for field in fields]
    answer(settings, facts, _facts(others), table(tuple(fields[0]), rows) if fields else None)


@parquet.command("generate-metadata")
@_place
@click.option(
    "--petastorm",
    is_flag=True,
    help="Also write Petastorm's metadata; existing metadata is always updated.",
)
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
    """Return the folder of a store that a URL names; a path, and what Arrow opens, as it is."""
    from data_stack.io.location import location_of
    from data_stack.io.url import StorageURL

    url = StorageURL.parse(text)
    if url is None or url.scheme in ("file", "hdfs", "viewfs"):
        return text
    return location_of(url).as_folder()
