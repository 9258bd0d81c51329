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
from data_stack import InMemoryStorageConnector, Loader, SequenceDatasetIterator

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "data_stack"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def read_a_shuffled_batch() -> None:
    SequenceDatasetIterator([np.arange(100)]).shuffle(seed=1).read_batch([5, 3])


def load_a_shuffled_batch() -> None:
    next(iter(Loader(SequenceDatasetIterator([np.arange(100)]).shuffle(seed=1), 8, workers=0)))


def load_a_dataset() -> None:
    data_stack.load("digits", split="train", storage=InMemoryStorageConnector())


def calls_of(walk: Callable[[], None]) -> set[tuple[str, str]]:
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
    ours = [(name, Path(file)) for name, file in called if file.startswith(str(ROOT))]
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
