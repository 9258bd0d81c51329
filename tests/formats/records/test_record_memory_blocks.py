"""Memory that is used again and again, and by nobody else meanwhile."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_stack.formats.records import Column, RecordReader, RecordWriter
from data_stack.formats.records.memory_blocks import BLOCK_BYTES, MemoryBlocks

SIZES = st.sampled_from([0, 1, BLOCK_BYTES // 8, BLOCK_BYTES // 2 + 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES + 1])


@given(st.lists(st.tuples(SIZES, st.booleans(), st.booleans()), max_size=30))
def test_what_somebody_has_a_view_of_is_lent_to_nobody_else(steps: list[tuple[int, bool, bool]]) -> None:
    blocks = MemoryBlocks()
    kept = []
    for number, (size, is_joined, is_kept) in enumerate(steps):
        if is_joined:
            data = blocks.joined([bytes([number]) * (size // 2), b"", bytes([number]) * (size - size // 2)])
        else:
            data = blocks.room(size)
            np.frombuffer(data, np.uint8)[...] = number
        assert memoryview(data).nbytes == size
        if is_kept:
            kept.append((number, np.frombuffer(data, np.uint8)))  # a view of a view

    for number, values in kept:
        assert (values == number).all()


def test_memory_that_nobody_views_any_more_is_used_again() -> None:
    blocks = MemoryBlocks()
    addresses = set()
    for _ in range(50):
        data = np.frombuffer(blocks.room(BLOCK_BYTES), np.uint8)
        addresses.add(data.ctypes.data)
        del data
        gc.collect(0)

    assert len(addresses) == 1


def test_pieces_of_any_size_are_written_and_hashed_as_they_were_given(tmp_path: Path) -> None:
    """Blocks come back from the threads that hash while others are filled."""
    choice = np.random.default_rng(7)
    blobs = [choice.bytes(int(size)) for size in choice.choice([0, 1_000, 200_000, 700_000, 3_000_000], 40)]
    x = choice.random((3_000, 300))
    spec = {"x": Column("array", "float64", (300,))}

    with RecordWriter(tmp_path / "blobs", {"blob": "bytes"}) as writer:
        for blob in blobs[:20]:
            writer.append({"blob": blob})
        writer.extend({"blob": blobs[20:]})
    with RecordWriter(tmp_path / "x", spec) as writer:
        for row in x[:1_000]:
            writer.append({"x": row})
        writer.extend({"x": x[1_000:].copy()})

    with RecordReader(tmp_path / "blobs") as reader:
        reader.verify()
        assert [sample["blob"] for sample in reader] == blobs
    with RecordReader(tmp_path / "x") as reader:
        reader.verify()
        assert np.array_equal(reader.read_batch(range(3_000))["x"], x)
