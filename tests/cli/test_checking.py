"""check."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from command_runs import Install, Run

TESTS = Path(__file__).parents[1]

ROWS = """
    from data_stack import DatasetCard, DatasetFactory
    from data_stack.formats import CSVDatasetIterator
    from data_stack.io.resource_definition import ResourceDefinition

    class Factory(DatasetFactory):
        "Rows of numbers."
        card = DatasetCard(
            "rows",
            "1.0",
            license="none at all",
            homepage="https://example.org",
            citation="A. Author",
        )
        sources = [
            ResourceDefinition(
                "raw/a.csv",
                "{source}",
                sha256="{sha256}",
                mirrors=("http://127.0.0.1:9/a.csv",),
            )
        ]
        splits = ("all",)

        def open(self, split, prepared):
            return CSVDatasetIterator(prepared["raw/a.csv"], header=False)
"""


def test_check_tests_an_installed_dataset_with_its_real_sources(
    command: Run, install: Install, tmp_path: Path
) -> None:
    data = "".join(f"{number},{number * number},{number % 2}\n" for number in range(9)).encode()
    source = tmp_path / "a.csv"
    source.write_bytes(data)
    install("rows", ROWS.format(source=source, sha256=hashlib.sha256(data).hexdigest()))

    outcome = command("check", "rows", "--offline", "--json")

    assert outcome.code == 1
    assert outcome.json["passed"] > 20
    checks = {check["check"]: check for check in outcome.json["checks"]}
    failed = [name for name, check in checks.items() if check["outcome"] == "failed"]
    assert failed == ["the license is an expression of spdx"]
    assert checks[f"the source is at [{source}]"]["outcome"] == "passed"
    mirror = checks["the source is at [http://127.0.0.1:9/a.csv]"]
    assert mirror["outcome"] == "skipped"
    assert "--offline" in mirror["reason"]


def test_a_missing_mirror_is_named_once(command: Run, install: Install, tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_bytes(b"1,2,0\n3,4,1\n" * 5)
    mirror = tmp_path / "missing.csv"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    factory = ROWS.replace("http://127.0.0.1:9/a.csv", str(mirror))
    install("rows", factory.format(source=source, sha256=digest))

    outcome = command("check", "rows", "--json")

    checks = {check["check"]: check for check in outcome.json["checks"]}
    failure = checks[f"the source is at [{mirror}]"]
    assert failure["outcome"] == "failed"
    assert failure["reason"].count("could not be retrieved") == 1
    assert "During handling" not in failure["reason"]
    assert "import-file" not in failure["reason"]


def test_check_needs_nothing_of_the_tests_of_a_clone(
    command: Run, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a.csv"
    source.write_bytes(b"1,2,0\n3,4,1\n" * 5)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    install("rows", ROWS.format(source=source, sha256=digest))
    paths_of_users = [path for path in sys.path if not Path(path).is_relative_to(TESTS)]
    monkeypatch.setattr(sys, "path", paths_of_users)

    outcome = command("check", "rows", "--offline", "--json")

    assert outcome.json["passed"] > 20
