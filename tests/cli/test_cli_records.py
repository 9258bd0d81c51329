"""The commands ``data-stack records``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import granular

from data_stack.formats import records


def test_seal_covers_what_granular_appended(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    with records.RecordWriter(folder, {"x": "int"}) as ours:
        ours.append({"x": 1})
    with granular.DatasetWriter(folder, {"x": "int"}, granular.encoders) as theirs:
        theirs.append({"x": 2})

    outcome = command("records", "seal", str(folder))
    again = command("records", "seal", str(folder), "--json")

    assert (outcome.code, outcome.out) == (0, f"sealed 2 samples of {folder}\n")
    assert again.json == {"n_samples": 2}
    assert command("records", "seal", str(tmp_path)).code == 2
    with records.open(folder) as samples:
        samples.verify()
        assert list(samples) == [{"x": 1}, {"x": 2}]
