"""The commands on stores, lock files, prepared datasets, files in formats."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pymongo
import pytest
from petastorm_fixtures import petastorm_folder
from PIL import Image
from process_harness import flip_file
from written_dataset import Written

import data_stack
from data_stack import DatasetCard, FileStorageConnector
from data_stack.formats import records
from data_stack.formats.parquet import Field, ParquetWriter, Schema
from data_stack.formats.records import ColumnType
from data_stack.repository.repository import default_repository

CANARY = "mongodb://user:canary@127.0.0.1:1/db?timeoutSeconds=0.2"


@pytest.fixture
def filled(prepared: FileStorageConnector, store: Path) -> Path:
    """The default store with digits and iris in it."""
    data_stack.copy_datasets(prepared, store)
    return store


# ------------------------------------------------------------------ copy


def test_copy_brings_a_dataset_that_is_ready_there(
    command: Any, filled: Path, tmp_path: Path
) -> None:
    outcome = command("copy", str(filled), str(tmp_path / "there"), "digits")

    assert outcome.code == 0
    assert outcome.err == ""
    assert "digits/1.0.0 is ready in" in outcome.out
    assert "6 copied (188.7 kB)" in outcome.out
    assert (
        command("prepare", "digits", "--storage", str(tmp_path / "there"), "--json").json[
            "already_ready"
        ]
        is True
    )
    assert not (tmp_path / "there" / "iris").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "digit"], "did you mean 'digits'"),
        (["report", "digits", "--split", "trian"], "did you mean 'train'"),
        (["report", "digits", "-O", "color"], "KEY=VALUE"),
        (["list", "--storage", "nosuch://place"], "nosuch://"),
        (["lst"], "no command 'lst' (did you mean 'list'?)"),
        (["list", "--jsn"], "Did you mean "),
        (["prepare", "digits", "--engine", "sparc"], "did you mean 'spark'"),
        (["show", "digits", "-o", "sheet.txt"], ".png or .jpg"),
        (["import-file", "mine/raw/x", __file__], "--unverified"),
        (["copy", "SRC", "SRC"], "another store"),
        (["copy", "SRC", "OUT", "digit"], "did you mean 'digits'"),
        (["copy", "SRC", "OUT", "--storage", "x"], "SRC and DST"),
        (["copy", "SRC", "OUT", "mongodb://user:canary@host/db"], "not a URL"),
        (["copy", "unknown://canary", "OUT"], "unknown:// "),
        (["convert", "digits", "OUT"], "train, test; choose one, such as digits:train"),
        (["convert", "nothing", "OUT"], "no plugin provides a dataset 'nothing'"),
        (["convert", "nothing", "OUT", "--from", "hdf5"], "'nothing'"),
        (["convert", "SOURCE", "OUT", "-O", "a=b"], "which has no option 'a'"),
        (
            ["convert", "SOURCE", "mongodb://user:canary@host/db"],
            "must name a dataset in the store",
        ),
        (["parquet", "info", "OUT"], "there"),
        (["parquet", "info", "BAD"], "bad.parquet"),
        (["browse", "--no-open", "digts"], "did you mean 'digits'"),
        (["browse", "--no-open", "SOURCE", "--split", "train"], "has no split 'train'"),
        (["browse", "--no-open", "SOURCE/spec.json"], "cannot detect the format"),
        (["browse", "--no-open", "SOURCE", "-O", "a=1"], "--storage and -O"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    command: Any,
    prepared: FileStorageConnector,
    source: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")
    places = {
        "SRC": prepared.root_path,
        "SOURCE": source,
        "OUT": tmp_path / "there",
        "BAD": tmp_path / "bad.parquet",
    }
    places["SOURCE/spec.json"] = source / "spec.json"

    outcome = command(*(str(places.get(argument, argument)) for argument in arguments))

    assert (outcome.code, outcome.out) == (1 if arguments[0] == "parquet" else 2, "")
    assert message in outcome.err
    assert "canary" not in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "there").exists()


# ------------------------------------------------------------------ verify


def test_what_is_missing_replaced_or_damaged_is_named(command: Any, filled: Path) -> None:
    (filled / "digits/1.0.0/preprocessed/test/images.npy").unlink()
    flip_file(filled / "digits/1.0.0/preprocessed/train/images.npy", 8 * 2000, keep_time=True)
    FileStorageConnector(filled).set_resource(
        "digits/1.0.0/preprocessed/train/targets.npy", b"shorter"
    )
    (filled / "iris/1.0.0/manifest.json").write_bytes(b"{")

    outcome = command("verify", "--json")

    assert outcome.code == 1
    assert [fault["identifier"] for fault in outcome.json["faults"]] == [
        "digits/1.0.0/preprocessed/test/images.npy",
        "digits/1.0.0/preprocessed/train/images.npy",
        "digits/1.0.0/preprocessed/train/targets.npy",
        "iris/1.0.0/manifest.json",
    ]


# ------------------------------------------------------------------ passwords


@pytest.mark.parametrize(
    "arguments", [["prepare", "iris", "--storage"], ["doctor", "--storage"], ["copy", "STORE"]]
)
def test_a_store_that_does_not_answer_is_an_error_of_ours_without_its_password(
    command: Any, filled: Path, caplog: pytest.LogCaptureFixture, arguments: list[str]
) -> None:
    # Each waits 0.5 s, the pause of the driver.
    outcome = command(
        "--debug", *(str(filled) if each == "STORE" else each for each in arguments), CANARY
    )

    assert "canary" not in outcome.out + outcome.err + caplog.text
    assert outcome.code == 1
    assert "127.0.0.1:1" in outcome.out + outcome.err
    assert ("Traceback" in outcome.err) == (arguments[0] != "doctor")


# ------------------------------------------------------------------ verify a place


def test_verify_reads_all_samples_of_a_folder(command: Any, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (4, 4)).save(tmp_path / "photos" / name / f"{number}.png")
    damaged = tmp_path / "photos" / "dog" / "1.png"

    whole = command("verify", str(tmp_path / "photos"))
    damaged.write_bytes(damaged.read_bytes()[:40])
    cut = command("verify", str(tmp_path / "photos"), "--json")

    assert (whole.code, "ok: read 6 samples in " in whole.out) == (0, True)
    assert cut.code == 1
    ((fault,),) = [place["faults"] for place in cut.json]
    assert fault["identifier"].endswith("dog/1.png")
    assert "truncated" in fault["problem"]


def test_verify_names_the_split_and_row_of_each_fault(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    for split in ("train", "test"):
        with records.RecordWriter(folder / split, {"x": "utf8"}) as writer:
            for number in range(5):
                writer.append({"x": f"row {number} of {split}" * 10})
    flip_file(folder / "test" / "x.bag", 3)

    outcome = command("verify", f"{folder}")

    assert outcome.code == 1
    assert "FAULT" in outcome.out
    assert "test: " in outcome.out
    assert "train: " not in outcome.out


def test_verify_takes_places_or_names_not_both(command: Any, tmp_path: Path) -> None:
    outcome = command("verify", str(tmp_path), "digits")

    assert outcome.code == 2
    assert "without names of datasets" in outcome.err


# ------------------------------------------------------------------ MongoDB


def test_the_doctor_finds_a_store_of_a_reader_usable(command: Any, mongodb_auth_uri: str) -> None:
    parts = urlsplit(mongodb_auth_uri)
    database = parts.path.strip("/")
    with pymongo.MongoClient[Any](mongodb_auth_uri) as client:
        roles = [{"role": "read", "db": database}]
        client[database].command("createUser", "reader", pwd="canary", roles=roles)
    address = parts.netloc.rpartition("@")[2]

    outcome = command(
        "--json", "--storage", f"mongodb://reader:canary@{address}/{database}", "doctor"
    )

    store = outcome.json["store"]
    assert (store["usable"], store["writable"]) == (True, False)
    assert "lacks the right" in store["not_writable"]
    assert "canary" not in outcome.out


def test_all_commands_work_on_mongodb(
    command: Any, filled: Path, tmp_path: Path, mongodb_auth_uri: str
) -> None:
    password: Any = re.search(r"://[^:]+:([^@]+)@", mongodb_auth_uri)
    there = ("--storage", mongodb_auth_uri)

    outcomes = {
        "copy": command("copy", str(filled), mongodb_auth_uri, "--debug"),
        "list": command("list", *there),
        "info": command("info", "digits", *there),
        "prepare": command("prepare", "digits", *there),
        "verify": command("verify", *there),
        "du": command("du", *there),
        "gc": command("gc", "--grace-hours", "0", *there),
        "doctor": command("doctor", *there),
        "back": command("copy", mongodb_auth_uri, str(tmp_path / "back")),
    }

    assert {name: outcome.code for name, outcome in outcomes.items()} == dict.fromkeys(outcomes, 0)
    assert "digits was ready" in outcomes["prepare"].out
    assert all(password[1] not in outcome.out + outcome.err for outcome in outcomes.values())
    assert command("verify", "--storage", str(tmp_path / "back")).code == 0


# ------------------------------------------------------------------ a store that is not there

LOOKING = [["verify"], ["list"], ["info", "digits"], ["du"], ["gc"]]


@pytest.mark.parametrize("place", ["typo", "file", "file/below", "cached"])
def test_a_store_that_is_not_there_is_an_error_and_is_not_made(
    command: Any, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_bytes(b"no store")
    named = (
        f"file://{tmp_path}/typo?cache={tmp_path}/cache"
        if place == "cached"
        else str(tmp_path / place)
    )

    for arguments in LOOKING:
        outcome = command(*arguments, "--storage", named)

        assert (
            outcome.code,
            outcome.out,
            named.partition("?")[0].removeprefix("file://") in outcome.err,
        ) == (1, "", True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ------------------------------------------------------------------ versions, remove


def test_remove_tells_what_it_frees_and_needs_no_plugin(
    command: Any, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "digits")

    would, facts = (
        command("remove", "digits", "--dry-run"),
        command("remove", "digits", "--version", "1.0.0", "--json").json,
    )

    assert would.out.startswith("would remove digits/1.0.0: 6 resources, 188.7 kB")
    assert (facts["n_resources"], [each["folder"] for each in facts["removed"]]) == (
        6,
        ["digits/1.0.0"],
    )
    assert not [path for path in filled.glob("digits/**/*") if path.is_file()]
    assert (command("remove", "digits").code, command("verify", "iris").code) == (2, 0)
    assert command("remove", "iris", "--version", "1.0.0", "--all-versions").code == 2


OLD_AND_NEW = """
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

    class New(DatasetFactory):
        card = DatasetCard("wine", "2.0", license="CC-BY-NC-4.0")
        splits = ("all",)

        def open(self, split, prepared):
            return SequenceDatasetIterator([[self.card.version], [0], [0]])

    class Old(New):
        card = DatasetCard("wine", "1.0", license="CC-BY-NC-4.0")
