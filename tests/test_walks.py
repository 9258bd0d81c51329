"""The walks of the architecture page go through the files and functions that it names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import numpy as np

from data_stack import SequenceDatasetIterator

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "data_stack"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_a_shuffled_batch_goes_as_the_page_says_and_through_few_files() -> None:
    walk = PAGE[PAGE.index("iterator.shuffle(seed=1)\n") : PAGE.index("From `next()` to the file")]
    stops = re.findall(r"([\w.]+) {2,}([\w/]+\.py)", walk)
    source = SequenceDatasetIterator([np.arange(100)])
    source.shuffle(seed=1).read_batch([0])  # imports everything
    called = set[tuple[str, str]]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            called.add((frame.f_code.co_name, path.relative_to(PACKAGE).as_posix()))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        source.shuffle(seed=1).read_batch([5, 3])
    finally:
        sys.setprofile(before)

    files = {file for _, file in called} - {"dataset/iterator/layers/sequence.py"}  # the source
    assert files == {file for _, file in stops}
    assert len(files) <= 12
    for stop, file in stops:
        name = stop.rpartition(".")[2]
        assert ("__init__" if name[0].isupper() else name, file) in called, (stop, file)
