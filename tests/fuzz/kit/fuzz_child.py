"""Damages datasets and reads them, one after the other, in a process that may crash.

    python tests/fuzz/kit/fuzz_child.py KIND SEED FIRST STOP REPORT

Mutant ``i`` depends on KIND, SEED and ``i`` alone, so that one that failed can be made again: ``… KIND SEED i i+1 -`` shows it.
REPORT is a file: 8 bytes with the number of the mutant at work, then JSON with counts and the failures.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from fuzz_datasets import VALUES, FuzzDataset, fuzz_datasets
from fuzz_files import DamagedFiles
from fuzz_mutations import Mutant, Special, mutant_of, mutated_bytes
from fuzz_readings import Attempt, Violation, read_records

from data_stack.codecs import Codec, codec_of

KINDS = ("codecs", "folder", "files")
_MEMORY_BYTES = 4 << 30
_GROWTH_BYTES = 1500 << 20
_MAX_FAILURES = 20

_HUNG_SECONDS = 60.0

Counts = collections.Counter[str]


class Hung(BaseException):
    """A mutant hangs; not an Exception, so that no codec catches it."""


def _hung(*_: object) -> None:
    raise Hung(f"more than {_HUNG_SECONDS} s")


class _Codecs:
    """Records of each codec, damaged and decoded."""

    def __init__(self) -> None:
        slow = {"mp4": 1, "webm": 1, "flac": 8, "wav": 20, "webp": 10, "jpg": 20, "png": 20}
        self._codecs: list[tuple[str, Codec, list[bytes]]] = []
        for kind, value in VALUES.items():
            codec = codec_of(kind)
            self._codecs.append((kind, codec, [codec.encode(value(i)) for i in range(1, 4)]))
        self._weights = [slow.get(kind, 60) for kind, _, _ in self._codecs]

    def execute(self, chance: random.Random, counts: Counts) -> None:
        kind, codec, seeds = chance.choices(self._codecs, self._weights)[0]
        record = chance.choice(seeds)
        for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
            record = mutated_bytes(record, chance, seeds)
        try:
            value = codec.decode(record)
            counts["records with a value"] += 1
        except Exception as error:  # the reader reports any of them as damage
            if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
                raise Violation(f"codec {kind}: a lack of memory") from error
            value = None
            counts["records refused"] += 1
        layout = codec.layout_of(record)  # never raises
        if layout is not None and layout.dtype.itemsize and kind not in ("i64", "u64"):
            if value is None and layout.dtype.kind not in "bU":
                raise Violation(f"codec {kind}: a layout, but no value")
            if value is not None and (value.dtype, value.shape) != (layout.dtype, layout.shape):
                raise Violation(f"codec {kind}: another layout, {layout}")


class _Datasets:
    """Datasets of every layout, damaged and read."""

    def __init__(self, folder: Path) -> None:
        self._datasets = fuzz_datasets()
        self._weights = [dataset.weight for dataset in self._datasets]
        self._folder = folder
        for number, dataset in enumerate(self._datasets):
            for name, data in dataset.files.items():
                _write(folder / str(number) / name, data)

    def execute(self, chance: random.Random, counts: Counts) -> None:
        number = chance.choices(range(len(self._datasets)), self._weights)[0]
        mutant = mutant_of(self._datasets[number], chance)
        try:
            self._read(number, mutant, chance, counts)
        except BaseException as error:
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(
                    f"{mutant.dataset.name}: {'; '.join(mutant.done)} ({mutant.promise}, damaged: {mutant.is_damaged})"
                )
            raise

    def _read(self, number: int, mutant: Mutant, chance: random.Random, counts: Counts) -> None:
        folder = self._folder / str(number)
        changed = _changed(mutant.dataset, mutant)
        try:
            for name in changed:
                _replace(folder, name, mutant)
            attempts = read_records(folder, mutant.promise, mutant.is_damaged, mutant.dataset.truth, chance)
        finally:
            for name in changed:
                _remove(folder / name)
                if "/" in name:
                    with contextlib.suppress(OSError):  # something is in it, or it is gone
                        (folder / name).parent.rmdir()
            for name in changed:
                if name in mutant.dataset.files:
                    _write(folder / name, mutant.dataset.files[name])
        _count(counts, attempts)
        counts[f"mutants: {mutant.promise}"] += 1


def _count(counts: Counts, attempts: list[Attempt]) -> None:
    n_values = sum(attempt.error is None for attempt in attempts)
    counts.update({"readings with a value": n_values, "readings refused": len(attempts) - n_values})


def _changed(dataset: FuzzDataset, mutant: Mutant) -> list[str]:
    names = {*dataset.files, *mutant.files, *mutant.specials}
    return sorted(name for name in names if name in mutant.specials or mutant.files.get(name) != dataset.files.get(name))


def _replace(folder: Path, name: str, mutant: Mutant) -> None:
    path = folder / name
    _remove(path)
    if name in mutant.specials:
        _make_special(path, folder, mutant.specials[name])
    elif name in mutant.files:
        _write(path, mutant.files[name])


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _make_special(path: Path, folder: Path, special: Special) -> None:
    path.parent.mkdir(exist_ok=True)
    if special.kind == "folder":
        path.mkdir()
    elif special.kind == "pipe":
        os.mkfifo(path)
    else:
        targets = {"loop": path.name, "dangling": "nowhere", "null": "/dev/zero"}
        path.symlink_to(targets.get(special.kind) or folder / special.kind.removeprefix("other "))


class _Budget:
    """Memory and time of one execution."""

    def __init__(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + _MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def check(self) -> None:
        """Raise Violation if the peak has grown by far since the last time."""
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grown, self._held = held - self._held, held
        if grown * 1024 > _GROWTH_BYTES:
            raise Violation(f"{grown >> 10} MiB more memory for one mutant")


def _executor(kind: str, folder: Path) -> Callable[[random.Random, Counts], None]:
    if kind == "codecs":
        return _Codecs().execute
    if kind == "folder":
        return _Datasets(folder).execute
    run = DamagedFiles(folder).execute
    return lambda chance, counts: _count(counts, run(chance))


def main(kind: str, seed: int, first: int, stop: int, report: str) -> None:
    """Run the mutants ``first`` to ``stop``."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _hung)
    np.seterr(all="ignore")
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    handle = -1 if report == "-" else os.open(report, os.O_RDWR | os.O_CREAT)
    counts: Counts = collections.Counter()
    failures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="data_stack-fuzz-", dir=in_memory) as folder:
        execute = _executor(kind, Path(folder))
        budget = _Budget()
        for number in range(first, stop):
            if handle >= 0:
                os.pwrite(handle, struct.pack("<Q", number), 0)
            started = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, _HUNG_SECONDS)
            try:
                execute(random.Random(f"{kind} {seed} {number}"), counts)
                budget.check()
            except (Exception, Hung) as error:
                text = "".join(traceback.format_exception(error))
                failures.append({"kind": kind, "seed": seed, "number": number, "error": text})
                if report == "-":
                    print(text, flush=True)
            counts["executions"] += 1
            counts["slowest, ms"] = max(counts["slowest, ms"], round(1000 * (time.process_time() - started)))
            if len(failures) >= _MAX_FAILURES and report != "-":
                break
    answer = json.dumps({"counts": counts, "failures": failures})
    if handle >= 0:
        os.pwrite(handle, answer.encode(), 8)
    else:
        print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
