"""show, head, browse."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browse_kit import Served
from command_runs import Run, Start, outcome_of
from PIL import Image
from process_harness import until

from data_stack import SequenceDatasetIterator
from data_stack.formats.conversion import convert

# ---------------------------------------------------------------------- show


def test_show_draws_a_picture_of_real_digits(command: Run, tmp_path: Path) -> None:
    outcome = command("show", "digits", "-o", str(tmp_path / "sheet.png"))

    assert outcome.code == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.width > 800
        assert sheet.height > 800
    assert [path.name for path in tmp_path.glob("sheet*")] == ["sheet.png"]


def test_show_prints_a_line_for_each_sample(command: Run) -> None:
    digits = command("show", "digits", "-n", "10", "--split", "test")
    iris = command("show", "iris", "-n", "3", "--json")

    labels = [line.split()[1] for line in digits.out.splitlines()[2:]]
    assert labels == list("0123456789")
    assert [row["label"] for row in iris.json] == ["setosa", "versicolor", "virginica"]


def test_show_draws_random_samples_by_a_seed(command: Run) -> None:
    first = command("show", "iris", "-n", "2", "--seed", "1")
    second = command("show", "iris", "-n", "2", "--seed", "1")

    assert first.code == 0
    assert first.out == second.out


# ---------------------------------------------------------------------- head


def test_head_and_show_print_all_columns_of_a_table(command: Run, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,city,size,flag\n7,Bonn,1.5,true\n8,Ulm,2.5,false\n")

    head = command("head", str(table), "-n", "1")
    show = command("show", str(table))
    as_json = command("head", str(table), "--json")

    assert [line.split() for line in head.out.splitlines()] == [
        ["position", "id", "city", "size", "flag"],
        ["--------", "--", "----", "----", "----"],
        ["0", "7", "Bonn", "1.5", "True"],
    ]
    assert [line.split()[2] for line in show.out.splitlines()[2:]] == ["Bonn", "Ulm"]
    assert as_json.json[1]["city"] == "Ulm"


def test_head_prints_the_first_samples_of_a_dataset(command: Run) -> None:
    outcome = command("head", "iris", "-n", "2")

    header, _, first_sample, _ = outcome.out.splitlines()
    assert header.split() == ["position", "species", "features", "tag"]
    assert first_sample.split()[:2] == ["0", "setosa"]


# ---------------------------------------------------------------------- browse


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """A folder of records."""
    samples = SequenceDatasetIterator([list(np.arange(5))]).as_dict("number")
    convert(samples, tmp_path / "numbers", progress=False)
    return tmp_path / "numbers"


def read_url(running: Any) -> str:
    """Return the URL that ``data-stack browse --json`` prints first, in three lines."""
    text = "".join(running.stdout.readline() for _ in range(3))
    url: str = json.loads(text)["url"]
    return url


def read_title(url: str) -> str:
    """Ask a page for its title."""
    place, _, query = url.partition("/?")
    title: str = Served(place).ask(f"/api/overview?{query}", {}).json["title"]
    return title


def test_browse_opens_the_page_in_the_users_browser(
    process: Start, numbers: Path, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)

    running = process("browse", str(numbers), "--json", BROWSER=f"{script} %s")
    url = read_url(running)
    assert until(opened.exists)

    assert opened.read_text().strip() == url
    token = url.partition("token=")[2]
    assert len(token) >= 24
    assert read_title(url) == "numbers"
    running.send_signal(signal.SIGINT)
    outcome = outcome_of(running)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.parametrize("source", ["numbers/", "./numbers", "numbers"])
def test_browse_shows_a_folder_under_its_name(
    process: Start, numbers: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(numbers.parent)

    running = process("browse", source, "--json", "--no-open")

    assert read_title(read_url(running)) == "numbers"
    running.send_signal(signal.SIGINT)
    outcome = outcome_of(running)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_a_taken_port_says_what_to_do(process: Start, numbers: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = outcome_of(process("browse", str(numbers), "--no-open", "--port", str(port)))

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"data-stack: port {port} is taken by another program; choose another one, or omit "
        f"--port for any free port{os.linesep}"
    )
