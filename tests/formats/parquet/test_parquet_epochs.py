"""Epoch after epoch the same rows, whichever workers read them: Petastorm lost some in up to four of ten epochs.

``DATA_STACK_EPOCHS=1000`` makes it a thousand epochs with 1 to 10 workers of each kind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sizes import sized

from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.selecting import col
from data_stack.loader import BlockShuffled, Loader

N_EPOCHS = int(os.environ.get("DATA_STACK_EPOCHS", "0"))
WORKERS: dict[Any, Any] = {
    "inline": [None],
    "threads": range(1, 11) if N_EPOCHS else (10,),
    "processes": range(1, 11) if N_EPOCHS else (2,),
}
N_ROWS = 200


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same rows in one row group, and in 20 in four files."""
    folders = {}
    for n_groups in (1, 20):
        folders[n_groups] = folder = tmp_path_factory.mktemp("rows")
        n_files = 1 if n_groups == 1 else 4
        for part in range(n_files):
            ids = np.arange(part * N_ROWS // n_files, (part + 1) * N_ROWS // n_files)
            table = pa.table({"id": ids, "square": ids**2, "text": [f"row {number}" for number in ids], "odd": ids % 2 == 1})
            pq.write_table(table, folder / f"{part}.parquet", row_group_size=N_ROWS // n_groups)
    return folders


@pytest.mark.timeout(4 * 3600 if N_EPOCHS else 300)
@pytest.mark.filterwarnings("ignore:worker process .* takes long:RuntimeWarning")  # on a machine that is busy
@pytest.mark.parametrize("n_groups", [1, 20])
@pytest.mark.parametrize(("kind", "workers"), [(kind, n) for kind, numbers in WORKERS.items() for n in numbers])
def test_every_epoch_has_exactly_the_rows_whole_and_in_another_order(
    folders: dict[int, Path], kind: Any, workers: int | None, n_groups: int
) -> None:
    dataset = ParquetDataset(folders[n_groups], filters=col("id") != 77)
    expected = [number for number in range(N_ROWS) if number != 77]
    orders = []

    with Loader(dataset, 16, shuffle=BlockShuffled(window=3), seed=0, worker_kind=kind, workers=workers) as loader:
        for _ in range(N_EPOCHS or sized(6, 25)):
            ids = []
            for batch in loader:
                numbers = batch["id"].tolist()
                ids += numbers
                assert batch["square"].tolist() == [number**2 for number in numbers]
                assert batch["text"].tolist() == [f"row {number}" for number in numbers]
                assert batch["odd"].tolist() == [number % 2 == 1 for number in numbers]
            assert sorted(ids) == expected
            orders.append(tuple(ids))

    assert len(set(orders)) == len(orders)
