"""The commands of ``data-stack`` on whole stores, with ``data-stack lock``."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.common import (
    Settings,
    answer,
    cli,
    complete_names,
    complete_places,
    echo,
    name_argument,
    table,
)
from data_stack.show.markup import Facts, Table, size_text

if TYPE_CHECKING:
    from data_stack.reproduce.lock_differences import Difference

_names = click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_names)
_jobs = click.option(
    *("--jobs", "n_threads"),
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Number of resources processed in parallel.",
)


@cli.command()
@_names
@_jobs
def verify(settings: Settings, names: tuple[str, ...], n_threads: int) -> int:
    """Verify stored resources against their checksums, or files and folders by reading them.

    Reads every resource of the datasets NAME, or of the whole store, and compares it with the checksums of the store and the
    manifest. Needs no plugin. Exits with 1 if a resource is damaged or missing. `gc --dry-run` lists garbage.

    A NAME that is a path or URL, such as ./pictures, is opened as `show` opens it, and all of its samples are read.
    """
    from data_stack.repository.dataset_names import is_place
    from data_stack.stores.verification import verify_storage

    places = [name for name in names if is_place(name)]
    if places:
        if len(places) < len(names) or settings.storage is not None:
            raise click.UsageError(
                "verify paths and URLs by themselves: without --storage, and without names of datasets"
            )
        return _verify_places(settings, places)
    _check_names(names)
    found = verify_storage(settings.existing_connector(), names, n_threads=n_threads)
    done = f"read {found.n_resources} resources, {size_text(found.n_bytes)}, in {found.seconds:.3f} s from {found.storage}"
    rest = f"{found.n_without_digest} resources have no digest; they were read, but not compared"
    blocks = (
        f"{found.state}: {done}; {len(found.faults)} faults",
        rest if found.n_without_digest else None,
    )
    answer(settings, asdict(found), _faults(found.faults), *blocks)
    return int(found.state == "faulty")


def _verify_places(settings: Settings, places: Sequence[str]) -> int:
    """Verify files and folders by reading all of their samples; 1 if one of them cannot be read."""
    from data_stack.stores.verified_places import verify_place

    verified = [verify_place(place) for place in places]
    lines = [
        f"{place.state}: read {place.n_samples:,} samples in {place.seconds:.3f} s from "
        f"{place.place}; {len(place.faults)} faults"
        for place in verified
    ]
    faults = [fault for place in verified for fault in place.faults]
    answer(settings, [asdict(place) for place in verified], _faults(faults), *lines)
    return int(bool(faults))


def _faults(faults: Sequence[Any], what: str = "FAULT") -> Table | None:
    return (
        table(
            ("", "resource", "problem"), [(what, each.identifier, each.problem) for each in faults]
        )
        if faults
        else None
    )


@cli.command()
@click.argument("source", metavar="SRC", shell_complete=complete_places)
@click.argument("target", metavar="DST", shell_complete=complete_places)
@_names
@click.option(
    "--deep", is_flag=True, help="Also verify the resources in DST, and replace damaged ones."
)
@_jobs
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
def copy(settings: Settings, source: str, target: str, names: tuple[str, ...], **how: Any) -> int:
    """Copy datasets from one store to another.

    For example: data-stack copy /data/sets 'mongodb://host/datasets' digits mnist

    SRC and DST are folders or URLs of stores; without NAME everything in SRC is copied. Every byte is verified against its
    checksum. Resources already in DST are not copied again, so the same command resumes after an interruption. A dataset is
    ready at DST once it is complete.
    """
    _check_names(names)
    if settings.storage is not None:
        raise click.UsageError("copy takes SRC and DST instead of --storage")
    from data_stack.exception import IncompleteCopyError, StorageError
    from data_stack.repository.default_storage import as_storage_connector, check_there
    from data_stack.stores.copies import copy_datasets

    there = as_storage_connector(source)
    check_there(there)
    try:
        report = copy_datasets(there, target, names or None, **how)
    except IncompleteCopyError as error:
        report = error.report
    except (StorageError, KeyboardInterrupt):
        echo("The copied resources are kept; the same command resumes.", err=True)
        raise
    counts = {
        each: {"resources": report.count(each), "bytes": report.size(each)}
        for each in ("copied", "present")
    }
    done = "would be" if how["dry_run"] else "is"
    lines = [f"{name} {done} ready in {report.target}" for name in report.complete]
    sizes = (
        f"{report.count(each)} {each} ({size_text(report.size(each))})"
        for each in ("copied", "present")
    )
    lines.append(
        f"{'dry run: ' if how['dry_run'] else ''}{', '.join(sizes)}, in {report.seconds:.3f} s"
    )
    rest = f"{len(report.faults)} faults in {report.source}: their datasets are not ready in {report.target}"
    blocks = (
        "\n".join(lines),
        _faults(report.skipped, "left"),
        _faults(report.faults),
        rest if report.faults else None,
    )
    answer(settings, asdict(report) | counts, *blocks)
    return int(bool(report.faults))


@cli.command()
@name_argument
@click.option(
    "--version", "version", metavar="V", help="The version.  [default: the only stored version]"
)
@click.option("--all-versions", is_flag=True, help="All versions, and everything else below NAME.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation (asked only on a terminal).")
def remove(
    settings: Settings, name: str, version: str | None, all_versions: bool, dry_run: bool, yes: bool
) -> None:
    """Remove a dataset from the store.

    The plugin need not be installed, and is not removed. The manifest is deleted first, so an interrupted removal never leaves a
    dataset that looks ready; the same command resumes. Other datasets and versions stay.
    """
    _check_names((name,))
    if version is not None and all_versions:
        raise click.UsageError("--version and --all-versions exclude each other")
    from data_stack.stores.removal import remove_dataset

    connector = settings.connector()
    run = functools.partial(
        remove_dataset, name, connector, version=version, all_versions=all_versions
    )
    if not dry_run and not yes and sys.stdin.isatty():
        would = run(dry_run=True)
        folders = ", ".join(each.folder for each in would.removed)
        question = f"Remove {would.n_resources} resources, {size_text(would.n_bytes)}, of {folders} from {connector!r}?"
        click.confirm(question, abort=True, err=True)
    report = run(dry_run=dry_run)
    done = "would remove" if dry_run else "removed"
    lines = [
        f"{done} {each.folder}: {each.n_resources} resources, {size_text(each.n_bytes)}"
        for each in report.removed
    ]
    facts = {"n_resources": report.n_resources, "n_bytes": report.n_bytes}
    answer(settings, asdict(report) | facts, "\n".join(lines))


@cli.command()
@click.option(
    "--grace-hours",
    type=click.IntRange(0, 100_000),
    default=24,
    show_default=True,
    help="Keep content that was replaced less than this many hours ago.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
def gc(settings: Settings, grace_hours: int, dry_run: bool) -> None:
    """Delete garbage from the store.

    Deletes leftovers of crashed writers at once, and replaced versions and unreferenced content after the grace period. Safe to
    run beside readers and writers, and to interrupt and repeat.
    """
    from data_stack.stores.garbage import collect_garbage

    connector = settings.existing_connector()
    garbage = collect_garbage(connector, 3600.0 * grace_hours, dry_run=dry_run)
    n_bytes = sum(each.size or 0 for each in garbage)
    facts = {
        "storage": repr(connector),
        "dry_run": dry_run,
        "bytes": n_bytes,
        "garbage": [asdict(each) for each in garbage],
    }
    rows = [(each.name, size_text(each.size), each.reason) for each in garbage]
    shown = table(("what", "size", "why"), rows, right=(1,)) if garbage else None
    done = f"{len(garbage)} items {'could be' if dry_run else 'were'} removed from {connector!r}, {size_text(n_bytes)}"
    answer(settings, facts, shown, done)


@cli.command()
@_names
def du(settings: Settings, names: tuple[str, ...]) -> None:
    """Show disk usage.

    Prints resources and bytes of the datasets NAME, or of all: raw (as downloaded), preprocessed, other. "Unique" counts equal
    content once. Reads no data. `gc --dry-run` lists garbage.
    """
    _check_names(names)
    from data_stack.stores.disk_usage import disk_usage

    facts = asdict(disk_usage(settings.existing_connector(), names))
    kinds = ("raw", "preprocessed", "other", "total")
    rows = [
        (
            f"{row['name']} {row['version'] or ''}".strip(),
            str(row["n_resources"]),
            *(size_text(row[kind]) for kind in kinds),
        )
        for row in facts["datasets"]
    ]
    total = f"{facts['n_resources']} resources in {facts['storage']}: {size_text(facts['total'])}"
    unique = f"{size_text(facts['unique'])} unique content"
    answer(
        settings,
        facts,
        table(("dataset", "resources", *kinds), rows, right=range(1, 6)),
        f"{total}\n{unique}",
    )


@cli.command()
@name_argument
@click.argument("destination", metavar="DESTINATION")
def publish(settings: Settings, name: str, destination: str) -> None:
    """Write a dataset as plain files, which data_stack.load reads lazily from a web server, a store or a folder.

    For example: data-stack publish digits /srv/www/digits

    Prepares the dataset first if it is not ready. Published files never change; an interrupted command resumes.
    Prints the digest that pins the dataset; append it to the URL after a #.
    """
    from data_stack.stores.publishing import publish as publish_dataset

    pin = publish_dataset(name, destination, settings.connector())
    facts = {"name": name, "destination": destination, "pin": pin}
    answer(
        settings,
        facts,
        f"{name} is published in {destination}; load it by its URL, pinned by #{pin}",
    )


def _check_names(names: tuple[str, ...]) -> None:
    # A URL may contain a password, which must not appear in an error message.
    if any("://" in name for name in names):
        raise click.UsageError(
            "NAME must be the name of a dataset, not a URL; pass a store before it (copy) or with --storage"
        )


_file = click.option(
    "--file",
    "path",
    metavar="FILE",
    default="data_stack.lock",
    show_default=True,
    help="The lock file.",
)


@cli.group("lock")
def lock() -> None:
    """Lock datasets to their exact contents."""


@lock.command("add")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_names)
@_file
def add(settings: Settings, names: tuple[str, ...], path: str) -> None:
    """Add datasets to the lock file, or update their entries.

    Prepares each dataset if necessary, and reads all its samples once. NAME may be name@version.
    """
    from data_stack.reproduce.lock_file import LockFile

    locked = LockFile.read(path) if os.path.exists(path) else LockFile()
    for name in names:
        locked.add(name, storage=settings.connector())
    locked.write(path)
    names_locked = sorted(locked.datasets)
    answer(
        settings,
        {"path": path, "datasets": names_locked},
        f"{path} locks {', '.join(names_locked)}",
    )


@lock.command("check")
@_file
def check(settings: Settings, path: str) -> int:
    """Compare plugins and prepared datasets with the lock file.

    Retrieves nothing. Exits with 1 if something differs.
    """
    from data_stack.reproduce.lock_file import LockFile

    return _answer(
        settings, LockFile.read(path).check(settings.existing_connector(may_be_new=True))
    )


@lock.command("restore")
@_file
def restore(settings: Settings, path: str) -> int:
    """Retrieve and prepare the datasets of the lock file, and compare them with it.

    Exits with 1 if something differs, and lists it: a plugin, a version, a source, prepared bytes, samples, a stack.
    """
    from data_stack.reproduce.lock_file import LockFile

    return _answer(settings, LockFile.read(path).restore(settings.connector()))


def _answer(settings: Settings, differences: list[Difference]) -> int:
    differs = any(not each.is_harmless for each in differences)
    rows = [("same samples" if each.is_harmless else "DIFFERS", str(each)) for each in differences]
    verdict = (
        "the data differs from the lock file" if differs else "all data is as the lock file says"
    )
    answer(
        settings, [each._asdict() for each in differences], Facts(rows) if rows else None, verdict
    )
    return int(differs)
