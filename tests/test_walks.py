"""The walks of the architecture page go through the files and functions that it names."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import data_stack
from data_stack import (
    FileStorageConnector,
    InMemoryStorageConnector,
    Loader,
    SequenceDatasetIterator,
)

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "data_stack"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def read_a_shuffled_batch() -> None:
    SequenceDatasetIterator([np.arange(100)]).shuffle(seed=1).read_batch([5, 3])


def load_a_shuffled_batch() -> None:
    next(iter(Loader(SequenceDatasetIterator([np.arange(100)]).shuffle(seed=1), 8, workers=0)))


def load_a_dataset() -> None:
    data_stack.load("digits", split="train", storage=InMemoryStorageConnector())


def calls_of(walk: Callable[[], object]) -> set[tuple[str, str]]:
    """The functions of ours that a walk calls when all is imported, with their files."""
    walk()
    called = set[tuple[str, str]]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.add((frame.f_code.co_name, frame.f_code.co_filename))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(before)
    # The environments of the Makefile lie in the repository, too.
    ours = [
        (name, Path(file))
        for name, file in called
        if file.startswith(str(ROOT)) and "site-packages" not in file
    ]
    return {
        (name, str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT)))
        for name, path in ours
    }


@pytest.mark.parametrize(
    ("walk", "start", "end"),
    [
        (read_a_shuffled_batch, "iterator.shuffle(seed=1)\n", "From the loader to"),
        (load_a_shuffled_batch, "Loader(iterator.shuffle(seed=1)", "From `next()` to the file"),
        (load_a_dataset, 'load("digits", split="train")   ', "train[7]\n"),
    ],
)
def test_a_walk_goes_as_the_page_says(walk: Callable[[], None], start: str, end: str) -> None:
    told = PAGE[PAGE.index(start) : PAGE.index(end)]
    stops = re.findall(r"([\w.]+)(?:\([^)\n]*\))? {2,}([\w/]+\.py)", told)

    called = calls_of(walk)

    assert stops
    for stop, file in stops:
        name = stop.rpartition(".")[2]
        assert ("__init__" if name[0].isupper() else name, file) in called, (stop, file)


#: How far a figure of the page may be from the one that is counted: it says "about".
TOLERANCE = 0.15


def _is_about(figure: str, counted: int) -> bool:
    return abs(int(figure) - counted) <= TOLERANCE * counted


def test_the_page_counts_the_files_and_functions_of_a_walk(
    prepared: FileStorageConnector,
) -> None:
    figures = re.findall(r"about (\d+) files and (\d+) functions", PAGE)
    loaded = calls_of(lambda: data_stack.load("digits", split="train", storage=prepared))
    stacked = calls_of(load_a_shuffled_batch)

    (files_loaded, functions_loaded), (files_stacked, functions_stacked) = figures

    assert _is_about(files_loaded, len({file for _, file in loaded}))
    assert _is_about(functions_loaded, len(loaded))
    assert _is_about(files_stacked, len({file for _, file in stacked}))
    assert _is_about(functions_stacked, len(stacked))
