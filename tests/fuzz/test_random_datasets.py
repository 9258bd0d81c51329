"""Random courses of writing, with kills and cuts: the files are those of writing without interruption."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import FULL, sized

from data_stack.formats.records import Column, RecordReader, RecordWriter

FEW = settings(max_examples=sized(10, 3_000))
# ---------------------------------------------------------------------- courses of writing

SPECS: Mapping[str, Mapping[str, str | Column]] = {
    "columns": {"blob": "bytes", "id": "i64", "x": Column("array", "float32", (3,))},
    "sequences": {"id": "i64", "words": "utf8[]"},
}
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "extend", "flush", "kill", "reopen", "raise"]), st.integers(1, 5)),
    max_size=25,
)


def sample(kind: str, i: int) -> dict[str, Any]:
    if kind == "columns":
        return {"blob": bytes([i % 256]) * (i * 7 % 23), "id": i, "x": np.full(3, i, np.float32)}
    return {"id": i, "words": [f"{i} {k}" for k in range(i * 3 % 4)]}


class Course:
    """A dataset that is written with interruptions."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder, self._n_kills = kind, folder, 0
        self.path = folder / "data"
        self.writer = self._open()

    def _open(self) -> RecordWriter:
        return RecordWriter(self.path, SPECS[self._kind])

    def take(self, step: str, n: int) -> None:
        start = len(self.writer)
        rows = [sample(self._kind, i) for i in range(start, start + n)]
        if step == "append":
            for row in rows:
                self.writer.append(row, flush=n == 1)
        elif step == "extend":
            self.writer.extend({name: [row[name] for row in rows] for name in rows[0]})
        elif step == "flush":
            self.writer.flush()
        elif step == "kill":
            self.kill()
        elif step == "reopen" and self._kind == "columns":  # sequences are finished once and for all
            self.writer.close()
            self.writer = self._open()
        elif step == "raise":
            self.writer.abandon()
            self.writer = self._open()

    def kill(self, n_lost: int = 0) -> None:
        """Another process finds what lies there at this moment; a power cut took so many bytes off the end of one file."""
        self._n_kills += 1
        copy = self._folder / f"copy {self._n_kills}"
        shutil.copytree(self.path, copy)
        self.writer.abandon()
        self.path = copy
        files = sorted(file for file in copy.iterdir() if file.suffix != ".json" and file.stat().st_size)
        if n_lost and files:
            file = files[n_lost % len(files)]
            os.truncate(file, max(0, file.stat().st_size - n_lost))
        self.writer = self._open()


@pytest.mark.timeout(3_600 if FULL else 150)
@FEW
@given(kind=st.sampled_from(sorted(SPECS)), steps=STEPS, cut=st.integers(0, 9), at=st.integers(0, 24))
def test_interruptions_leave_no_trace(kind: str, steps: list[tuple[str, int]], cut: int, at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        course = Course(kind, Path(folder))
        for number, (step, n) in enumerate(steps):
            course.take(step, n)
            if number == at and not any(course.path.glob("manifest.json")):
                course.kill(cut)
        while len(course.writer) < 12:
            course.take("append", 1)
        n_samples = len(course.writer)
        course.writer.close()
        straight = Path(folder) / "straight"
        with RecordWriter(straight, SPECS[kind]) as writer:
            for i in range(n_samples):
                writer.append(sample(kind, i))

        found = {file.name: file.read_bytes() for file in course.path.iterdir()}
        expected = {file.name: file.read_bytes() for file in straight.iterdir()}
        with RecordReader(course.path) as reader:
            reader.verify()
            assert len(reader) == n_samples

    assert found == expected
