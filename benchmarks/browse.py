"""How soon the first page of ``data-stack browse`` is there, and what memory its server takes:
60,000 PNGs, and 10 million rows.

    python benchmarks/browse.py

*start* is from the command to its URL, *page* from there until overview, the first 60 samples and
24 thumbnails have come over HTTP, *filter* until the first 60 samples of a class have; *memory* is
that of the server process, after the page and at its peak after all histograms and a search through
all rows. Targets: a page within 1 s for the pictures and 2 s for the rows, 200 MB.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from display import write_pngs
from harness import Results, in_turn, machine, parser_of

MAX_SECONDS, MAX_BYTES = {"60,000 PNGs": 1.0, "10 M rows": 2.0}, 200e6


def write_rows(folder: Path, n_rows: int) -> None:
    """Ten files of numbers, times and a few texts, in row groups of at most 250,000 rows."""
    folder.mkdir()
    random, n = np.random.default_rng(0), n_rows // 10
    for number in range(10):
        columns = {
            "id": np.arange(n) + number * n,
            "when": np.datetime64("2024-01-01", "us")
            + random.integers(0, 31_536_000, n).astype("m8[s]"),
            "distance": random.gamma(2, 3, n),
            "fare": random.gamma(3, 8, n).astype(np.float32),
            "payment": np.array(["cash", "card", "no charge", "dispute"])[
                random.choice(4, n, p=[0.3, 0.6, 0.06, 0.04])
            ],
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=250_000)


def memory(process: int, key: str) -> float:
    """Bytes, by its name in /proc."""
    return 1024.0 * int(
        Path(f"/proc/{process}/status").read_text().partition(f"{key}:")[2].split()[0]
    )


def browse(folder: Path, where: str) -> list[float]:
    """Seconds until the URL, the page, and a filter; bytes after the page, and at the peak."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "data_stack.cli", "browse", str(folder), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        url = running.stdout.readline().strip()
        found = [time.perf_counter()]

        def ask(path: str, **given: Any) -> bytes:
            with urllib.request.urlopen(
                url.replace("/?", f"/{path}?{urlencode(given)}&")
            ) as answer:
                return bytes(answer.read())

        columns = json.loads(ask("api/overview"))["splits"][0]["columns"]
        ask("api/samples", split=0, start=0)
        for number in [number for number, column in enumerate(columns) if column["has_picture"]]:
            for position in range(24):
                ask("picture", split=0, position=position, column=number)
        found.append(time.perf_counter())
        ask("api/samples", split=0, start=0, where=where)
        found.append(time.perf_counter())
        resident = memory(running.pid, "VmRSS")
        while not json.loads(
            ask("api/histograms", split=0, columns=",".join(map(str, range(len(columns)))))
        )["is_complete"]:
            pass
        while not json.loads(ask("api/samples", split=0, start=0, count=0, where=where))[
            "is_complete"
        ]:
            pass
        peak = memory(running.pid, "VmHWM")
        running.send_signal(signal.SIGINT)
    return [*np.diff([started, *found]).tolist(), resident, peak]


def main() -> None:
    """Measure in turn."""
    given, results = parser_of(__doc__, list(MAX_SECONDS), rounds=3).parse_args(), Results()
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        pngs, rows = Path(folder) / "pngs", Path(folder) / "rows"
        write_pngs(pngs, 6_000 if given.small else 60_000)
        write_rows(rows, 1_000_000 if given.small else 10_000_000)
        ways = {
            "60,000 PNGs": lambda: browse(pngs, '[{"column": 0, "values": ["7"]}]'),
            "10 M rows": lambda: browse(rows, '[{"column": 4, "values": ["dispute"]}]'),
        }
        answers = in_turn(
            "browse", {name: ways[name] for name in given.only}, given.rounds, results
        )
    for number, (case, unit) in enumerate(
        {"start": "s", "page": "s", "filter": "s", "memory": "MiB", "peak": "MiB"}.items()
    ):
        for name, kept in answers.items():
            results.kinds[name] = "ours"
            results.keep(case, name, [each[number] for each in kept], unit)
        results.print(case)
    for name in answers:
        results.at_most(f"{name}, page", "page", name, MAX_SECONDS[name])
        results.at_most(f"{name}, memory", "memory", name, MAX_BYTES)
    results.save(given.json)


if __name__ == "__main__":
    main()
