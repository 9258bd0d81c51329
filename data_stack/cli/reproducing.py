"""The commands on the exact contents of datasets: report, diff, lock."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.dataset_options import dataset_options
from data_stack.cli.group import cli
from data_stack.cli.names import name_argument, name_to_load, repository
from data_stack.cli.output import print_result
from data_stack.cli.settings import Settings
from data_stack.show.markup import Facts

if TYPE_CHECKING:
    from data_stack.reproduce.lock_differences import Difference

# ---------------------------------------------------------------------- report


@cli.command()
@name_argument
@click.option("--split", metavar="SPLIT", help="One split.  [default: all splits]")
@click.option(
    "--statistics",
    is_flag=True,
    help="Read all samples; add missing values, extremes, means, distinct values.",
)
@click.option(
    "--duplicates", is_flag=True, help="Read all samples; add equal ones within and between splits."
)
@dataset_options
def report(
    settings: Settings,
    name: str,
    split: str | None,
    statistics: bool,
    duplicates: bool,
    options: dict[str, Any],
) -> None:
    """Report samples, classes, sizes and checksums.

    Prepares the dataset first if it is not ready.
    """
    from data_stack.reproduce.dataset_report import DatasetReport

    dataset_report = DatasetReport.of(
        name_to_load(settings, name),
        split,
        storage=settings.connector(),
        config=options,
        statistics=statistics,
        duplicates=duplicates,
    )
    print_result(settings, dataset_report.to_dict(), *dataset_report.document())


# ---------------------------------------------------------------------- diff


@cli.command()
@click.argument("first", metavar="FIRST", shell_complete=complete_names)
@click.argument("second", metavar="SECOND", shell_complete=complete_names)
@click.option(
    "--key", metavar="COLUMN", help="A column that identifies samples: its name, or its number."
)
@click.option(
    "--other-storage", metavar="URL", help="The store of SECOND.  [default: the store of FIRST]"
)
def diff(
    settings: Settings, first: str, second: str, key: str | None, other_storage: str | None
) -> int:
    """Compare two datasets, sample by sample.

    FIRST and SECOND are names, such as digits@1.0.0. Lists samples that were added, removed, moved
    to another split, relabelled and, with --key, changed. Exits with 1 if they differ.
    """
    from data_stack.reproduce.difference import diff as compare

    connector = settings.connector()
    first_name = name_to_load(settings, first)
    splits_of_first = repository().load(first_name, None, connector)
    second_name = second if other_storage is not None else name_to_load(settings, second)
    splits_of_second = repository().load(second_name, None, other_storage or connector)
    difference = compare(splits_of_first, splits_of_second, key=parse_key(key))
    verdict = "the datasets differ" if difference.differs else "the datasets are equal"
    print_result(settings, difference.to_dict(), *difference.document(), verdict)
    return int(difference.differs)


def parse_key(text: str | None) -> int | str | None:
    """Return the number of a column for texts such as ``"0"`` and ``"-1"``; other texts unchanged.

    A column may have any name: ``"--1"`` and ``"²"`` are names.
    """
    if text is not None and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return text


# ---------------------------------------------------------------------- lock


_file_option = click.option(
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
@_file_option
def add(settings: Settings, names: tuple[str, ...], path: str) -> None:
    """Add datasets to the lock file, or update their entries.

    Prepares each dataset if necessary, and reads all its samples once. NAME may be name@version.
    """
    from data_stack.reproduce.lock_file import LockFile

    lock_file = LockFile.read(path) if os.path.exists(path) else LockFile()
    for name in names:
        lock_file.add(name_to_load(settings, name), storage=settings.connector())
    lock_file.write(path)
    locked_names = sorted(lock_file.datasets)
    facts = {"path": path, "datasets": locked_names}
    print_result(settings, facts, f"{path} locks {', '.join(locked_names)}")


@lock.command("check")
@_file_option
def check(settings: Settings, path: str) -> int:
    """Compare plugins and prepared datasets with the lock file.

    Retrieves nothing. Exits with 1 if something differs.
    """
    from data_stack.reproduce.lock_file import LockFile

    connector = settings.existing_connector(may_be_new=True)
    return _print_differences(settings, LockFile.read(path).check(connector))


@lock.command("restore")
@_file_option
def restore(settings: Settings, path: str) -> int:
    """Retrieve and prepare the datasets of the lock file, and compare them with it.

    Exits with 1 if something differs, and lists it: a plugin, a version, a source, prepared bytes,
    samples, a stack.
    """
    from data_stack.reproduce.lock_file import LockFile

    return _print_differences(settings, LockFile.read(path).restore(settings.connector()))


def _print_differences(settings: Settings, differences: Sequence[Difference]) -> int:
    """Print differences from the lock file, and return 1 if samples differ."""
    rows = []
    n_harmful = 0
    for difference in differences:
        if difference.is_harmless:
            rows.append(("same samples", str(difference)))
        else:
            rows.append(("DIFFERS", str(difference)))
            n_harmful += 1
    facts = Facts(rows) if rows else None
    verdict = "all data is as the lock file says"
    if n_harmful > 0:
        verdict = "the data differs from the lock file"
    print_result(
        settings,
        [difference._asdict() for difference in differences],
        facts,
        verdict,
    )
    return int(n_harmful > 0)
