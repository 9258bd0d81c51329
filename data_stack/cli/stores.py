"""The commands on whole stores: copy, remove, gc, du."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.completion import complete_names, complete_places
from data_stack.cli.group import cli
from data_stack.cli.names import name_argument
from data_stack.cli.output import count_text, echo, print_result, whole_table
from data_stack.cli.settings import Settings
from data_stack.exception import IncompleteCopyError, StorageError
from data_stack.show.markup import Table, size_text

if TYPE_CHECKING:
    from data_stack.io.copying import CopyReport
    from data_stack.io.integrity import Fault

#: Adds the argument ``names`` to a command: any number of datasets.
names_argument = click.argument(
    "names", metavar="[NAME]...", nargs=-1, shell_complete=complete_names
)

#: Adds the option ``--jobs`` to a command, which gets it as ``n_threads``.
threads_option = click.option(
    "--jobs",
    "n_threads",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Number of resources processed in parallel.",
)


def check_no_urls(names: Sequence[str]) -> None:
    """Check that no name of a dataset is a URL.

    A URL may contain a password, so the error does not repeat the URL.

    Raises:
        UsageError: a name is a URL.
    """
    if any("://" in name for name in names):
        raise click.UsageError(
            "NAME must be the name of a dataset, not a URL; pass a store before it (copy) or with "
            "--storage"
        )


def table_of_faults(faults: Sequence[Fault], kind: str = "FAULT") -> Table | None:
    """Return a table with a line for each fault; None without faults.

    Args:
        faults: the faults.
        kind: the word at the start of each line.
    """
    if not faults:
        return None
    rows = [(kind, fault.identifier, fault.problem) for fault in faults]
    return whole_table(("", "resource", "problem"), rows)


# ---------------------------------------------------------------------- copy


@cli.command()
@click.argument("source", metavar="SRC", shell_complete=complete_places)
@click.argument("target", metavar="DST", shell_complete=complete_places)
@names_argument
@click.option(
    "--deep", is_flag=True, help="Also verify the resources in DST, and replace damaged ones."
)
@threads_option
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
def copy(
    settings: Settings,
    source: str,
    target: str,
    names: tuple[str, ...],
    deep: bool,
    n_threads: int,
    dry_run: bool,
) -> int:
    """Copy datasets from one store to another.

    For example: data-stack copy /data/sets 'mongodb://host/datasets' digits mnist

    SRC and DST are folders or URLs of stores; without NAME everything in SRC is copied. Every byte
    is verified against its checksum. Resources already in DST are not copied again, so the same
    command resumes after an interruption. A dataset is ready at DST once it is complete.
    """
    from data_stack.repository.default_storage import as_storage_connector, check_there
    from data_stack.stores.copies import copy_datasets

    check_no_urls(names)
    if settings.storage is not None:
        raise click.UsageError("copy takes SRC and DST instead of --storage")
    source_connector = as_storage_connector(source)
    check_there(source_connector)
    try:
        report = copy_datasets(
            source_connector,
            target,
            names or None,
            n_threads=n_threads,
            deep=deep,
            dry_run=dry_run,
        )
    except IncompleteCopyError as error:
        report = error.report
    except (StorageError, KeyboardInterrupt):
        echo("The copied resources are kept; the same command resumes.", err=True)
        raise
    _print_copy(settings, report, dry_run=dry_run)
    return int(len(report.faults) > 0)


def _print_copy(settings: Settings, report: CopyReport, *, dry_run: bool) -> None:
    """Print which datasets are ready now, what was copied, and what could not be copied."""
    facts = asdict(report)
    sizes = []
    for state in ("copied", "present"):
        n_resources = report.count(state)
        n_bytes = report.size(state)
        facts[state] = {"resources": n_resources, "bytes": n_bytes}
        sizes.append(f"{n_resources} {state} ({size_text(n_bytes)})")

    is_or_would_be = "would be" if dry_run else "is"
    lines = [f"{name} {is_or_would_be} ready in {report.target}" for name in report.complete]
    prefix = "dry run: " if dry_run else ""
    lines.append(f"{prefix}{', '.join(sizes)}, in {report.seconds:.3f} s")

    note = None
    if report.faults:
        n_faults = count_text(len(report.faults), "fault")
        note = f"{n_faults} in {report.source}: their datasets are not ready in {report.target}"
    print_result(
        settings,
        facts,
        "\n".join(lines),
        table_of_faults(report.skipped, "left"),
        table_of_faults(report.faults),
        note,
    )


# ---------------------------------------------------------------------- remove


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

    The plugin need not be installed, and is not removed. The manifest is deleted first, so an
    interrupted removal never leaves a dataset that looks ready; the same command resumes. Other
    datasets and versions stay.
    """
    from data_stack.stores.removal import remove_dataset

    check_no_urls([name])
    if version is not None and all_versions:
        raise click.UsageError("--version and --all-versions exclude each other")
    connector = settings.connector()
    run = functools.partial(
        remove_dataset, name, connector, version=version, all_versions=all_versions
    )

    if sys.stdin.isatty() and not yes and not dry_run:
        planned = run(dry_run=True)
        folders = ", ".join(planned_version.folder for planned_version in planned.removed)
        click.confirm(
            f"Remove {planned.n_resources} resources, {size_text(planned.n_bytes)}, of {folders} "
            f"from {connector!r}?",
            abort=True,
            err=True,
        )

    report = run(dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{verb} {removed.folder}: {removed.n_resources} resources, {size_text(removed.n_bytes)}"
        for removed in report.removed
    ]
    facts: dict[str, Any] = asdict(report)
    facts["n_resources"] = report.n_resources
    facts["n_bytes"] = report.n_bytes
    print_result(settings, facts, "\n".join(lines))


