"""Damaged records, shards, folders of images, Parquet and Arrow: the truth, or an error of ours;
what the fuzzer found, as plain tests.

``make test-full`` runs 100,000 mutants, ``make test`` a few.
"""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz_mutations import resealed
from process_harness import Harness
from sizes import FULL, SEED

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import records
from data_stack.formats.records import RecordWriter
from data_stack.util.untrusted_text import seal_json


def write(folder: Path, **values: Any) -> Path:
    """A dataset of two samples with a column for each argument, whose values are (type or
    ColumnType, value).
    """
    with RecordWriter(folder, {name: kind for name, (kind, _) in values.items()}) as writer:
        for _ in range(2):
            writer.append({name: value for name, (_, value) in values.items()})
    return folder


def seal_again(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Forge a manifest: its digests are right, its facts are not."""
    manifest = folder / "manifest.json"
    beside = {file.name: file.read_bytes() for file in folder.iterdir()}
    fields = json.loads(resealed(manifest.read_bytes(), beside))
    change(fields)
    del fields["digest"]
    manifest.write_bytes(seal_json(fields))


def test_an_index_shorter_than_its_manifest_promises_is_damage(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", text=("utf8", "ab"))
    (folder / "text.idx").write_bytes((folder / "text.idx").read_bytes()[:-8])
    seal_again(folder, lambda fields: None)

    for mapped in (True, False):
        with (
            records.open(folder, mapped=mapped) as reader,
            pytest.raises(DatasetFileCorruptError, match=r"text.*idx"),
        ):
            reader[0]


@pytest.mark.parametrize(
    "shape", ["[4611686018427387904]", "[1099511627776, 1099511627776, 3]", "[70000, 70000, 3]"]
)
@pytest.mark.parametrize("kind", ["png", "wav"])
def test_a_shape_that_no_memory_holds_is_not_believed(
    tmp_path: Path, shape: str, kind: str
) -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    folder = write(
        tmp_path / "data",
        x=(kind, pixels if kind == "png" else (pixels[0, 0].astype(np.int16), 8000)),
    )
    seal_again(folder, lambda fields: fields["columns"][0].update(dtype="|u1", shape=shape))

    with records.open(folder) as reader:
        assert len(reader.read_batch([0, 1])["x"]) == 2


def another_file(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields["files"].append({**fields["files"][0], "name": name})


def without_file(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields.update(
        files=[each for each in fields["files"] if each["name"] != name]
    )


@pytest.mark.parametrize(
    ("value", "change", "message"),
    [
        (
            ("utf8", ""),
            lambda fields: (
                fields["columns"][0].update(record_bytes=0),
                fields.update(count=2**32 - 1),
            ),
            r"x.*idx",
        ),
        *(
            (("i64", 7), lambda fields, t=t: fields["columns"][0].update(dtype=t), "x")
            for t in ("|S9", "<f8", "<M8[s]")
        ),
        *(
            (("i64", 7), another_file(n), "not a file of its columns")
            for n in ("../outside", "/etc/hostname", "\0", "other.bag")
        ),
        *(
            (("utf8", "ab"), without_file(n), f"no digest of '{n}'")
            for n in ("x.bag", "x.idx", "spec.json")
        ),
    ],
)
def test_a_forged_manifest_is_not_believed(
    tmp_path: Path, value: Any, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    folder = write(tmp_path / "data", x=value)
    (tmp_path / "outside").write_bytes(b"secret")
    seal_again(folder, change)

    for mapped in (True, False):
        with (
            pytest.raises(DatasetFileCorruptError, match=message),
            records.open(folder, mapped=mapped) as reader,
        ):
            reader.verify()
            reader.read_batch(range(min(2, len(reader))))


def test_a_writer_follows_no_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "spec.json").symlink_to("../nowhere")

    with RecordWriter(tmp_path / "data", {"label": "i64"}):
        pass

    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    assert not (tmp_path / "data" / "spec.json").is_symlink()


def test_a_writer_refuses_a_manifest_that_leaves_a_file_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", label=("i64", 7))
    seal_again(folder, without_file("label.idx"))

    with (
        pytest.raises(DatasetFileCorruptError, match=r"label\.idx"),
        RecordWriter(folder, {"label": "i64"}),
    ):
        pass


# ---------------------------------------------------------------------- mutants


N_CHUNKS = 10 if FULL else 1
"""Processes, one after the other on each processor, so that what leaks or hoards memory in one is noticed."""


@pytest.mark.timeout(4 * 3600 if FULL else 300)
@pytest.mark.parametrize(
    ("kind", "n_mutants"),
    [
        ("records", 20_000 if FULL else 40),
        ("files", 40_000 if FULL else 40),
        ("arrow", 40_000 if FULL else 40),
    ],
)
def test_a_mutant_is_the_truth_or_an_error_of_ours(
    kind: str, n_mutants: int, processes: Harness, record_property: Callable[[str, object], None]
) -> None:
    chunk = n_mutants // N_CHUNKS
    with ThreadPoolExecutor(os.cpu_count()) as threads:

        def run(first: int) -> tuple[dict[str, int], list[str]]:
            outcome = processes.run(
                "fuzz_child:run",
                kind,
                SEED,
                first,
                first + chunk,
                timeout_seconds=3600 if FULL else 280,
            )
            if outcome.value is None:  # the last number in the output is that of the mutant
                return {}, [
                    f"{kind} {SEED}: status {outcome.status}\n{outcome.output[-3_000:]}{outcome.message}"
                ]
            return outcome.value["counts"], outcome.value["failures"]

        answers = list(threads.map(run, range(0, n_mutants, chunk)))

    counts: collections.Counter[str] = collections.Counter()
    for each, _ in answers:
        counts.update(each)
    counts["slowest, ms"] = max(each.get("slowest, ms", 0) for each, _ in answers)
    failures = [failure for _, found in answers for failure in found]
    record_property("figures", f"{kind}: {dict(counts)}, {len(failures)} failures")
    assert not failures, f"{len(failures)} of {n_mutants} failed:\n" + "\n\n".join(failures[:5])
    assert counts["executions"] == n_mutants
