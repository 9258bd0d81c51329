"""Finds out whether code reads pickles, which can run any code."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def watch_for_pickles() -> Iterator[list[str]]:
    """Collect the classes and functions that unpicklers look up during the block.

    Every unpickler is watched, that of torch.load or numpy too.

    Yields:
        The list of their names, which grows during the block.
    """
    names: list[str] = []
    is_watching = True

    def note_lookup(event: str, arguments: tuple[Any, ...]) -> None:
        if is_watching and event == "pickle.find_class":
            names.append(".".join(map(str, arguments)))

    # Python cannot remove an audit hook, so this one does nothing after the block.
    sys.addaudithook(note_lookup)
    try:
        yield names
    finally:
        is_watching = False
