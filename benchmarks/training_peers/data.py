"""Made-up data of the training programs: JPEGs, tokens, a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

N_IMAGES = 4000
N_TOKENS = 128_000_000
N_ROWS = 4_000_000
N_COLUMNS = 14


def make_images(folder: Path, small: bool) -> None:
    """JPEGs of 500 × 375 in ten folders, one for each class; as large as photographs of this size (about 50 KB)."""
    import cv2

    rng = np.random.default_rng(0)
    for number in range(N_IMAGES // 10 if small else N_IMAGES):
        image = np.zeros((375, 500, 3), np.float32)
        for size, weight in ((6, 90), (24, 50), (96, 30)):
            image += weight * cv2.resize(rng.random((size, size, 3), np.float32), (500, 375), interpolation=cv2.INTER_CUBIC)
        image += rng.normal(0, 6, image.shape)
        path = folder / f"class_{number % 10}" / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True, parents=True)
        cv2.imwrite(str(path), np.clip(image + 40, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 92])


def make_tokens(folder: Path, small: bool) -> None:
    """``tokens.npy``: uint16, shape ``(n_tokens,)``."""
    folder.mkdir(parents=True)
    n_tokens = N_TOKENS // (16 if small else 1)
    np.save(folder / "tokens.npy", np.random.default_rng(0).integers(0, 50_000, n_tokens).astype(np.uint16))


def make_table(folder: Path, small: bool) -> None:
    """Four files of Parquet, in row groups of 50,000 rows: half of the columns float32, half int64."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    rng, n_rows = np.random.default_rng(0), N_ROWS // (20 if small else 1) // 4
    for number in range(4):
        columns = {
            f"c{column:02}": rng.random(n_rows, np.float32) if column % 2 else rng.integers(0, 1 << 40, n_rows)
            for column in range(N_COLUMNS)
        }
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=50_000)


MAKERS = {"images": make_images, "tokens": make_tokens, "tables": make_table}
