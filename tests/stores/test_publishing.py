"""A published dataset is read by range, each block verified, from a web server, a store or a
folder.
"""

from __future__ import annotations

import json
import pickle
import shutil
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_server import Answer, ScriptedServer
from written_dataset import Written

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.cli.main import main
from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    LicenseDeniedError,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.factories.manifest import Manifest
from data_stack.factories.resource_record import ResourceRecord
from data_stack.formats import NumpyDatasetIterator, write_npy
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.stores.publishing import check_size
from data_stack.util.untrusted_text import seal_json

N_ROWS = 2_048  # of 4 KiB: 8 MiB


class Rows(DatasetFactory):
    """Rows of 4 KiB."""

    card = DatasetCard("rows", "1.0.0", license="CC-BY-4.0")
    splits = ("train", "test")

    def preprocess(self, raw: Any, prepared: Any) -> None:
        for split, n_rows in (("train", N_ROWS), ("test", 3)):
            with prepared.create(f"{split}/rows.npy") as file:
                rows = np.zeros((n_rows, 512), np.float64)
                rows[:, 0] = np.arange(n_rows)
                write_npy(file, rows)

    def open(self, split: str, prepared: Any) -> Any:
        rows = prepared[f"{split}/rows.npy"]
        return NumpyDatasetIterator([rows, rows, rows])


