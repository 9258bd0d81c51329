"""The commands ``data-stack records …``: manifests of record datasets."""

from __future__ import annotations

import click

from data_stack.cli.settings import Settings, answer, common_options, takes_settings


@click.group("records")
@common_options
def records() -> None:
    """Renew the manifests of record datasets."""


@records.command("seal")
@click.argument("folder", metavar="FOLDER")
@takes_settings
def seal(settings: Settings, folder: str) -> None:
    """Write the manifest of a record dataset, or of each of its shards, that Granular wrote or appended to.

    The manifest covers all whole samples, and gives them checksums. It checks what an earlier manifest covers.
    """
    from data_stack.formats.records import seal

    n_samples = seal(folder)
    answer(settings, {"n_samples": n_samples}, f"sealed {n_samples:,} samples of {folder}")
