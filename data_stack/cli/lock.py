"""The commands ``data-stack lock …``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings, answer, common_options, takes_settings
from data_stack.show.markup import Facts

if TYPE_CHECKING:
    from data_stack.reproduce.lock_differences import Difference

__all__ = ["lock"]

_file = click.option("--file", "path", metavar="FILE", default="data_stack.lock", show_default=True, help="The lock file.")


@click.group("lock")
@common_options
def lock() -> None:
    """Lock datasets to their exact contents."""


@lock.command("add")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_names)
@_file
@takes_settings
def add(settings: Settings, names: tuple[str, ...], path: str) -> None:
    """Add datasets to the lock file, or update their entries.

    Prepares each dataset if necessary, and reads all its samples once. NAME may be name@version.
    """
    from data_stack.reproduce.lock import LockFile

    locked = LockFile.read(path) if os.path.exists(path) else LockFile()
    for name in names:
        locked.add(name, storage=settings.connector())
    locked.write(path)
    names_locked = sorted(locked.datasets)
    answer(settings, {"path": path, "datasets": names_locked}, f"{path} locks {', '.join(names_locked)}")


@lock.command("check")
@_file
@takes_settings
@click.pass_context
def check(context: click.Context, settings: Settings, path: str) -> None:
    """Compare plugins and prepared datasets with the lock file.

    Retrieves nothing. Exits with 1 if something differs.
    """
    from data_stack.reproduce.lock import LockFile

    _answer(context, settings, LockFile.read(path).check(settings.existing_connector(may_be_new=True)))


@lock.command("restore")
@_file
@takes_settings
@click.pass_context
def restore(context: click.Context, settings: Settings, path: str) -> None:
    """Retrieve and prepare the datasets of the lock file, and compare them with it.

    Exits with 1 if something differs, and lists it: a plugin, a version, a source, prepared bytes, samples, a stack.
    """
    from data_stack.reproduce.lock import LockFile

    _answer(context, settings, LockFile.read(path).restore(settings.connector()))


def _answer(context: click.Context, settings: Settings, differences: list[Difference]) -> None:
    differs = any(not each.is_harmless for each in differences)
    rows = [("same samples" if each.is_harmless else "DIFFERS", str(each)) for each in differences]
    answer(
        settings,
        [each._asdict() for each in differences],
        *([Facts(rows)] if rows else []),
        "the data differs from the lock file" if differs else "all data is as the lock file says",
    )
    context.exit(1 if differs else 0)
