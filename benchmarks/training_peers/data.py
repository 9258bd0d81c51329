"""Made-up data of the training programs: JPEGs, tokens, a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

N_IMAGES = 4000
N_TOKENS = 128_000_000
N_CELLS = 56_000_000
N_COLUMNS = {"tables": 14, "tables of 3": 3, "tables of 200": 200, "tables with nulls": 14}


def make_images(folder: Path, small: bool) -> None:
    """JPEGs of 500 × 375 in ten folders, one for each class; as large as photographs of this size
    (about 50 KB).
    """
    import cv2

    rng = np.random.default_rng(0)
    for number in range(N_IMAGES // 10 if small else N_IMAGES):
        image = np.zeros((375, 500, 3), np.float32)
        for size, weight in ((6, 90), (24, 50), (96, 30)):
            image += weight * cv2.resize(
                rng.random((size, size, 3), np.float32), (500, 375), interpolation=cv2.INTER_CUBIC
            )
        image += rng.normal(0, 6, image.shape)
        path = folder / f"class_{number % 10}" / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True, parents=True)
        cv2.imwrite(
            str(path), np.clip(image + 40, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 92]
        )


def make_tokens(folder: Path, small: bool) -> None:
    """``tokens.npy``: uint16, shape ``(n_tokens,)``."""
    folder.mkdir(parents=True)
    n_tokens = N_TOKENS // (16 if small else 1)
    np.save(
        folder / "tokens.npy",
        np.random.default_rng(0).integers(0, 50_000, n_tokens).astype(np.uint16),
    )


def make_table(folder: Path, small: bool) -> None:
    """Four files of Parquet, in row groups of 50,000 rows (of 200 columns: 5,000): half of the
    columns float32, half int64.

    With nulls, a tenth of the values of each column is null.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    rng, n_columns, group_rows = (
        np.random.default_rng(0),
        N_COLUMNS[folder.name],
        50_000 if N_COLUMNS[folder.name] < 200 else 5_000,
    )
    n_rows = N_CELLS // n_columns // (5 if small else 1) // 4
    for number in range(4):
        columns = {}
        for column in range(n_columns):
            values = (
                rng.random(n_rows, np.float32) if column % 2 else rng.integers(0, 1 << 40, n_rows)
            )
            columns[f"c{column:02}"] = pa.array(
                values, mask=rng.random(n_rows) < 0.1 if "nulls" in folder.name else None
            )
        pq.write_table(
            pa.table(columns), folder / f"part-{number}.parquet", row_group_size=group_rows
        )


MAKERS = {"images": make_images, "tokens": make_tokens, **dict.fromkeys(N_COLUMNS, make_table)}
