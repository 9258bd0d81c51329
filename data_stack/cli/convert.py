"""The commands on files in formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.settings import Settings, answer, common_options, dataset_options, is_place, parse_options, takes_settings

_FORMAT = "FORMAT"
_FORMATS = "records, hdf5, npz, torch, webdataset, parquet or images"


@click.command("convert")
@click.argument("source", metavar="SRC", shell_complete=complete_places)
@click.argument("target", metavar="DST", shell_complete=complete_places)
@click.option("--from", "source_format", metavar=_FORMAT, help=f"The format of SRC: {_FORMATS}.  [default: detected]")
@click.option("--to", "target_format", metavar=_FORMAT, help="The format of DST.  [default: by its suffix, else records]")
@click.option("--columns", metavar="A,NEW=OLD", help="Only these columns; NEW=OLD renames one, or names a position: image=0.")
@click.option("--shardlen", type=click.IntRange(min=1), help="Samples per shard, for records, webdataset and parquet.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Read all samples back and compare them.")
@dataset_options
@takes_settings
def convert_dataset(settings: Settings, source: str, target: str, options: tuple[str, ...], **how: Any) -> None:
    """Convert a dataset into another format.

    For example: data-stack convert train.h5 train --columns image=x,label=y

    SRC is a file, a folder, an installed dataset (mnist:train), or a URL (mongodb://HOST/DATABASE/NAME, s3://BUCKET/NAME);
    DST is a file or a folder, local or in a store. Formats: records, hdf5 (.h5), npz, torch (.pt), webdataset (.tar, or a folder
    of shards), parquet (a folder of files), images (a folder for each class).

    An existing DST is never overwritten. DST appears under its name when it is complete and verified; an interrupted conversion
    leaves nothing behind and starts over.
    """
    from data_stack.formats.conversion import convert
    from data_stack.repository.places import locate

    report = convert(_source(settings, source, parse_options(options), how["source_format"]), locate(target), **how)
    compared = f"{report.n_verified:,} read back and equal" if report.n_verified else "not verified"
    text = (
        f"{report.target} ({report.target_format}) has {report.n_samples:,} samples of {report.source}; {compared}, in "
        f"{report.seconds:.3f} s\ncolumns: " + ", ".join(f"{name} ({kind})" for name, kind in report.columns.items())
    )
    answer(settings, asdict(report), text)


def _source(settings: Settings, text: str, options: Mapping[str, Any], source_format: str | None) -> Any:
    """A path or URL, or else the samples of an installed dataset.

    Raises:
        ConfigError: the dataset has several splits, and ``text`` names none of them.
        DatasetNotFoundError: neither a path nor a dataset of this name exists.
    """
    from data_stack.exception import ConfigError, DatasetNotFoundError
    from data_stack.repository.places import locate
    from data_stack.repository.repository import default_repository

    if is_place(settings, text, options):
        return locate(text)
    if source_format is not None:
        raise ConfigError(f"no file or folder exists at {text!r}")
    repository, connector = default_repository(), settings.connector()
    try:
        repository.describe(text)
        name, split = text, ""
    except DatasetNotFoundError:
        name, _, split = text.rpartition(":")
        if not name or not split or "/" in split:
            raise
    loaded = repository.load(name, split or None, connector, **options)
    if not isinstance(loaded, dict):
        return loaded
    if len(loaded) > 1:
        raise ConfigError(f"dataset {name!r} has the splits {', '.join(loaded)}; choose one, such as {name}:{next(iter(loaded))}")
    return next(iter(loaded.values()))


@click.group("records")
@common_options
def records() -> None:
    """Update the manifests of record datasets."""


@records.command("seal")
@click.argument("folder", metavar="FOLDER")
@takes_settings
def seal(settings: Settings, folder: str) -> None:
    """Write the manifest of a record dataset, or of each of its shards, that Granular wrote or appended to.

    The manifest has checksums of all complete samples. Samples in an earlier manifest are verified against it.
    """
    from data_stack.formats.records import seal

    n_samples = seal(folder)
    answer(settings, {"n_samples": n_samples}, f"sealed {n_samples:,} samples of {folder}")
