"""verify."""

from __future__ import annotations

from pathlib import Path

from command_runs import Run
from PIL import Image
from process_harness import flip_file

from data_stack import FileStorageConnector
from data_stack.formats import records


def test_what_is_missing_replaced_or_damaged_is_named(command: Run, filled_store: Path) -> None:
    prepared = "digits/1.0.0/preprocessed"
    (filled_store / prepared / "test/images.npy").unlink()
    flip_file(filled_store / prepared / "train/images.npy", 8 * 2000, keep_time=True)
    FileStorageConnector(filled_store).set_resource(f"{prepared}/train/targets.npy", b"shorter")
    (filled_store / "iris/1.0.0/manifest.json").write_bytes(b"{")

    outcome = command("verify", "--json")

    assert outcome.code == 1
    assert [fault["identifier"] for fault in outcome.json["faults"]] == [
        f"{prepared}/test/images.npy",
        f"{prepared}/train/images.npy",
        f"{prepared}/train/targets.npy",
        "iris/1.0.0/manifest.json",
    ]


def test_verify_reads_all_samples_of_a_folder(command: Run, tmp_path: Path) -> None:
    for class_name in ("cat", "dog"):
        folder = tmp_path / "photos" / class_name
        folder.mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (4, 4)).save(folder / f"{number}.png")
    photo = tmp_path / "photos" / "dog" / "1.png"

    whole = command("verify", str(tmp_path / "photos"))
    photo.write_bytes(photo.read_bytes()[:40])
    damaged = command("verify", str(tmp_path / "photos"), "--json")

    assert whole.code == 0
    assert "ok: read 6 samples in " in whole.out
    assert damaged.code == 1
    (place,) = damaged.json
    (fault,) = place["faults"]
    assert fault["identifier"].endswith("dog/1.png")
    assert "truncated" in fault["problem"]


def test_verify_names_the_split_and_row_of_each_fault(command: Run, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    for split in ("train", "test"):
        with records.RecordWriter(folder / split, {"x": "utf8"}) as writer:
            for number in range(5):
                writer.append({"x": f"row {number} of {split}" * 10})
    flip_file(folder / "test" / "x.bag", 3)

    outcome = command("verify", str(folder))

    assert outcome.code == 1
    assert "FAULT" in outcome.out
    assert "test: " in outcome.out
    assert "train: " not in outcome.out


def test_verify_takes_places_or_names_not_both(command: Run, tmp_path: Path) -> None:
    outcome = command("verify", str(tmp_path), "digits")

    assert outcome.code == 2
    assert "without names of datasets" in outcome.err
