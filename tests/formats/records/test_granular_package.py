"""What the real Granular makes of our files, and we of its: 0.24.2, and 0.21.2 for sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import granular
import numpy as np
import pytest
from granular_peer import OldGranular

from data_stack.formats.records import RecordReader, RecordWriter

SPEC = {"blob": "bytes", "count": "int", "id": "i64", "mask": "u64", "text": "utf8", "tree": "tree", "x": "array", "y": "msgpack"}


def sample(i: int) -> dict[str, Any]:
    """With values that Granular's own codecs write rightly."""
    rng = np.random.default_rng(i)
    return {
        "blob": rng.bytes(i % 7),
        "count": i % 100,
        "id": i - 5,
        "mask": 2**63 + i,
        "text": "ä€😀"[: i % 4],
        "tree": {"a": [1, "b", rng.integers(0, 9, (2, i % 3))], "b": None},
        "x": rng.random((i % 4, 3)).astype(np.float32),
        "y": [i, {"k": b"v" * (i % 3)}, 1.5],
    }


def files(folder: Path) -> dict[str, bytes]:
    """All files that Granular has too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("manifest.json", "progress.json")
    }


def write_by_granular(folder: Path, spec: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> None:
    with granular.DatasetWriter(folder, spec, granular.encoders) as writer:
        for each in samples:
            writer.append(each)


@pytest.fixture(scope="module")
def old_granular() -> Iterator[OldGranular]:
    with OldGranular() as peer:
        yield peer


# ---------------------------------------------------------------------- bag + idx, by 0.24.2


def test_our_files_are_granulars_byte_for_byte(tmp_path: Path) -> None:
    samples = [sample(i) for i in range(40)]
    write_by_granular(tmp_path / "theirs", SPEC, samples)

    with RecordWriter(tmp_path / "ours", SPEC) as writer:
        for each in samples:
            writer.append(each)

    assert files(tmp_path / "ours") == files(tmp_path / "theirs")


# ---------------------------------------------------------------------- sequences, by 0.21.2

SEQUENCES = {"frames": "array[]", "id": "i64", "names": "utf8[]", "text": "utf8"}


def sequence_sample(i: int) -> dict[str, Any]:
    return {
        "frames": [np.full((2, k + 1), i % 256, np.uint8) for k in range(i % 4)],
        "id": i,
        "names": [f"name {i} {k}" for k in range((i * 7) % 3)],
        "text": f"text {i}",
    }


def test_our_sequences_are_granulars_byte_for_byte(tmp_path: Path, old_granular: OldGranular) -> None:
    samples = [sequence_sample(i) for i in range(300)]  # numbers of records of one, two and three bytes
    old_granular.write(tmp_path / "theirs", SEQUENCES, samples)

    with RecordWriter(tmp_path / "ours", SEQUENCES) as writer:
        for each in samples[:100]:
            writer.append(each)
        writer.extend({name: [each[name] for each in samples[100:]] for name in SEQUENCES})

    assert files(tmp_path / "ours") == files(tmp_path / "theirs")


@pytest.mark.parametrize("first", [b"", b"a"])
def test_old_granular_reads_empty_records(tmp_path: Path, old_granular: OldGranular, first: bytes) -> None:
    """It refuses to write them itself."""
    samples = [{"blob": blob, "parts": [first, b"", b"c"]} for blob in (first, b"", b"b", b"")]

    with RecordWriter(tmp_path / "ours", {"blob": "bytes", "parts": "bytes[]"}) as writer:
        for each in samples:
            writer.append(each)

    assert old_granular.read(tmp_path / "ours")[1] == samples
    with RecordReader(tmp_path / "ours") as reader:
        assert [reader[i] for i in range(len(reader))] == samples
