"""Tests run in forks as they do in one process, and one whose process dies is a failure."""

from __future__ import annotations

from pathlib import Path

from process_harness import start_python

LOOP = """
from forked_tests import run_in_forks

def pytest_runtestloop(session):
    run_in_forks(session, [[3], [0, 1, 2], [4], [5]], 2)
    return True
"""
TESTS = """
import os, pytest

@pytest.fixture(scope="session")
def server():
    yield
    raise RuntimeError("it does not stop")

def test_passes(): pass
def test_dies(): os.kill(os.getpid(), 9)
def test_goes_on(server): pass
def test_fails(): print("looked"); assert 1 == 2
def test_leaves(): os._exit(0)
def test_goes_on_too(): pass
"""


def test_what_fails_or_dies_is_told_and_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(LOOP)
    (tmp_path / "test_all.py").write_text(TESTS)

    with start_python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", tmp_path
    ) as running:
        output, errors = running.communicate()

    assert (running.returncode, errors) == (1, "")
    assert "3 failed, 3 passed, 1 error" in output
    for text in (
        "test_dies",
        "status -9",
        "status 0",
        "looked",
        "assert 1 == 2",
        "RuntimeError: it does not stop",
    ):
        assert text in output, output
