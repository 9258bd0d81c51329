"""``docs/reference/splits_and_classes.md`` is right about splits and classes: the places in its tables are made and
loaded.
"""

from __future__ import annotations

import io
import re
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from writing import image_bytes

import data_stack

PAGE = Path(data_stack.__file__).parents[1] / "docs" / "reference" / "splits_and_classes.md"


def rows_of(section: str) -> list[tuple[list[str], list[str]]]:
    """The names in the two columns of the first table of a section."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = []
    for line in text.splitlines():
        cells = line.strip("|").split("|")
        if len(cells) == 2 and "`" in cells[0]:
            places, answer = (re.findall("`([^`]+)`", cell) for cell in cells)
            rows.append((places, answer))
    return rows


def make(place: Path, names: list[str]) -> None:
    for name in names:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.table({"x": [1]}), path)
        elif path.suffix == ".png":
            path.write_bytes(image_bytes(np.zeros((2, 3), np.uint8)))
        elif path.suffix == ".tar":
            with tarfile.open(path, "w") as tar:
                member = tarfile.TarInfo(f"{path.stem}.txt")
                member.size = 1
                tar.addfile(member, io.BytesIO(b"x"))
        else:
            path.write_text("x\n1\n")


def load(place: Path) -> Any:
    with warnings.catch_warnings():  # of pictures in no folder of a class
        warnings.simplefilter("ignore", UserWarning)
        return data_stack.load(str(place))


@pytest.mark.parametrize(("names", "splits"), rows_of("Splits"))
def test_a_place_has_the_splits_that_the_page_says(
    names: list[str], splits: list[str], tmp_path: Path
) -> None:
    make(tmp_path, names)

    loaded = load(tmp_path)

    assert (list(loaded) if isinstance(loaded, dict) else []) == splits
    parts = list(loaded.values()) if isinstance(loaded, dict) else [loaded]
    assert sum(map(len, parts)) == len([name for name in names if not name.endswith(".md")])


@pytest.mark.parametrize(("names", "classes"), rows_of("Classes"))
def test_pictures_have_the_classes_that_the_page_says(
    names: list[str], classes: list[str], tmp_path: Path
) -> None:
    make(tmp_path, names)

    loaded = load(tmp_path)

    parts = list(loaded.values()) if isinstance(loaded, dict) else [loaded]
    lists = {part.dataset_meta.class_names for part in parts if hasattr(part, "dataset_meta")}
    assert lists == {tuple(classes)}
    assert sum(map(len, parts)) == len(names)


def test_the_page_has_both_tables() -> None:
    assert len(rows_of("Splits")) >= 10
    assert len(rows_of("Classes")) >= 6
