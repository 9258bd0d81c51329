"""Documents for other programs that plugins write beside a published dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from process_harness import run_python

#: Publishes a dataset by Python and by the command line, and prints what they say.
PUBLISH = """
import contextlib, io, json, sys, warnings
import data_stack
from data_stack.cli.main import main

class Letters(data_stack.DatasetFactory):
    "Letters."

    card = data_stack.DatasetCard("letters", "1.0.0", license="MIT")
    splits = ("all",)

    def preprocess(self, raw, prepared):
        with prepared.create("letters.txt") as file:
            file.write(b"abc")

    def open(self, split, prepared):
        return data_stack.SequenceDatasetIterator([list("abc")])

data_stack.default_repository().register("letters", Letters)
store, folder = sys.argv[1:]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pin = data_stack.publish("letters", folder, store)
answer = io.StringIO()
with contextlib.redirect_stdout(answer):
    main(["publish", "letters", folder, "--storage", store, "--json"])
text = io.StringIO()
with contextlib.redirect_stdout(text):
    main(["publish", "letters", folder, "--storage", store])
said = {
    "pin": pin,
    "warnings": [str(warning.message) for warning in caught],
    "answer": json.loads(answer.getvalue()),
    "text": text.getvalue(),
}
print(json.dumps(said))
"""


def publish(folder: Path, *, disabled_plugins: str = "") -> Any:
    """Publish a dataset in a process of its own, and return what it says."""
    output, _ = run_python(
        "-c",
        PUBLISH,
        str(folder / "store"),
        str(folder / "www"),
        DATA_STACK_DISABLE_PLUGINS=disabled_plugins,
    )
    return json.loads(output)


def test_the_document_of_an_installed_package_is_written(tmp_path: Path) -> None:
    said = publish(tmp_path)

    assert json.loads((tmp_path / "www" / "croissant.json").read_text())["name"] == "letters"
    assert said["warnings"] == []
    assert said["answer"]["documents"] == ["croissant.json"]
    assert said["answer"]["missing_documents"] == []


def test_a_document_whose_package_is_missing_is_named(tmp_path: Path) -> None:
    said = publish(tmp_path, disabled_plugins="lazy-data-stack-croissant")

    assert not (tmp_path / "www" / "croissant.json").exists()
    (warning,) = said["warnings"]
    assert warning.startswith("No croissant.json was written")
    assert 'pip install "lazy-data-stack[croissant]"' in warning
    assert "No croissant.json was written" in said["text"]
    assert said["answer"]["documents"] == []
    assert said["answer"]["missing_documents"] == ["croissant.json"]


def test_publishing_again_adds_a_document_that_is_missing(tmp_path: Path) -> None:
    before = publish(tmp_path, disabled_plugins="lazy-data-stack-croissant")
    description = (tmp_path / "www" / "data_stack.json").read_bytes()

    after = publish(tmp_path)

    assert (tmp_path / "www" / "croissant.json").exists()
    assert (tmp_path / "www" / "data_stack.json").read_bytes() == description
    assert after["pin"] == before["pin"]