"""


def test_a_locked_dataset_is_checked_restored_and_differs_if_its_plugin_does(
    command: Any, tmp_path: Path, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    install("wine-plugin", OLD_AND_NEW, ["New", "Old"], ["wine", "wine@1.0"])

    added = command("lock", "add", "digits", "wine@1.0")
    checked, restored = (
        command("lock", "check"),
        command("lock", "restore", "--storage", str(tmp_path / "other")),
    )
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "wine-plugin")
    without = command("lock", "check", "--json")

    assert (added.code, added.out) == (0, "data_stack.lock locks digits, wine\n")
    assert (checked.code, checked.out) == (0, "all data is as the lock file says\n")
    assert restored.code == 0
    assert without.code == 1
    assert [(each["name"], each["what"]) for each in without.json] == [("wine", "plugin")]
    message = without.json[0]["message"]
    assert "the package wine-plugin 1.0, which you may install if you trust its author" in message
    assert "pip install" not in message


def test_list_names_a_dataset_of_two_versions_once_and_a_policy_refuses_to_prepare(
    command: Any, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wine-plugin", OLD_AND_NEW, ["New", "Old"], ["wine", "wine@1.0"])
    names = [row["name"] for row in command("list", "--json").json]
    monkeypatch.setenv("DATA_STACK_LICENSE_POLICY", "*-NC-*")
    refused = command("prepare", "wine")

    assert (names.count("wine"), "wine@1.0" in names) == (1, False)
    assert refused.code == 1
    assert "its license is CC-BY-NC-4.0" in refused.err


class Reasons(Written):
    """Numbers."""

    card = DatasetCard(name="reasons", version="1.0.0")


class Newer(Reasons):
    card = DatasetCard(name="reasons", version="2.0.0")


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    default_repository().register("reasons", Reasons)
    yield
    default_repository().remove("reasons")


@pytest.mark.parametrize(
    ("again", "reason"),
    [(Newer, "stored: reasons 1.0.0"), (Reasons, "all' has 1 bytes, 3 were prepared")],
)
def test_what_does_not_fit_any_more_is_the_reason(
    command: Any, store: Path, caplog: pytest.LogCaptureFixture, again: type[Reasons], reason: str
) -> None:
    first_told, first = (
        command("info", "reasons").out,
        Reasons(FileStorageConnector(store)).prepare(),
    )
    (store / "reasons" / "1.0.0" / "all").write_bytes(b"2")
    default_repository().register("reasons", again, replace=True)
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    told, report = command("info", "reasons").out, again(FileStorageConnector(store)).prepare()

    assert (first.reason, warned) == (None, [])
    assert "prepared  no\n" in first_told
    assert reason in str(report.reason)
    assert str(report.reason) in caplog.text
    assert f"no: {report.reason}" in told
    assert "prepared  yes\n" in command("info", "reasons").out


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with records.RecordWriter(
        tmp_path / "source",
        {"x": ColumnType("array", "float32", (4,)), "label": "i64", "text": "utf8"},
    ) as writer:
        for i in range(12):
            writer.append({"x": np.full(4, i, np.float32), "label": i, "text": "x" * i})
    return tmp_path / "source"


def test_a_dataset_is_converted_and_compared(command: Any, source: Path, tmp_path: Path) -> None:
    arguments = ("convert", str(source), str(tmp_path / "out.h5"), "--columns", "image=x,label")

    outcome = command(*arguments)

    assert outcome.code == 0, outcome.err
    assert command(*arguments, "--json").code == 2  # it is there already
    assert all(
        text in outcome.out
        for text in ("has 12 samples", "12 read back and equal", "image (array), label (i64)")
    )


def test_messages_of_convert_name_options_of_the_shell(
    command: Any, source: Path, tmp_path: Path
) -> None:
    several = command("convert", str(source), str(tmp_path / "out.npy"))

    assert "choose one by --columns" in several.err


def test_no_folder_hides_a_dataset(
    command: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source.rename(tmp_path / "digits")

    by_name = command("convert", "digits:train", "of_name", "--columns", "image=sample")
    ambiguous = command("convert", "digits", "of_all")
    by_place = [
        command("convert", text, name) for text, name in (("digits/", "a"), ("./digits", "b"))
    ]

    assert "1,437 samples of digits" in by_name.out
    assert "choose one, such as digits:train" in ambiguous.err
    for outcome in by_place:
        assert "has 12 samples" in outcome.out, outcome.err


def test_a_file_whose_name_no_dataset_has_needs_no_dot(
    command: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    outcome = command("convert", source.name, "out.npz", "--columns", "x")

    assert "has 12 samples" in outcome.out, outcome.err
    refused = command("convert", source.name, "more.npz", "-O", "a=1")
    assert "which has no option 'a'" in refused.err


def test_an_installed_dataset_is_a_source(command: Any, tmp_path: Path) -> None:
    outcome = command(
        "convert", "digits:train", str(tmp_path / "digits"), "--columns", "image=sample,label=1"
    )

    assert outcome.code == 0, outcome.err
    assert "1,437 samples of digits" in outcome.out
    with records.open(tmp_path / "digits") as reader:
        assert reader.schema["image"].shape == (8, 8)
        assert set(reader.read_column("label").tolist()) == set(range(10))


SCHEMA = Schema(
    "frames",
    [
        Field("id", "int64"),
        Field("car", str),
        Field("note", str, nullable=True),
        Field("x", "float32", (4,)),
    ],
)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "frames"
    with ParquetWriter(folder, SCHEMA, rows_per_file=10, row_group_rows=5) as writer:
        for number in range(20):
            writer.append(
                {
                    "id": number,
                    "car": f"car {number // 10}",
                    "note": "n" if number % 2 else None,
                    "x": np.ones(4, np.float32),
                }
            )
    return folder


def test_info_tells_what_there_is(command: Any, dataset: Path) -> None:
    outcome = command("parquet", "info", f"file://{dataset}")
    facts = command("parquet", "info", str(dataset), "--json").json
    of_petastorm = command("parquet", "info", str(petastorm_folder("legacy/0.7.6")), "--json").json

    assert (of_petastorm["schema_from"], of_petastorm["manifest"]) == ("Petastorm", "none")
    assert (facts["n_rows"], facts["n_files"], facts["n_row_groups"]) == (20, 2, 4)
    assert Schema.from_json(facts["schema"]) == SCHEMA
    assert outcome.code == 0
    assert [outcome.facts[name] for name in ("n_rows", "row_group_rows", "schema")] == [
        "20",
        "5, 5",
        "frames",
    ]
    assert "up to date" in outcome.out


def test_metadata_are_made_anew_after_files_were_added(command: Any, dataset: Path) -> None:
    shutil.copy(dataset / "part-000001.parquet", dataset / "part-000005.parquet")
    outdated = command("parquet", "info", str(dataset))

    outcome = command("parquet", "generate-metadata", str(dataset), "--petastorm")

    assert "outdated" in outdated.out
    assert outcome.code == 0
    assert outcome.facts["n_rows"] == "30"
    assert "up to date" in command("parquet", "info", str(dataset)).out
