"""Which files are the splits of a dataset: as ``datasets`` finds them, too."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from data_stack_huggingface.layout import split_files
from datasets.data_files import DataFilesPatternsDict, get_data_patterns, sanitize_patterns
from fsspec.utils import glob_translate

from data_stack.exception import CatalogueError, RevisionNotFoundError

LISTINGS = {
    "shards": ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/extra-00000-of-00001.parquet"],
    "folders": ["train/a.parquet", "train/b/c.parquet", "my-test-set/d.parquet", "valid/e.parquet", "trainer/f.parquet"],
    "names": ["train.parquet", "x/test_1.parquet", "dev-a.parquet", "contest.parquet", "data_eval.parquet"],
    "one": ["a.parquet", "b/c.parquet", ".hidden/d.parquet", "__tmp/e.parquet", "README.md"],
    "several digits": ["train2.parquet", "train 3.parquet", "testing.parquet"],
    "part": ["data/part/train.parquet", "data/part/test.parquet", "other/train.parquet"],
}
PATTERNS: dict[str, Any] = {
    "a file": "train/a.parquet",
    "a list": ["train/*.parquet", "valid/*"],
    "splits": [{"split": "train", "path": ["train/**", "valid/*.parquet"]}, {"split": "odd", "path": "*/[d-f].parquet"}],
    "any depth": "**/*.parquet",
}


def theirs(folder: Path, given: Any, data_dir: str | None) -> dict[str, list[str]]:
    """The splits that ``datasets`` finds in a folder."""
    base = str(folder / (data_dir or ""))
    patterns = sanitize_patterns(given) if given is not None else get_data_patterns(base)
    found = DataFilesPatternsDict.from_patterns(patterns).resolve(base).filter(extensions=[".parquet"])
    return {split: [os.path.relpath(file, folder) for file in files] for split, files in found.items() if files}


@pytest.mark.parametrize(
    ("listing", "pattern", "data_dir"),
    [
        *((listing, None, None) for listing in LISTINGS),
        *(("folders", name, None) for name in PATTERNS),
        ("part", None, "data/part"),
    ],
)
def test_splits_are_those_that_datasets_finds(tmp_path: Path, listing: str, pattern: str | None, data_dir: str | None) -> None:
    for path in LISTINGS[listing]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    given = None if pattern is None else PATTERNS[pattern]
    config = {"data_dir": data_dir} if pattern is None else {"data_files": given}

    found = split_files("team/set", {"configs": [config]}, LISTINGS[listing], None)

    expected = theirs(tmp_path, given, data_dir)
    assert {split: sorted(files) for split, files in found.items()} == {
        split: sorted(set(files)) for split, files in expected.items()
    }
    assert list(found) == list(expected)


def test_the_default_configuration_is_marked_or_alone_or_called_so() -> None:
    paths = ["a/0.parquet", "b/0.parquet"]
    a, b = ({"config_name": name, "data_files": f"{name}/*"} for name in "ab")

    assert split_files("s", {"configs": [a]}, paths, None) == {"train": ["a/0.parquet"]}
    assert split_files("s", {"configs": [a, b | {"default": True}]}, paths, None) == {"train": ["b/0.parquet"]}
    assert split_files("s", {"configs": [a, b | {"config_name": "default"}]}, paths, None) == {"train": ["b/0.parquet"]}
    with pytest.raises(RevisionNotFoundError, match="several configurations"):
        split_files("s", {"configs": [a, b]}, paths, None)


@pytest.mark.parametrize("configs", ["x", [1], [{"data_files": [{"split": "train"}]}], [{"data_files": 3}], {"a": 1}])
def test_a_damaged_card_is_an_error(configs: Any) -> None:
    with pytest.raises(CatalogueError, match=r"configs in the card of hf:s are damaged"):
        split_files("s", {"configs": configs}, ["a.parquet"], None)


def test_hostile_patterns_of_a_card_end() -> None:
    paths = [f"{'a' * 100}/{'a' * 200}.parquet"]

    with pytest.raises(CatalogueError, match="no files match"):
        split_files("s", {"configs": [{"data_files": "**/" * 50 + "*a" * 50 + "*b"}]}, paths, None)


def test_a_pattern_with_folders_of_any_depth_matches_as_in_fsspec() -> None:
    paths = ["a.parquet", "x/a.parquet", "x/y/a.parquet", "x/y/z/b.parquet", "y/a.parquet"]
    for pattern in (
        "**",
        "x/**",
        "**/a.parquet",
        "x/**/*.parquet",
        "**/y/**/*.parquet",
        "*/a.parquet",
        "x/*/?.parquet",
        "**/**",
        "*",
    ):
        expected = [path for path in paths if re.fullmatch(glob_translate(pattern), path)]

        found = split_files("s", {"configs": [{"data_files": pattern}]}, paths, None)

        assert found.get("train", []) == expected, pattern
