"""Any spec, samples and course of writing: what comes out is what went in, for us and for the real Granular."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import granular
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from sizes import FULL, sized

from data_stack.formats import records
from data_stack.formats.records import Column, RecordReader, RecordWriter

FEW = settings(max_examples=sized(10, 3_000))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ARRAYS = nps.arrays(
    st.sampled_from([np.dtype(name) for name in ("u1", "<i8", ">i4", "<f4", "<f8", "<c8", "?", "<U3")]),
    nps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    elements={"allow_nan": False},
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), TEXT, st.binary(max_size=8)
)
TREES = st.recursive(LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXT, part, max_size=3), max_leaves=6)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "array": ARRAYS,
    "bytes": st.binary(max_size=20),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "int": st.integers(-(2**100), 2**100),
    "msgpack": TREES,
    "tree": TREES | ARRAYS,
    "u64": st.integers(0, 2**64 - 1),
    "utf8": TEXT,
}
NAMES = st.from_regex(r"[a-z_][a-zA-Z0-9_ .-]{0,8}", fullmatch=True).filter(lambda name: name != "refs")


@st.composite
def datasets(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """A spec and samples of it."""
    spec = draw(st.dictionaries(NAMES, st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    samples = draw(st.lists(st.fixed_dictionaries({name: VALUES[kind] for name, kind in spec.items()}), max_size=6))
    return spec, samples


def equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return bool(found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes())
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(equal, found, expected))
    if isinstance(expected, dict):
        return bool(found.keys() == expected.keys()) and all(equal(found[key], expected[key]) for key in expected)
    if isinstance(expected, float):
        return bool(found == expected and math.copysign(1, found) == math.copysign(1, expected))
    return type(found) is type(expected) and bool(found == expected)


@pytest.mark.timeout(3_600 if FULL else 150)
@FEW
@given(dataset=datasets(), n_appended=st.integers(0, 6))
def test_random_samples_are_read_by_us_and_by_granular(
    dataset: tuple[dict[str, str], list[dict[str, Any]]], n_appended: int
) -> None:
    spec, samples = dataset
    with tempfile.TemporaryDirectory() as folder:
        with RecordWriter(folder, spec) as writer:
            for sample in samples[:n_appended]:
                writer.append(sample)
            if samples[n_appended:]:
                writer.extend({name: [sample[name] for sample in samples[n_appended:]] for name in spec})

        with granular.DatasetReader(folder, granular.decoders) as theirs:
            read_by_granular = [theirs[i] for i in range(len(theirs))]
        with records.open(folder) as reader:
            reader.verify()
            ways: list[Sequence[Any]] = [
                [reader[i] for i in range(len(reader))],
                list(reader),
                reader.__getitems__(range(len(reader))),
            ]

    for way in (read_by_granular, *ways):
        assert all(map(equal, way, samples))
        assert len(way) == len(samples)


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
