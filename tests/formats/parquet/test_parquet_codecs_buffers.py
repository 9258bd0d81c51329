"""Numbers and nulls out of Arrow's buffers: equal to what pyarrow makes of them, and without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def test_reading_numbers_lists_and_times_imports_no_pandas(tmp_path: Path) -> None:
    columns = {
        "number": [1, None, 3],
        "flag": [True, False, None],
        "list": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        "time": pa.array([0, 1, None], pa.timestamp("us")),
        "raw": [b"a", None, b"c"],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    program = f"""
import sys
from data_stack.formats.parquet import ParquetDataset

dataset = ParquetDataset({str(tmp_path)!r}, columns=["number", "flag", "list", "time"])
batch = dataset.read_batch([0, 1, 2])
print(batch["list"].shape, batch["number"][1], "pandas" in sys.modules)
"""

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)

    assert result.stdout == "(3, 2) None False\n"