# ---------------------------------------------------------------------- gc


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

    Deletes leftovers of crashed writers at once, and replaced versions and unreferenced content
    after the grace period. Safe to run beside readers and writers, and to interrupt and repeat.
    """
    from data_stack.stores.garbage import collect_garbage

    connector = settings.existing_connector()
    garbage = collect_garbage(connector, 3600.0 * grace_hours, dry_run=dry_run)
    n_bytes = sum(item.size or 0 for item in garbage)
    facts = {
        "storage": repr(connector),
        "dry_run": dry_run,
        "bytes": n_bytes,
        "garbage": [asdict(item) for item in garbage],
    }

    table = None
    if garbage:
        rows = [(item.name, size_text(item.size), item.reason) for item in garbage]
        table = whole_table(("what", "size", "why"), rows, right=(1,))
    verb = "could be" if dry_run else "were"
    summary = f"{len(garbage)} items {verb} removed from {connector!r}, {size_text(n_bytes)}"
    print_result(settings, facts, table, summary)


# ---------------------------------------------------------------------- du


@cli.command()
@names_argument
def du(settings: Settings, names: tuple[str, ...]) -> None:
    """Show disk usage.

    Prints resources and bytes of the datasets NAME, or of all: raw (as downloaded), preprocessed,
    other. "Unique" counts equal content once. Reads no data. `gc --dry-run` lists garbage.
    """
    from data_stack.stores.disk_usage import disk_usage

    check_no_urls(names)
    usage = disk_usage(settings.existing_connector(), names)

    rows = []
    for dataset in usage.datasets:
        rows.append(
            (
                f"{dataset.name} {dataset.version or ''}".strip(),
                str(dataset.n_resources),
                size_text(dataset.raw),
                size_text(dataset.preprocessed),
                size_text(dataset.other),
                size_text(dataset.total),
            )
        )
    header = ("dataset", "resources", "raw", "preprocessed", "other", "total")
    print_result(
        settings,
        asdict(usage),
        whole_table(header, rows, right=range(1, 6)),
        f"{usage.n_resources} resources in {usage.storage}: {size_text(usage.total)}\n"
        f"{size_text(usage.unique)} unique content",
    )
