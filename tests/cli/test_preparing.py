"""prepare, import-file."""

from __future__ import annotations

from pathlib import Path

import pytest
import sklearn
from command_runs import Install, Run

from data_stack.cli.preparing import engine_of_options
from data_stack.engines import ProcessEngine
from data_stack.exception import ConfigError

DIGITS_SOURCE = "digits/1.0.0/raw/digits.csv.gz"
DIGITS_FILE = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
DIGITS_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"

NOT_COMMERCIAL = """
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

    class Factory(DatasetFactory):
        card = DatasetCard("wine", "1.0", license="CC-BY-NC-4.0")
        splits = ("all",)

        def open(self, split, prepared):
            return SequenceDatasetIterator([[0], [0], [0]])
"""

# ---------------------------------------------------------------------- prepare


def test_a_license_policy_refuses_to_prepare(
    command: Run, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wine", NOT_COMMERCIAL)
    monkeypatch.setenv("DATA_STACK_LICENSE_POLICY", "*-NC-*")

    outcome = command("prepare", "wine")

    assert outcome.code == 1
    assert "its license is CC-BY-NC-4.0" in outcome.err


def test_no_option_means_no_engine() -> None:
    assert engine_of_options(None) is None


def test_a_number_of_processes_means_the_engine_processes() -> None:
    engine = engine_of_options(None, n_processes=3)

    assert isinstance(engine, ProcessEngine)
    assert engine.n_processes == 3


@pytest.mark.parametrize(
    ("engine", "n_processes", "master", "address", "message"),
    [
        (None, None, "local[4]", "auto", "pass one of them"),
        (None, 2, "local[4]", None, "--processes requires --engine processes"),
        (None, 2, None, "auto", "--processes requires --engine processes"),
        ("ray", 2, None, None, "--processes requires --engine processes"),
        ("processes", None, "local[4]", None, "--master requires --engine spark"),
        ("processes", None, None, "auto", "--address --engine ray"),
    ],
)
def test_options_of_several_engines_contradict_each_other(
    engine: str | None,
    n_processes: int | None,
    master: str | None,
    address: str | None,
    message: str,
) -> None:
    with pytest.raises(ConfigError, match=message):
        engine_of_options(engine, n_processes=n_processes, master=master, address=address)


# ---------------------------------------------------------------------- import-file


def test_import_file_verifies_by_the_digest_of_the_definition(command: Run, store: Path) -> None:
    outcome = command("import-file", DIGITS_SOURCE, str(DIGITS_FILE), "--json")

    assert outcome.code == 0
    assert outcome.json["verified"] is True
    assert outcome.json["sha256"] == DIGITS_SHA256
    assert (store / DIGITS_SOURCE).read_bytes() == DIGITS_FILE.read_bytes()


def test_import_file_refuses_another_file(command: Run, store: Path) -> None:
    outcome = command("import-file", DIGITS_SOURCE, __file__)

    assert outcome.code == 1
    assert not (store / DIGITS_SOURCE).exists()
