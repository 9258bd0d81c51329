"""The command that verifies stored resources, files and folders: verify."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from data_stack.cli.group import cli
from data_stack.cli.output import count_text, print_result
from data_stack.cli.settings import Settings
from data_stack.cli.stores import (
    check_no_urls,
    names_argument,
    table_of_faults,
    threads_option,
)
from data_stack.exception import DatasetNotFoundError
from data_stack.show.markup import size_text

if TYPE_CHECKING:
    from data_stack.io.integrity import Fault


@cli.command()
@names_argument
@threads_option
def verify(settings: Settings, names: tuple[str, ...], n_threads: int) -> int:
    """Verify stored resources against their checksums, or files and folders by reading them.

    Reads every resource of the datasets NAME, or of the whole store, and compares it with the
    checksums of the store and the manifest. Needs no plugin. Exits with 1 if a resource is damaged
    or missing. `gc --dry-run` lists garbage.

    A NAME that is a path or URL, such as ./pictures, is opened as `show` opens it, and all of its
    samples are read.
    """
    from data_stack.repository.dataset_names import is_place

    places = [name for name in names if is_place(name)]
    if not places:
        return _verify_store(settings, names, n_threads)
    if len(places) < len(names) or settings.storage is not None:
        raise click.UsageError(
            "verify paths and URLs by themselves: without --storage, and without names of datasets"
        )
    return _verify_places(settings, places)


def _verify_store(settings: Settings, names: tuple[str, ...], n_threads: int) -> int:
    """Verify the resources of datasets, or of the whole store; 1 if one is faulty."""
    from data_stack.stores.verification import verify_storage

    check_no_urls(names)
    try:
        report = verify_storage(settings.existing_connector(), names, n_threads=n_threads)
    except DatasetNotFoundError as error:
        files = [name for name in names if os.path.exists(name)]
        if not files or settings.storage is not None:
            raise
        raise DatasetNotFoundError(
            f"{error}. To verify the file or folder, write './{files[0]}'"
        ) from error
    summary = (
        f"{report.state}: read {report.n_resources} resources, {size_text(report.n_bytes)}, in "
        f"{report.seconds:.3f} s from {report.storage}; {count_text(len(report.faults), 'fault')}"
    )
    note = None
    if report.n_without_digest:
        note = (
            f"{count_text(report.n_without_digest, 'resource')} without a digest: read, but not "
            f"compared"
        )
    print_result(settings, asdict(report), table_of_faults(report.faults), summary, note)
    return int(report.state == "faulty")


def _verify_places(settings: Settings, places: Sequence[str]) -> int:
    """Verify files and folders by reading all of their samples; 1 if a sample cannot be read."""
    from data_stack.stores.verified_places import verify_place

    reports = [verify_place(place) for place in places]
    faults: list[Fault] = []
    lines = []
    for report in reports:
        faults.extend(report.faults)
        lines.append(
            f"{report.state}: read {report.n_samples:,} samples in {report.seconds:.3f} s from "
            f"{report.place}; {count_text(len(report.faults), 'fault')}"
        )
    print_result(settings, [asdict(report) for report in reports], table_of_faults(faults), *lines)
    return int(len(faults) > 0)
