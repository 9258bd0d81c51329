"""Warnings that point at a line of the program, not at a line of data_stack."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

#: Packages whose lines a warning does not point at: data_stack's and Python's own.
_HIDDEN_PACKAGES = {"data_stack", *sys.stdlib_module_names}


def warn_program(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program that led here.

    Args:
        text: the message.
        category: the class of the warning.
    """
    frame = sys._getframe()
    stack_level = 1
    while _is_hidden(frame) and frame.f_back is not None:
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


def _is_hidden(frame: FrameType) -> bool:
    module_name = str(frame.f_globals.get("__name__"))
    package = module_name.partition(".")[0]
    return package in _HIDDEN_PACKAGES
