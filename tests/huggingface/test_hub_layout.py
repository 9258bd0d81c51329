"""Which files are the splits of a dataset: as ``datasets`` finds them, too."""

from __future__ import annotations

from typing import Any

import pytest
from data_stack_huggingface.layout import split_files

from data_stack.exception import CatalogueError


@pytest.mark.parametrize("configs", ["x", [1], [{"data_files": [{"split": "train"}]}], [{"data_files": 3}], {"a": 1}])
def test_a_damaged_card_is_an_error(configs: Any) -> None:
    with pytest.raises(CatalogueError, match=r"configs in the card of hf:s are damaged"):
        split_files("s", {"configs": configs}, ["a.parquet"], None)


def test_hostile_patterns_of_a_card_end() -> None:
    paths = [f"{'a' * 100}/{'a' * 200}.parquet"]

    with pytest.raises(CatalogueError, match="no files match"):
        split_files("s", {"configs": [{"data_files": "**/" * 50 + "*a" * 50 + "*b"}]}, paths, None)
