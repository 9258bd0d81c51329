"""``data-stack report --html``: one file, safe to open."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from .conftest import Command

HOSTILE = """
    import numpy as np
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator
    from data_stack.dataset.iterator import InformedDatasetIterator
    from data_stack.dataset.meta import DatasetMeta

    class Factory(DatasetFactory):
        '''Noise with <script>alert(0)</script> about it.'''

        card = DatasetCard(name="noise", version="1")
        splits = ("train", "test")

        def preprocess(self, raw, prepared):
            with prepared.create("preprocessed/all") as file:
                file.write(b"x")

        def open(self, split, prepared):
            images = list(np.random.default_rng(0).integers(0, 256, (24, 128, 128, 3), dtype=np.uint8))
            labels = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>'] * 12
            numbers = [float("nan"), *np.linspace(-5, 5, 23)]
            meta = DatasetMeta(column_names=("image", "label", "number"), target_kind="label")
            return InformedDatasetIterator(SequenceDatasetIterator([images, labels, numbers]), meta)
"""


def test_a_page_is_one_small_file_without_scripts(command: Command, install: Callable[..., None], tmp_path: Path) -> None:
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


def test_a_page_and_a_format_are_refused_together(command: Command, tmp_path: Path) -> None:
    outcome = command("report", "digits", "--html", str(tmp_path / "page.html"), "--format", "markdown")

    assert (outcome.code, (tmp_path / "page.html").exists()) == (2, False)


def test_a_page_that_cannot_be_written_is_an_error(command: Command, tmp_path: Path) -> None:
    outcome = command("report", "digits", "--html", str(tmp_path / "missing" / "page.html"))

    assert (outcome.code, "page.html" in outcome.err) == (1, True)