@pytest.fixture(scope="module", autouse=True)
def _rows() -> Iterator[None]:
    data_stack.default_repository().register("rows", Rows)
    yield
    data_stack.default_repository().remove("rows")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def published(store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("www") / "rows"
    return folder, data_stack.publish("rows", folder, store)


def serve(server: ScriptedServer, folder: Path, **faults: Any) -> str:
    for file in folder.rglob("*"):
        if file.is_file():
            server.serve(
                f"/rows/{file.relative_to(folder)}", file.read_bytes(), **{"ranges": True, **faults}
            )
    return f"{server.origin}/rows"


def test_a_sample_of_a_published_dataset_moves_few_bytes(
    published: tuple[Path, str], server: ScriptedServer
) -> None:
    folder, pin = published
    url = serve(server, folder)
    train: Any = data_stack.load(f"{url}#{pin}", split="train")
    assert len(train) == N_ROWS
    assert train[1_000][0][0] == 1_000
    asked = [
        seen.headers["range"].removeprefix("bytes=").split("-")
        for seen in server.requests
        if seen.path.endswith(".npy")
    ]
    n_moved = (
        sum(int(stop) - int(start) + 1 for start, stop in asked)
        + (folder / "data_stack.json").stat().st_size
    )
    assert n_moved <= 600_000
    assert pickle.loads(pickle.dumps(train))[N_ROWS - 1][0][0] == N_ROWS - 1
    assert (
        data_stack.from_recipe(train.recipe(), storage=folder.parent.parent / "elsewhere")[5][0][0]
        == 5
    )
    assert data_stack.describe(url).license == "CC-BY-4.0"


def test_what_a_cache_keeps_is_not_asked_for_again(
    published: tuple[Path, str], server: ScriptedServer, tmp_path: Path
) -> None:
    url = f"{serve(server, published[0])}?cache={tmp_path / 'cache'}#{published[1]}"
    asked = []
    for _ in range(2):
        train: Any = data_stack.load(url, split="train")
        assert train.read_batch(range(1_000, 1_100))[0][:, 0].tolist() == list(range(1_000, 1_100))
        asked.append(sum(seen.path.endswith(".npy") for seen in server.requests))
    assert asked[0] == asked[1] > 0
    fresh = url.replace("#", "&cacheFresh=1000#").partition("#")[0]
    for place, n_descriptions in ((url, 1), (fresh, 2), (fresh, 2)):  # a pinned one stays as it is
        assert len(data_stack.load(place, split="train")) == N_ROWS
        assert (
            sum(seen.path.endswith("data_stack.json") for seen in server.requests) == n_descriptions
        )
    for wrong in (
        url.replace("?cache=", "?cacheBytes="),
        fresh.replace("1000", "soon"),
        fresh.replace("1000", "-1"),
    ):
        with pytest.raises(ConfigError, match="cache of a http:// URL"):
            data_stack.load(wrong, split="train")


def test_it_is_read_from_folders_and_stores_too(
    published: tuple[Path, str], tmp_path: Path
) -> None:
    splits = data_stack.load(str(published[0]))
    assert {name: len(split) for name, split in splits.items()} == {"train": N_ROWS, "test": 3}
    assert json.loads((published[0] / "croissant.json").read_text())["name"] == "rows"
    assert data_stack.load(f"{published[0].as_uri()}", split="test")[2][0][0] == 2


def test_publishing_again_is_nothing_and_an_interrupted_one_goes_on(
    published: tuple[Path, str],
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, pin = published
    times = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    assert data_stack.publish("rows", folder, store) == pin
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == times
    cut = tmp_path / "cut"
    shutil.copytree(folder, cut)
    (cut / "data_stack.json").unlink()
    (cut / "test" / "rows.npy").write_bytes(b"cut")
    kept = (cut / "train" / "rows.npy").stat().st_mtime_ns
    assert main(["publish", "rows", str(cut), "--storage", str(store)]) == 0
    assert pin in capsys.readouterr().out
    assert (cut / "train" / "rows.npy").stat().st_mtime_ns == kept
    assert data_stack.load(str(cut), split="test")[2][0][0] == 2
    monkeypatch.setattr(Rows, "card", DatasetCard("rows", "1.0.0", license="MIT"))
    with pytest.raises(ConfigError, match="another card"):
        data_stack.publish("rows", folder, store)
    monkeypatch.setattr(Rows, "card", DatasetCard("rows", "2.0.0"))
    with pytest.raises(ConfigError, match="another destination"):
        data_stack.publish("rows", folder, store)


def test_names_that_published_datasets_use_are_refused(tmp_path: Path) -> None:
    class Taken(Written):
        splits = ("data_stack.json",)
        files = {"data_stack.json": b"x"}

    data_stack.default_repository().register("taken", Taken, replace=True)
    with pytest.raises(ConfigError, match="a name that published"):
        data_stack.publish("taken", tmp_path / "www", tmp_path / "store")
    assert not (tmp_path / "www").exists()


@pytest.mark.parametrize(
    ("n_resources", "n_bytes"),
    [
        pytest.param(1, 1 << 50, id="too many blocks"),
        # Each has a block of its own, and a long name.
        pytest.param(125_000, 1, id="too many resources"),
    ],
)
def test_a_description_that_none_could_read_is_refused(n_resources: int, n_bytes: int) -> None:
    records = tuple(
        ResourceRecord(f"{number:0200d}", n_bytes, "0" * 64) for number in range(n_resources)
    )
    manifest = Manifest(
        "large", "1.0.0", "module:Large", None, (), records, False, "2026-01-01T00:00:00+00:00"
    )

    with pytest.raises(ConfigError, match="too many to publish"):
        check_size(manifest, None)
    few_bytes = replace(manifest, prepared=(ResourceRecord("a", 1, "0" * 64),))
    check_size(few_bytes, None)


def test_what_is_not_as_it_was_published_is_an_error(
    published: tuple[Path, str], server: ScriptedServer, tmp_path: Path
) -> None:
    folder = published[0]
    url = serve(server, folder)
    with pytest.raises(ChecksumMismatchError):
        data_stack.load(f"{url}#sha256={'0' * 64}", split="train")
    with pytest.raises(ConfigError, match="sha256="):
        data_stack.load(f"{url}#md5=1", split="train")
    data = bytearray((folder / "test" / "rows.npy").read_bytes())
    data[-8] ^= 1
    server.serve("/rows/test/rows.npy", bytes(data), ranges=True)
    with pytest.raises(DatasetFileCorruptError, match="block 0"):
        data_stack.load(url, split="test")[2]
    with pytest.raises(ResourceNotFoundError):
        data_stack.load(f"{server.origin}/nothing", split="train")
    with data_stack.policy(deny=["CC-BY-*"]), pytest.raises(LicenseDeniedError):
        data_stack.load(url, split="test")
    serve(server, folder, ranges=False)
    with pytest.raises(StorageError, match="ranges"):
        data_stack.load(url, split="train")
    server.url(
        "/rows/data_stack.json",
        Answer(status=302, headers={"Location": f"{server.origin}/rows/data_stack.json"}),
    )
    with pytest.raises(StorageError, match="redirects"):
        data_stack.load(url, split="train")


def test_a_redirect_away_from_https_is_not_followed(
    published: tuple[Path, str], server: ScriptedServer, tls: ssl.SSLContext
) -> None:
    plain = serve(server, published[0])
    with ScriptedServer(tls) as secure:
        url = serve(secure, published[0])
        assert len(data_stack.load(url, split="test")) == 3
        secure.url(
            "/rows/data_stack.json",
            Answer(status=302, headers={"Location": f"{plain}/data_stack.json"}),
        )
        with pytest.raises(StorageError, match="not encrypted"):
            data_stack.load(url, split="test")
    assert server.requests == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sources": [ResourceDefinition("raw/x", "x")]}, "other sources"),
        ({"preprocess": None}, "opens no prepared"),
    ],
)
def test_a_plugin_that_cannot_read_what_was_published_prepares_nothing(
    published: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], why: str
) -> None:
    for name, value in {"preprocess": lambda *_: pytest.fail("it prepares"), **changes}.items():
        monkeypatch.setattr(Rows, name, DatasetFactory.preprocess if value is None else value)

    with pytest.raises(DatasetFileCorruptError, match=f"cannot read .*: .*{why}"):
        data_stack.load(str(published[0]))


