"""What each command prints, stores, and answers with its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import granular
import numpy as np
import pytest
import sklearn
from distributions import write_distribution
from PIL import Image
from writing import append_all

from data_stack.cli.main import main
from data_stack.formats import records
from data_stack.repository.repository import search_datasets

RAW = "digits/1.0.0/raw/digits.csv.gz"
DIGITS = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
DIGITS_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
# ------------------------------------------------------------------ list, info


def test_info_tells_digests_places_and_license_before_anything_is_retrieved(
    command: Any, store: Path
) -> None:
    outcome = command("info", "digits")

    assert outcome.code == 0
    for fact in (
        RAW,
        f"sha256 {DIGITS_SHA256}",
        "package:sklearn/datasets/data/digits.csv.gz",
        "CC-BY-4.0",
        "train, test",
    ):
        assert fact in outcome.out
    assert not store.exists()


# ------------------------------------------------------------------ prepare, report, show


def test_show_draws_a_picture_of_real_digits(command: Any, tmp_path: Path) -> None:
    outcome = command("show", "digits", "-o", str(tmp_path / "sheet.png"))

    with Image.open(tmp_path / "sheet.png") as sheet:
        assert (sheet.format, sheet.width > 800, sheet.height > 800) == ("PNG", True, True)
    assert (outcome.code, [path.name for path in tmp_path.glob("sheet*")]) == (0, ["sheet.png"])


def test_show_prints_a_line_for_each_sample(command: Any) -> None:
    digits, iris = (
        command("show", "digits", "-n", "10", "--split", "test"),
        command("show", "iris", "-n", "3", "--json").json,
    )

    assert [line.split()[1] for line in digits.out.splitlines()[2:]] == list("0123456789")
    assert [row["label"] for row in iris] == ["setosa", "versicolor", "virginica"]
    assert command("show", "iris", "-n", "2", "--seed", "1").code == 0


def test_head_and_show_print_all_columns_of_a_table(command: Any, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,city,size,flag\n7,Bonn,1.5,true\n8,Ulm,2.5,false\n")

    head = command("head", str(table), "-n", "1")
    show = command("show", str(table))

    assert [line.split() for line in head.out.splitlines()] == [
        ["position", "id", "city", "size", "flag"],
        ["--------", "--", "----", "----", "----"],
        ["0", "7", "Bonn", "1.5", "True"],
    ]
    assert [line.split()[2] for line in show.out.splitlines()[2:]] == ["Bonn", "Ulm"]
    assert command("head", str(table), "--json").json[1]["city"] == "Ulm"


def test_head_prints_the_first_samples_of_a_dataset(command: Any) -> None:
    outcome = command("head", "iris", "-n", "2")

    header, _, first, _ = outcome.out.splitlines()
    assert header.split() == ["position", "species", "features", "tag"]
    assert first.split()[:2] == ["0", "setosa"]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["report", "digits", "-O", "split=train"], "use --split NAME"),
        (["show", "digits", "-O", "storage=x"], "use --storage"),
        (["head", "digits", "-O", "progress=true"], "bars are drawn"),
        (["convert", "digits:train", "OUT", "-O", "lock=x"], "DATA_STACK_LOCK"),
        (["croissant", "digits", "-O", "name=x"], "the name is the first argument"),
    ],
)
def test_an_option_that_is_a_parameter_is_refused_by_name(
    command: Any, arguments: list[str], advice: str
) -> None:
    outcome = command(*arguments)

    assert outcome.code == 2
    assert "is no option of a dataset" in outcome.err
    assert advice in outcome.err
    assert "Traceback" not in outcome.err


# ------------------------------------------------------------------ import-file


def test_import_file_takes_the_published_file_by_the_digest_of_its_definition(
    command: Any, store: Path
) -> None:
    outcome = command("import-file", RAW, str(DIGITS), "--json")

    assert (outcome.code, outcome.json["verified"], outcome.json["sha256"]) == (
        0,
        True,
        DIGITS_SHA256,
    )
    assert (store / RAW).read_bytes() == DIGITS.read_bytes()


# ------------------------------------------------------------------ doctor


def test_doctor_shows_a_broken_plugin_with_its_error_and_the_others_all_the_same(
    command: Any, install: Callable[..., None]
) -> None:
    install("broken-one", "raise RuntimeError('the reactor is offline')")

    outcome = command("doctor")

    assert outcome.code == 1
    assert "broken: broken-one:broken-one\n" in outcome.out
    assert "the reactor is offline" in outcome.out
    assert "data_stack.datasets  lazy-data-stack-digits" in outcome.out


def test_doctor_finds_what_an_update_left_behind(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    for version in ("0.9", "1.0"):
        entry_points = "[data_stack.datasets]\nwine = data_stack.mnist.factory:MNISTFactory\n"
        write_distribution(site, "wineds", entry_points, version=version)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])

    outcome = command("doctor")

    assert outcome.code == 1
    assert "wineds is installed twice: 1.0 in" in outcome.out
    assert "0.9 in" in outcome.out


def test_doctor_finds_the_original_of_pypi_beside_this_one(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    write_distribution(
        site, "datastack", version="0.0.13"
    )  # as its wheel of 2021 has it: no command, no entry points
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])

    outcome = command("doctor")

    assert outcome.code == 1
    assert "in the way: datastack 0.0.13 of the original" in outcome.out
    assert str(site) in outcome.out
    assert "pip uninstall datastack" in outcome.out


# ------------------------------------------------------------------ errors and options


def test_options_of_a_dataset_arrive_as_json_or_text(
    command: Any, install: Callable[..., None]
) -> None:
    install(
        "repeated",
        """
        from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

        class Factory(DatasetFactory):
            card = DatasetCard(name="repeated", version="1")
            splits = ("all",)

            def open(self, split, prepared, *, times=1, word=""):
                return SequenceDatasetIterator([[word] * times, [word] * times])
        """,
    )

    outcome = command(
        "report", "repeated", "-O", "times=3", "-O", "word=a=b", "--json", "--statistics"
    )

    assert outcome.json["splits"]["all"]["target_dist"] == {"a=b": 3}
    assert outcome.json["splits"]["all"]["columns"][0]["statistics"]["n_distinct"] == 1


def test_common_options_may_stand_before_or_after_the_command(command: Any, tmp_path: Path) -> None:
    other = str(tmp_path / "other")

    for arguments in (
        ["--storage", other, "--json", "prepare", "iris"],
        ["prepare", "--json", "iris", "--storage", other],
    ):
        assert command(*arguments).json["name"] == "iris"
    assert (tmp_path / "other" / "iris" / "1.0.0" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("HANDWRITTEN", ["digits", "mnist"]),
        ("handwrit pixels", ["digits", "mnist"]),
        ("vers cc", ["iris"]),
        ("iris whales", []),
        (".*[", []),
    ],
)
def test_every_word_must_be_found_and_names_count_most(
    store: Any, text: str, names: list[str]
) -> None:
    found = [each.name for each in search_datasets(text)]

    assert [
        name for name in found if name in ("digits", "iris", "mnist")
    ] == names  # other packages have such datasets, too


def test_the_command_says_what_was_found_where(command: Any, install: Callable[..., None]) -> None:
    install("broken-iris", "raise RuntimeError('broken')")

    outcome, facts = command("search", "iris"), command("search", "IRIS", "flowers", "--json").json

    assert [line.split()[0] for line in outcome.out.splitlines()[2:]] == ["broken-iris", "iris"]
    assert [each["name"] for each in facts] == ["iris"]
    assert (
        command("search", "nosuchthing").out
        == "no installed dataset matches; `data-stack list` shows all\n"
    )


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("comp", []),
        ("verify iris brok", ["plain,broken-one"]),
        ("prepare --storage mon", ["file,mon"]),
        ("list --off", ["plain,--offline"]),
    ],
)
def test_a_line_is_completed_and_no_plugin_is_imported(
    store: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    install: Callable[..., None],
    line: str,
    completed: list[str],
) -> None:
    install("broken-one", "raise RuntimeError('imported')")
    words = f"data-stack {line}"
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    monkeypatch.setenv("_DATA_STACK_COMPLETE", "bash_complete")

    with pytest.raises(SystemExit):
        main([])

    assert capsys.readouterr().out.split() == completed


def test_seal_covers_what_granular_appended(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    append_all(records.RecordWriter(folder, {"x": "int"}), [{"x": 1}])
    append_all(granular.DatasetWriter(folder, {"x": "int"}, granular.encoders), [{"x": 2}])

    outcome = command("records", "seal", str(folder))
    again = command("records", "seal", str(folder), "--json")

    assert (outcome.code, outcome.out) == (0, f"sealed 2 samples of {folder}\n")
    assert again.json == {"n_samples": 2}
    assert command("records", "seal", str(tmp_path)).code == 2
    with records.open(folder) as samples:
        samples.verify()
        assert list(samples) == [{"x": 1}, {"x": 2}]


def test_a_split_of_a_folder_is_converted(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pets").mkdir()
    for split, values in (("train", "1\n2\n"), ("test", "3\n")):
        Path("pets", f"{split}.csv").write_text(f"x\n{values}")

    whole = command("convert", "./pets", "all")
    unknown = command("convert", "pets:val", "val")
    one = command("convert", "pets:test", "test.npz")

    assert whole.code != 0
    assert "has the splits train, test; convert each" in whole.err
    assert unknown.code != 0
    assert "has no split 'val'" in unknown.err
    assert one.code == 0
    assert np.load("test.npz")["x"].tolist() == [3]
