"""Warnings that point at a line of the program, not at a line of data_stack."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

#: Packages whose lines a warning does not point at: data_stack's and Python's own.
_HIDDEN_PACKAGES = {"data_stack", *sys.stdlib_module_names}


def warn_program(
    text: str, category: type[Warning] = UserWarning, *, package: str | None = None
) -> None:
    """Warn at the line of the program that led here.

    Args:
        text: the message.
        category: the class of the warning.
        package: a package of a plugin, such as "data_stack_petastorm", or one below it. Its lines
            are not the program's either.
    """
    hidden_packages = set(_HIDDEN_PACKAGES)
    if package is not None:
        hidden_packages.add(_top_package(package))
    frame = sys._getframe()
    stack_level = 1
    while _package_of(frame) in hidden_packages and frame.f_back is not None:
        frame = frame.f_back
        stack_level += 1
    warnings.warn(text, category, stacklevel=stack_level)


def warn_deprecated(name: str, *, instead: str, since: str, removed_in: str) -> None:
    """Warn that a program uses a name that a later version removes.

    Python shows the warning once for each line of the program. A test of the project fails when
    the version reaches ``removed_in``.

    Args:
        name: as users write it, such as ``"iterator.batches()"``.
        instead: what to use.
        since: the version that deprecates it.
        removed_in: the version without it, a major one.
    """
    text = (
        f"{name} is deprecated since data_stack {since} and will be removed in {removed_in}: "
        f"use {instead}"
    )
    warn_program(text, DeprecationWarning)


def _package_of(frame: FrameType) -> str:
    """Return the name of the top package whose code a frame runs."""
    return _top_package(str(frame.f_globals.get("__name__")))


def _top_package(module_name: str) -> str:
    return module_name.partition(".")[0]
