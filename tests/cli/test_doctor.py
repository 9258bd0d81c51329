"""doctor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_runs import Install, Run
from distributions import write_distribution


def test_doctor_shows_a_broken_plugin_beside_the_others(command: Run, install: Install) -> None:
    install("broken-one", "raise RuntimeError('the reactor is offline')")

    outcome = command("doctor")

    assert outcome.code == 1
    assert "broken: broken-one:broken-one\n" in outcome.out
    assert "the reactor is offline" in outcome.out
    assert "data_stack.datasets  lazy-data-stack-digits" in outcome.out


def test_doctor_finds_what_an_update_left_behind(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    entry_points = "[data_stack.datasets]\nwine = data_stack.mnist.factory:MNISTFactory\n"
    write_distribution(site, "wineds", entry_points, version="0.9")
    write_distribution(site, "wineds", entry_points, version="1.0")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])

    outcome = command("doctor")

    assert outcome.code == 1
    assert "wineds is installed twice: 1.0 in" in outcome.out
    assert "0.9 in" in outcome.out


def test_doctor_finds_the_original_of_pypi(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    # Its wheel of 2021 has no command and no entry points.
    write_distribution(site, "datastack", version="0.0.13")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])

    outcome = command("doctor")

    assert outcome.code == 1
    assert "in the way: datastack 0.0.13 of the original" in outcome.out
    assert str(site) in outcome.out
    assert "pip uninstall datastack" in outcome.out
