"""convert, records seal."""

from __future__ import annotations

from pathlib import Path

import granular
import numpy as np
import pytest
from command_runs import Run
from writing import append_all

from data_stack.formats import records

# ---------------------------------------------------------------------- convert


def test_a_dataset_is_converted_and_compared(
    command: Run, records_folder: Path, tmp_path: Path
) -> None:
    outcome = command(
        "convert", str(records_folder), str(tmp_path / "out.h5"), "--columns", "image=x,label"
    )

    assert outcome.code == 0, outcome.err
    assert "has 12 samples" in outcome.out
    assert "12 read back and equal" in outcome.out
    assert "image (array), label (i64)" in outcome.out


def test_nothing_is_overwritten(command: Run, records_folder: Path, tmp_path: Path) -> None:
    arguments = ("convert", str(records_folder), str(tmp_path / "out.h5"), "--columns", "x")
    command(*arguments)

    again = command(*arguments, "--json")

    assert again.code == 2


def test_an_installed_dataset_is_a_source(command: Run, tmp_path: Path) -> None:
    outcome = command(
        "convert", "digits:train", str(tmp_path / "digits"), "--columns", "image=sample,label=1"
    )

    assert outcome.code == 0, outcome.err
    assert "1,437 samples of digits" in outcome.out
    with records.open(tmp_path / "digits") as reader:
        assert reader.schema["image"].shape == (8, 8)
        assert set(reader.read_column("label").tolist()) == set(range(10))


def test_no_folder_hides_a_dataset(
    command: Run, records_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records_folder.rename(tmp_path / "digits")

    of_dataset = command("convert", "digits:train", "of_name", "--columns", "image=sample")
    ambiguous = command("convert", "digits", "of_all")
    of_folder = command("convert", "digits/", "a")
    of_relative_folder = command("convert", "./digits", "b")

    assert "1,437 samples of digits" in of_dataset.out
    assert "choose one, such as digits:train" in ambiguous.err
    assert "has 12 samples" in of_folder.out
    assert "has 12 samples" in of_relative_folder.out


def test_a_file_whose_name_no_dataset_has_needs_no_dot(
    command: Run, records_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    outcome = command("convert", records_folder.name, "out.npz", "--columns", "x")
    refused = command("convert", records_folder.name, "more.npz", "-O", "a=1")

    assert "has 12 samples" in outcome.out, outcome.err
    assert "which has no option 'a'" in refused.err


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder ``pets`` with two splits in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("pets").mkdir()
    Path("pets/train.csv").write_text("x\n1\n2\n")
    Path("pets/test.csv").write_text("x\n3\n")


@pytest.mark.usefixtures("pets")
@pytest.mark.parametrize("options", [[], ["--from", "csv"]])
def test_a_split_of_a_folder_is_converted(command: Run, options: list[str]) -> None:
    outcome = command("convert", "pets:test", "test.npz", *options)

    assert outcome.code == 0, outcome.err
    assert np.load("test.npz")["x"].tolist() == [3]


@pytest.mark.usefixtures("pets")
def test_a_folder_of_splits_is_an_error_that_names_them(command: Run) -> None:
    whole = command("convert", "./pets", "all")
    unknown = command("convert", "pets:val", "val")

    assert whole.code == 2
    assert "has the splits train, test; convert each" in whole.err
    assert unknown.code == 2
    assert "has no split 'val'" in unknown.err


# ---------------------------------------------------------------------- messages of convert


@pytest.mark.parametrize(
    ("target", "option"),
    [("out.npy", "choose one by --columns"), ("out.zip", "choose one by --to: ")],
)
def test_messages_name_the_options_of_the_shell(
    command: Run, records_folder: Path, tmp_path: Path, target: str, option: str
) -> None:
    outcome = command("convert", str(records_folder), str(tmp_path / target))

    assert outcome.code == 2
    assert option in outcome.err


def test_the_message_for_an_unknown_format_names_from(command: Run, tmp_path: Path) -> None:
    (tmp_path / "data.xyz").write_bytes(b"?")

    outcome = command("convert", str(tmp_path / "data.xyz"), str(tmp_path / "out"))

    assert outcome.code == 2
    assert "say which it is by --from: " in outcome.err


def test_the_message_for_bare_numbers_names_o(command: Run, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"????")

    outcome = command("convert", str(tmp_path / "data.bin"), str(tmp_path / "out"))

    assert outcome.code == 2
    assert "such as uint16, by -O dtype=" in outcome.err


def test_a_users_text_in_a_message_stays_as_it_is(command: Run, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("columns=,b\n1,2\n")

    outcome = command("convert", str(tmp_path / "table.csv"), str(tmp_path / "out.npy"))

    assert "has columns=, b; choose one by --columns" in outcome.err


# ---------------------------------------------------------------------- records seal


def test_seal_covers_what_granular_appended(command: Run, tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    append_all(records.RecordWriter(folder, {"x": "int"}), [{"x": 1}])
    append_all(granular.DatasetWriter(folder, {"x": "int"}, granular.encoders), [{"x": 2}])

    outcome = command("records", "seal", str(folder))
    again = command("records", "seal", str(folder), "--json")

    assert outcome.code == 0
    assert outcome.out == f"sealed 2 samples of {folder}\n"
    assert again.json == {"n_samples": 2}
    with records.open(folder) as samples:
        samples.verify()
        assert list(samples) == [{"x": 1}, {"x": 2}]


def test_seal_refuses_a_folder_without_records(command: Run, tmp_path: Path) -> None:
    outcome = command("records", "seal", str(tmp_path))

    assert outcome.code == 2