@pytest.mark.parametrize(
    ("distribution", "advice"),
    [
        ("evil-package 1.0", "it names the package evil-package 1.0, which you may install if you"),
        # Not our package "lazy-data-stack-iris".
        ("iris 1.0", "it names the package iris 1.0, which you may install if you trust"),
        ("evil; rm -rf ~ 1.0", "it names no valid package"),
        ("--index-url=https://example.org/x evil", "it names no valid package"),
        ("evil 1.0\n\x1b[31mrun this", "it names no valid package"),
        ("x" * 5000, "it names no valid package"),
        ("lazy-data-stack-digits 9.9", '`pip install "lazy-data-stack[digits]"`'),
    ],
)
def test_a_description_of_strangers_gives_no_command_to_run(
    published: tuple[Path, str], tmp_path: Path, distribution: str, advice: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(published[0], folder)
    fields = json.loads((folder / "data_stack.json").read_text())
    fields.pop("digest")
    manifest = json.loads(fields["manifest"])
    manifest.pop("digest")
    manifest |= {"name": "strange", "distribution": distribution}
    fields |= {"distribution": distribution, "manifest": seal_json(manifest).decode()}
    (folder / "data_stack.json").write_bytes(seal_json(fields))

    with pytest.raises(DatasetNotFoundError) as caught:
        data_stack.load(str(folder))

    assert advice in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 2000
    assert ("pip install" in str(caught.value)) == distribution.startswith("lazy-data-stack")


def test_hostile_descriptions_are_refused(published: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = published
    fields = json.loads((folder / "data_stack.json").read_text())
    del fields["digest"]
    manifest = json.loads(fields["manifest"])
    del manifest["digest"]
    escaping = seal_json(
        {**manifest, "prepared": [{**manifest["prepared"][0], "identifier": "../../secret"}]}
    ).decode()
    renamed = seal_json({**manifest, "name": "../x"}).decode()
    larger = seal_json(
        {**manifest, "prepared": [{**manifest["prepared"][0], "size": 1 << 40}]}
    ).decode()
    wrong: list[dict[str, Any]] = [{"format": 9}, {"blocks": {}}, {"more": 1}]
    wrong += [{"manifest": manifest} for manifest in (escaping, renamed, larger, "é")]
    without_resources = {**manifest, "prepared": []}
    climbing = seal_json({**without_resources, "name": "../x"}).decode()
    wrong.append({"manifest": climbing, "blocks": {}})
    for changes in wrong:
        (tmp_path / "data_stack.json").write_bytes(seal_json({**fields, **changes}))
        with pytest.raises(DatasetFileCorruptError):
            data_stack.load(str(tmp_path))
    (tmp_path / "data_stack.json").write_bytes(b"[" * 100_000)
    with pytest.raises(DatasetFileCorruptError):
        data_stack.load(str(tmp_path))
