"""The commands for authors, data-stack browse, the command as a process."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browse_kit import Served
from process_harness import run_python, until

import data_stack
from data_stack import SequenceDatasetIterator
from data_stack.cli.main import PrintableFormatter
from data_stack.formats.conversion import convert
from data_stack.show.markup import Table, as_text

SYS_PATH = os.pathsep.join(
    filter(None, [str(Path(data_stack.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
)
AUTHORS_LINES = 28
LOAD = "import data_stack, sys; [print(name, len(split), split[0]) for name, split in data_stack.load(sys.argv[1]).items()]"


@pytest.mark.parametrize(
    ("kind", "splits"),
    [
        ("table", ["all"]),
        *(
            pytest.param(kind, ["train", "test"], marks=pytest.mark.full)
            for kind in ("images", "text")
        ),
    ],
)
def test_a_new_package_is_installed_tested_and_loaded_as_it_is(
    command: Any, tmp_path: Path, kind: str, splits: list[str]
) -> None:
    outcome = command(
        "new",
        "my-set",
        "--kind",
        kind,
        "--into",
        str(tmp_path),
        *(f"--split={split}" for split in splits),
    )

    assert outcome.code == 0, outcome.err
    folder, site = tmp_path / "my-set", tmp_path / "site"
    factory = (folder / "data_stack_my_set/__init__.py").read_text()
    code = re.sub(r'""".*?"""|^ *#[^\n]*$', "", factory, flags=re.DOTALL | re.MULTILINE)
    assert len([line for line in code.splitlines() if line.strip()]) <= AUTHORS_LINES
    pip = (
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        f"--target={site}",
        folder,
    )
    run_python(*pip, timeout_seconds=280)
    path = os.pathsep.join([str(site), SYS_PATH])
    tested, _ = run_python(
        "-W", "error", "-m", "pytest", "-q", folder, timeout_seconds=280, PYTHONPATH=path
    )
    assert re.search(r"^\d\d passed", tested, re.MULTILINE)
    loaded, _ = run_python(
        "-c", LOAD, "my-set", PYTHONPATH=path, DATA_STACK_HOME=str(tmp_path / "home")
    )
    assert [
        line.split()[0] for line in loaded.splitlines() if re.match(r"\w+ \d+ ", line)
    ] == splits
    for name in ("README.md", ".gitignore", ".github/workflows/test.yml", "pyproject.toml"):
        assert "@" not in re.sub(r"uses: \S+@", "", (folder / name).read_text())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../up", "begins with a letter"),
        ("a" * 61, "begins with a letter"),
        ("", "begins with a letter"),
        ("@name@", "begins with a letter"),
        ("Digits", "already"),
        ("there", "exists"),
        *(
            (["mine", *splits], "split names")
            for splits in (["a", "A"], ["a/b"], ["x@name@"], [""])
        ),
    ],
)
def test_names_that_cannot_be_used_are_refused_and_nothing_is_written(
    command: Any, tmp_path: Path, name: str | list[str], said: str
) -> None:
    (tmp_path / "there").symlink_to(tmp_path / "nowhere")

    name, *splits = [name] if isinstance(name, str) else name

    outcome = command(
        "new",
        "--kind",
        "text",
        "--into",
        str(tmp_path),
        *(f"--split={each}" for each in splits),
        "--",
        name,
    )

    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


SET = """
    from data_stack import DatasetCard, DatasetFactory
    from data_stack.formats import CSVDatasetIterator
    from data_stack.io.resource_definition import ResourceDefinition

    class Factory(DatasetFactory):
        "Rows of numbers."
        card = DatasetCard("rows", "1.0", license="{license}", homepage="https://example.org", citation="A. Author")
        sources = [ResourceDefinition("raw/a.csv", "{source}", sha256="{sha256}", mirrors=("http://127.0.0.1:9/a.csv",))]
        splits = ("all",)

        def open(self, split, prepared):
            return CSVDatasetIterator(prepared["raw/a.csv"], header=False)
