"""``data-stack browse`` as a process: its URL, its end, its errors."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data_stack import SequenceDatasetIterator
from data_stack.formats.conversion import convert

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def records(tmp_path: Path) -> str:
    """A folder of records."""
    samples = SequenceDatasetIterator([list(np.arange(5))]).as_dict("number")
    convert(samples, tmp_path / "numbers", progress=False)
    return str(tmp_path / "numbers")


def url_of(running: subprocess.Popen[bytes]) -> str:
    """The URL that it prints."""
    assert running.stdout is not None
    return running.stdout.readline().decode().strip()


def ended(running: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Exit code and standard error after Ctrl-C."""
    running.send_signal(signal.SIGINT)
    with running:
        _, err = running.communicate(timeout=30)
    return running.returncode, err.decode()


def overview(url: str) -> dict[str, object]:
    """What the page at ``url`` asks for first."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url.replace("/?", "/api/overview?"), timeout=30) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_it_opens_the_page_in_the_browser_of_the_user(process: Start, records: str, tmp_path: Path) -> None:
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path / "part"} && mv {tmp_path / "part"} {tmp_path / "opened"}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)

    running = process("browse", records, "--json", BROWSER=f"{script} %s")
    assert running.stdout is not None
    url = json.loads(b"".join(running.stdout.readline() for _ in range(3)))["url"]
    deadline = time.monotonic() + 30
    while not (tmp_path / "opened").exists() and time.monotonic() < deadline:
        time.sleep(0.02)

    assert (tmp_path / "opened").read_text().strip() == url
    assert len(url.partition("token=")[2]) >= 24
    assert overview(url)["title"] == "numbers"
    assert ended(running) == (0, "")


def test_a_taken_port_is_an_error_that_says_what_to_do(process: Start, records: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        running = process("browse", records, "--no-open", "--port", port)
        with running:
            out, err = running.communicate(timeout=30)

    assert (running.returncode, out) == (2, b"")
    assert err.decode().strip() == (
        f"data-stack: port {port} is taken by another program; choose another one, or omit --port for any free port"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digts",), "did you mean 'digits'"),
        (("{records}", "--split", "train"), "has no split 'train'"),
        (("{records}/spec.json",), "cannot detect the format"),
        (("{records}", "-O", "a=1"), "--storage and -O"),
    ],
)
def test_what_cannot_be_shown_is_a_usage_error(
    command: Callable[..., object], records: str, arguments: tuple[str, ...], message: str
) -> None:
    outcome = command("browse", "--no-open", *(each.format(records=records) for each in arguments))

    assert (getattr(outcome, "code", None), message in str(getattr(outcome, "err", ""))) == (2, True)
