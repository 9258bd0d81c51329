"""The commands that write other files of the same samples: convert, records seal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.dataset_options import dataset_options
from data_stack.cli.group import Command, cli
from data_stack.cli.names import find_place, repository
from data_stack.cli.output import print_result
from data_stack.cli.settings import Settings
from data_stack.exception import ConfigError, DatasetNotFoundError

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF
    from data_stack.formats import ConversionReport

# ---------------------------------------------------------------------- convert


class ConvertCommand(Command):
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
@click.argument("source", metavar="SRC", shell_complete=complete_places)
@click.argument("target", metavar="DST", shell_complete=complete_places)
@click.option(
    "--from",
    "source_format",
    metavar="FORMAT",
    help="The format of SRC, see below.  [default: detected]",
)
@click.option(
    "--to",
    "target_format",
    metavar="FORMAT",
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
@dataset_options
def convert_dataset(
    settings: Settings,
    source: str,
    target: str,
    source_format: str | None,
    target_format: str | None,
    columns: str | None,
    shardlen: int | None,
    verify: bool,
    options: dict[str, Any],
) -> None:
    """Convert a dataset into another format.

    For example: data-stack convert train.h5 train --columns image=x,label=y

    SRC is a file, a folder, an installed dataset (mnist:train), or a URL
    (mongodb://HOST/DATABASE/NAME, s3://BUCKET/NAME); DST is a file or a folder, local or in a
    store. -O is an option of an installed dataset, or says how to read a file: -O delimiter=";".

    An existing DST is never overwritten. DST appears under its name when it is complete and
    verified; an interrupted conversion leaves nothing behind and starts over.
    """
    from data_stack.formats.conversion import convert

    to_convert = _find_source(settings, source, source_format, options)
    report = convert(
        to_convert.source,
        target,
        source_format=to_convert.source_format,
        target_format=target_format,
        columns=columns,
        shardlen=shardlen,
        verify=verify,
        options=to_convert.options,
    )
    print_result(settings, asdict(report), _describe_conversion(report))


def _describe_conversion(report: ConversionReport) -> str:
    verified = "not verified"
    if report.n_verified:
        verified = f"{report.n_verified:,} read back and equal"
    columns = ", ".join(f"{name} ({kind})" for name, kind in report.columns.items())
    return (
        f"{report.target} ({report.target_format}) has {report.n_samples:,} samples of "
        f"{report.source}; {verified}, in {report.seconds:.3f} s\ncolumns: {columns}"
    )


@dataclass(frozen=True)
class _Source:
    """The samples to convert, as ``convert()`` takes them.

    Attributes:
        source: loaded samples, or the path or URL of a file or folder.
        source_format: the format of a file or folder; None to detect it, and for loaded samples.
        options: how to read a file or folder.
    """

    source: DatasetIteratorIF | str
    source_format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def _find_source(
    settings: Settings, text: str, source_format: str | None, options: Mapping[str, Any]
) -> _Source:
    """Find what SRC names: a split of a folder, a file, folder or URL, or an installed dataset.

    Raises:
        ConfigError: the dataset has several splits, and ``text`` names none of them.
        DatasetNotFoundError: neither a path nor a dataset of this name exists.
        UnknownSplitError: there is no such split.
    """
    split_of_folder = _split_of_folder(settings, text)
    if split_of_folder is not None:
        folder, split = split_of_folder
        options_of_load = dict(options)
        if source_format is not None:
            options_of_load["format"] = source_format
        return _Source(repository().load(folder, split, **options_of_load))

    place = find_place(settings, text, {})
    if place is not None:
        return _Source(place, source_format, options)
    if source_format is not None:
        raise ConfigError(f"no file or folder exists at {text!r}")
    return _Source(_load_split_of_dataset(settings, text, options))


def _split_of_folder(settings: Settings, text: str) -> tuple[str, str] | None:
    """Parse ``./pets:train`` into the path of a folder and the name of a split.

    Returns:
        The path and the name. None if the text names something else: a file or folder whose name
        has a colon, a URL, or a dataset.
    """
    name, _, split = text.rpartition(":")
    folder = os.path.expanduser(name)
    is_url = "://" in text
    if not name or not split or "/" in split or is_url:
        return None
    if os.path.exists(os.path.expanduser(text)) or not os.path.isdir(folder):
        return None
    is_dataset = find_place(settings, name, {}) is None
    if is_dataset:
        return None
    return os.path.abspath(folder), split


def _load_split_of_dataset(
    settings: Settings, text: str, options: Mapping[str, Any]
) -> DatasetIteratorIF:
    """Load ``mnist:train``, or ``mnist`` if it has only one split.

    Raises:
        ConfigError: the dataset has several splits, and ``text`` names none of them.
        DatasetNotFoundError: there is no such dataset.
    """
    name = text
    split: str | None = None
    try:
        repository().describe(text)
    except DatasetNotFoundError:
        name, _, split = text.rpartition(":")
        if not name or not split or "/" in split:
            raise

    loaded: DatasetIteratorIF | dict[str, DatasetIteratorIF]
    loaded = repository().load(name, split, settings.connector(), **options)
    if not isinstance(loaded, dict):
        return loaded
    names_of_splits = list(loaded)
    if len(names_of_splits) > 1:
        raise ConfigError(
            f"dataset {name!r} has the splits {', '.join(names_of_splits)}; choose one, such as "
            f"{name}:{names_of_splits[0]}"
        )
    return loaded[names_of_splits[0]]


# ---------------------------------------------------------------------- records


@cli.group("records")
def records() -> None:
    """Update the manifests of record datasets."""


@records.command("seal")
@click.argument("folder", metavar="FOLDER")
def seal(settings: Settings, folder: str) -> None:
    """Write the manifest of a record dataset, or of its shards, that Granular wrote or appended to.

    The manifest has checksums of all complete samples. Samples in an earlier manifest are verified
    against it.
    """
    from data_stack.formats.records import write_manifest

    n_samples = write_manifest(folder)
    print_result(settings, {"n_samples": n_samples}, f"sealed {n_samples:,} samples of {folder}")