"""


def test_check_tests_an_installed_dataset_with_its_real_sources(
    command: Any, install: Callable[..., None], tmp_path: Path
) -> None:
    data = "".join(f"{i},{i * i},{i % 2}\n" for i in range(9)).encode()
    (tmp_path / "a.csv").write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    install("rows", SET.format(license="none at all", source=tmp_path / "a.csv", sha256=sha256))

    outcome = command("check", "rows", "--offline", "--json")

    assert outcome.code == 1
    checks = {check["check"]: check for check in outcome.json["checks"]}
    failed = [name for name, check in checks.items() if check["outcome"] == "failed"]
    assert failed == ["the license is an expression of spdx"]
    assert checks["the source is at [http://127.0.0.1:9/a.csv]"]["outcome"] == "skipped"
    assert "--offline" in checks["the source is at [http://127.0.0.1:9/a.csv]"]["reason"]
    assert checks[f"the source is at [{tmp_path}/a.csv]"]["outcome"] == "passed"
    assert outcome.json["passed"] > 20


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def records(tmp_path: Path) -> str:
    """A folder of records."""
    samples = SequenceDatasetIterator([list(np.arange(5))]).as_dict("number")
    convert(samples, tmp_path / "numbers", progress=False)
    return str(tmp_path / "numbers")


def test_it_opens_the_page_in_the_browser_of_the_user(
    process: Start, records: str, tmp_path: Path
) -> None:
    script = tmp_path / "browser"
    script.write_text(
        f'#!/bin/sh\necho "$1" > {tmp_path / "part"} && mv {tmp_path / "part"} {tmp_path / "opened"}\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)

    running: Any = process("browse", records, "--json", BROWSER=f"{script} %s")
    url = json.loads("".join(running.stdout.readline() for _ in range(3)))["url"]
    until((tmp_path / "opened").exists, 30)

    assert (tmp_path / "opened").read_text().strip() == url
    assert len(url.partition("token=")[2]) >= 24
    place, _, query = url.partition("/?")
    assert Served(place).ask(f"/api/overview?{query}", {}).json["title"] == "numbers"
    running.send_signal(signal.SIGINT)
    assert finished(running) == (0, "", "")


@pytest.mark.parametrize("source", ["numbers/", "./numbers", "numbers"])
def test_a_folder_is_browsed_as_the_page_says(
    process: Start, records: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(os.path.dirname(records))

    running: Any = process("browse", source, "--json", "--no-open")
    url = json.loads("".join(running.stdout.readline() for _ in range(3)))["url"]

    place, _, query = url.partition("/?")
    assert Served(place).ask(f"/api/overview?{query}", {}).json["title"] == "numbers"
    running.send_signal(signal.SIGINT)
    assert finished(running) == (0, "", "")


def test_a_taken_port_is_an_error_that_says_what_to_do(process: Start, records: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        running = process("browse", records, "--no-open", "--port", port)
        code, out, err = finished(running)

    assert (code, out) == (2, "")
    assert err.strip() == (
        f"data-stack: port {port} is taken by another program; choose another one, or omit --port for any free port"
    )


SLOW = """
    import time
    from pathlib import Path
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

    class Factory(DatasetFactory):
        card = DatasetCard(name="slow", version="1")
        splits = ("all",)

        def preprocess(self, raw, prepared):
            with prepared.create("preprocessed/all") as file:
                file.write(b"x" * 100000)
                Path({started!r}).touch()
                time.sleep(60)

        def open(self, split, prepared):
            return SequenceDatasetIterator([[0]])
"""


def finished(running: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    out, err = running.communicate(timeout=60)
    return running.returncode, out, err


def test_a_reader_that_leaves_ends_the_command_quietly(process: Start) -> None:
    running: Any = process("info", "digits")
    running.stdout.close()

    err = running.stderr.read()

    assert (running.wait(60), err) == (1, "")


def test_a_report_can_be_written_in_any_locale(process: Start) -> None:
    code, out, err = finished(
        process("report", "digits", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    )

    assert (code, "1,437" in out, err) == (0, True, "")


def test_an_interrupted_preparation_ends_with_130_and_leaves_nothing_half_done(
    process: Start, install: Callable[..., None], tmp_path: Path, store: Path
) -> None:
    install("slow", SLOW.format(started=str(tmp_path / "started")))
    running = process("prepare", "slow")
    until((tmp_path / "started").exists, 30)

    running.send_signal(signal.SIGINT)
    code, out, err = finished(running)

    assert (code, out, err.strip().splitlines()[-1], "Traceback" in err) == (
        130,
        "",
        "data-stack: interrupted",
        False,
    )
    assert [
        path
        for path in store.rglob("*")
        if path.is_file() and path.suffix != ".json" and ".data_stack" not in path.parts
    ] == []


HOSTILE = "\x1b[31m\x1b]0;title\x07\u202eevil\rname\x9b2J"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    table = pa.table({HOSTILE: [1, 2], "plain": [HOSTILE, "b"]})
    pq.write_table(table, folder / "a.parquet")
    return folder


def test_copies_and_conversions_print_none(
    command: Callable[..., Any], dataset: Path, tmp_path: Path
) -> None:
    for arguments in (
        ["convert", str(dataset), str(tmp_path / "target.npz")],
        ["convert", str(dataset), str(tmp_path / "target")],
        ["convert", str(tmp_path / HOSTILE), str(tmp_path / "other")],
        ["convert", str(tmp_path / "target.npz"), str(tmp_path / "b.h5")],
        ["verify", HOSTILE],
        ["info", HOSTILE],
        ["report", HOSTILE],
    ):
        outcome = command(*arguments)
        said = outcome.out + outcome.err
        assert said
        assert all(each.isprintable() or each in "\n\t" for each in said), repr(said)


def test_logged_names_are_escaped() -> None:
    record = logging.LogRecord("data_stack", logging.WARNING, "", 0, "column %s", (HOSTILE,), None)

    assert (
        PrintableFormatter("%(levelname)s: %(message)s")
        .format(record)
        .startswith(r"WARNING: column \x1b[31m")
    )


def test_wide_characters_stay_in_their_column() -> None:
    shown = as_text([Table(("name", "n"), [("数据集", "1"), ("digits", "2")], frozenset({1}))])

    assert shown.splitlines() == ["name    n", "------  -", "数据集  1", "digits  2"]
