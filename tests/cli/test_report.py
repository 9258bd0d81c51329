"""``data-stack report``: statistics, documents, and a page that is safe to open."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HOSTILE = """
    import numpy as np
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator
    from data_stack.dataset.iterator import InformedDatasetIterator
    from data_stack.dataset.meta import DatasetMeta

    class Factory(DatasetFactory):
        '''Noise with <script>alert(0)</script> about it.'''

        card = DatasetCard(name="noise", version="1")
        splits = ("train", "test")

        def open(self, split, prepared):
            images = list(np.random.default_rng(0).integers(0, 256, (24, 128, 128, 3), dtype=np.uint8))
            labels = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>'] * 12
            meta = DatasetMeta(column_names=("image", "label"), target_kind="label")
            return InformedDatasetIterator(SequenceDatasetIterator([images, labels]), meta)
"""


def test_statistics_tell_of_the_columns_of_each_split(command: Any) -> None:
    columns = command("report", "iris", "--statistics", "--json").json["splits"]["all"]["columns"]

    assert (columns[0]["statistics"]["min"], columns[0]["statistics"]["max"]) == (pytest.approx(0.1), pytest.approx(7.9))
    assert columns[1]["statistics"]["n_distinct"] == 3


def test_a_page_is_one_small_file_without_scripts(command: Any, install: Callable[..., None], tmp_path: Path) -> None:
    install("noise", HOSTILE)

    outcome = command("report", "noise", "--html", str(tmp_path / "page.html"), "--duplicates")

    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (outcome.code, "wrote" in outcome.out) == (0, True)
    assert 100_000 < len(page) < 2_000_000
    assert page.count("data:image/") == 48
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"<script|<img src=x|<link|<iframe|\\son[a-z]+=", re.sub(r'"data:[^"]*"', "", page))
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "There is leakage." in page


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--html", "missing/page.html"], 1, "page.html"),
    ],
)
def test_a_report_that_cannot_be_written_is_an_error(command: Any, arguments: list[str], code: int, said: str) -> None:
    outcome = command("report", "iris", *arguments)

    assert (outcome.code, said in outcome.err) == (code, True)
