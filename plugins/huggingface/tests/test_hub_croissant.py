"""Croissant documents of the Hub, whose files are in its repositories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
import pytest
from croissant_documents import document, fields, file_set, parquet
from hub_server import HubServer, Repo

import data_stack

BRANCH = "https://huggingface.co/datasets/team/questions/tree/refs%2Fconvert%2Fparquet"


def rows_of(start: int) -> list[dict[str, Any]]:
    return [
        {"id": f"q{n}", "answers": {"text": ["a"] * n, "start": list(range(n))}}
        for n in range(start, start + 2)
    ]


def described(url: str) -> dict[str, Any]:
    """A document as the Hub makes them."""
    key = {"@id": "questions_splits/name"}
    listing = {
        "dataType": "cr:Split",
        "key": key,
        "data": [{key["@id"]: name} for name in ("train", "validation")],
    }
    listing["field"] = [
        {"@type": "cr:Field", "@id": key["@id"], "name": "name", "dataType": "sc:Text"}
    ]
    repo = {
        "@type": "cr:FileObject",
        "@id": "repo",
        "name": "repo",
        "contentUrl": url,
        "encodingFormat": "git+https",
    }
    repo["sha256"] = "https://github.com/mlcommons/croissant/issues/80"
    source = {"fileSet": {"@id": "files"}}
    pattern = r"questions/(?:partial-)?(train|validation)/.+parquet$"
    split = {"dataType": "sc:Text", "references": {"field": key}}
    split["source"] = {
        **source,
        "extract": {"fileProperty": "fullpath"},
        "transform": {"regex": pattern},
    }
    array = {"isArray": True, "arrayShape": "-1"}
    answers: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": "questions/answers",
        "name": "answers",
        "subField": [],
    }
    for name, kind in (("text", "sc:Text"), ("start", "cr:Int32")):
        taken = {
            "source": {**source, "extract": {"column": "answers"}, "transform": {"jsonPath": name}},
            **array,
        }
        answers["subField"].append(
            {
                "@type": "cr:Field",
                "@id": f"questions/answers/{name}",
                "name": name,
                "dataType": kind,
                **taken,
            }
        )
    columns = [*fields("questions", {"fileSet": "files"}, split=split, id="sc:Text"), answers]
    return document(
        [repo, file_set("files", "repo", "questions/*/*.parquet", "application/x-parquet")],
        questions_splits=listing,
        questions=columns,
    )


@pytest.fixture
def questions(hub: HubServer) -> Repo:
    repo = hub.repos["team/questions"] = Repo()
    files = {
        f"questions/{split}/0000.parquet": parquet(rows_of(start))
        for split, start in (("train", 0), ("validation", 2))
    }
    repo.commit({**files, "other/train/0000.parquet": b"no parquet"}, "refs/convert/parquet")
    repo.commit({"README.md": b"", **{path: parquet(rows_of(7)) for path in files}})
    return repo


def publish(folder: Path, url: str) -> Path:
    place = folder / "croissant.json"
    place.write_text(json.dumps(described(url)))
    return place


def test_a_repository_is_read_as_mlcroissant_reads_a_clone(questions: Repo, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for path, data in questions.commits[questions.refs["refs/convert/parquet"]].items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_bytes(data)
    place = publish(tmp_path, BRANCH)

    splits = data_stack.from_croissant(place, tmp_path / "store")

    theirs = list(mlcroissant.Dataset(jsonld=place, mapping={"repo": clone}).records("questions"))
    ours = [(split, sample) for split, samples in splits.items() for sample in samples]
    assert [split for split, _ in ours] == [row["questions/split"].decode() for row in theirs]
    assert [sample["id"] for _, sample in ours] == [row["questions/id"].decode() for row in theirs]
    for (_, sample), row in zip(ours, theirs, strict=True):
        answers = row["questions/answers"]
        assert list(sample["answers.text"]) == [
            text.decode() for text in answers["questions/answers/text"]
        ]
        np.testing.assert_array_equal(sample["answers.start"], answers["questions/answers/start"])


@pytest.mark.parametrize(
    "url",
    [
        "https://huggingface.co/datasets/team/questions",
        "https://huggingface.co/datasets/team/questions/",
        "https://huggingface.co/datasets/team/questions/tree/main",
        "https://huggingface.co/datasets/team/questions.git",
        "git+https://hf.co/datasets/team/questions",
        "git@hf.co:datasets/team/questions.git",
    ],
)
def test_urls_of_a_repository(questions: Repo, tmp_path: Path, url: str) -> None:
    splits = data_stack.from_croissant(publish(tmp_path, url), tmp_path / "store")

    assert splits["train"][0]["id"] == "q7"
