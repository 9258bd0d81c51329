"""A plan tells what loading would do, and changes nothing; a report tells what there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from web_server import ScriptedServer

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.cli.main import main
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import DatasetNotFoundError, StorageError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.reproduce import DatasetReport
from data_stack.show.markup import size_text

BODY = b"0123456789" * 1000


class Bytes(DatasetFactory):
    """The bytes of a file."""

    card = DatasetCard("bytes", "1.0.0", license="CC-BY-4.0")
    splits = ("train",)

    def preprocess(self, raw: Any, prepared: Any) -> None:
        with raw["raw/bytes"] as file, prepared.create("bytes") as target:
            target.write(file.read())

    def open(self, split: str, prepared: Any, *, step: int = 1) -> Any:
        with prepared["bytes"] as file:
            return SequenceDatasetIterator([list(file.read(100))[::step]])


def register(monkeypatch: pytest.MonkeyPatch, *sources: str, size: int | None = None) -> None:
    definition = ResourceDefinition("raw/bytes", sources[0], mirrors=sources[1:], size=size)
    monkeypatch.setattr(Bytes, "sources", (definition,))
    data_stack.default_repository().register("bytes", Bytes, replace=True)


def tree(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_a_plan_finds_the_answering_mirror_and_the_need(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = server.url("/gone"), server.serve("/there", BODY)
    register(monkeypatch, gone, there)
    plan = data_stack.plan("bytes", tmp_path / "new" / "store")
    (source,) = plan.sources
    assert (source.source, source.size, source.is_stored) == (there, len(BODY), False)
    assert source.refusals[0][0] == gone
    assert plan.works
    assert plan.bytes_to_fetch == len(BODY)
    assert plan.bytes_free is not None
    assert plan.license == "CC-BY-4.0"
    with pytest.warns(DeprecationWarning, match=r"use plan\.license"):
        assert plan.licence == plan.license
    assert plan.steps == ("retrieve 1 of 1 sources", "preprocess", "open")
    assert not (tmp_path / "new").exists()
    assert "there" in str(plan)
    assert "CC-BY-4.0" in plan._repr_html_()


def test_a_plan_knows_what_is_stored_and_earlier_runs(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, server.serve("/there", BODY))
    data_stack.load("bytes", "train", tmp_path)
    before = tree(tmp_path)
    ready = data_stack.plan("bytes", tmp_path)
    assert (ready.is_ready, ready.steps, ready.bytes_to_fetch) == (True, ("open",), 0)
    monkeypatch.setattr(Bytes, "card", DatasetCard("bytes", "2.0.0"))
    changed = data_stack.plan("bytes", tmp_path)
    assert changed.reason is not None
    assert tree(tmp_path) == before
    with tmp_path.joinpath("bytes", "1.0.0", "manifest.json").open("ab") as manifest:
        manifest.write(b"damage")
    monkeypatch.setattr(Bytes, "card", DatasetCard("bytes", "1.0.0"))
    stored = data_stack.plan("bytes", tmp_path)
    assert (stored.is_ready, stored.bytes_to_fetch, stored.sources[0].is_stored) == (False, 0, True)


def test_a_plan_names_what_cannot_work(
    server: ScriptedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DATA_STACK_OFFLINE", raising=False)
    register(monkeypatch, server.url("/gone"), "package:no_such_package/file", size=1 << 60)
    with data_stack.policy(deny=["CC-*"]):
        plan = data_stack.plan("bytes", tmp_path, stp=2)
    denied, option, source, disk = plan.problems
    assert "CC-BY-4.0" in denied
    assert "stp" in option
    assert "raw/bytes" in source
    assert "free" in disk
    assert [place for place, _ in plan.sources[0].refusals] == list(Bytes.sources[0].sources)
    assert main(["prepare", "bytes", "--dry-run", "--storage", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["works"] is False
    register(monkeypatch, server.serve("/there", BODY))
    assert main(["prepare", "bytes", "--dry-run", "--storage", str(tmp_path)]) == 0
    assert "retrieve 1 of 1 sources" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    offline = data_stack.plan("bytes", InMemoryStorageConnector(), offline=True)
    assert "offline" in offline.sources[0].refusals[0][1]
    assert offline.bytes_free is None
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        data_stack.plan("bytes", tmp_path / "file")
    with pytest.raises(DatasetNotFoundError):
        data_stack.plan("bites")


# ---------------------------------------------------------------------- reports


def test_statistics_and_duplicates_are_reported_if_asked_for() -> None:
    report = DatasetReport.of("iris", storage="memory://", statistics=True, duplicates=True)

    assert report.splits["all"].columns[0].statistics is not None
    assert report.to_dict()["duplicates"]["within"][0]["n_repeats"] == 1
    assert "Duplicates" in str(report)
    assert "Duplicates" in report.to_html()


def test_sizes_are_told_in_words() -> None:
    sizes = [None, 0, 999, 1000, 57523, 999_960, 2_500_000_000, 10**15]

    texts = [size_text(size) for size in sizes]

    assert texts == ["-", "0 B", "999 B", "1.0 kB", "57.5 kB", "1.0 MB", "2.5 GB", "1000.0 TB"]
