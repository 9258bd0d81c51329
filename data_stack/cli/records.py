"""The commands ``data-stack records …``."""

from __future__ import annotations

import click

from data_stack.cli.settings import Settings, answer, common_options, takes_settings


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
