"""What runs in a contributor's fork is what runs at home: commands of the Makefile, and no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: ``owner/name@commit # v1.2.3``: a tag can be moved to other code, a commit cannot.
PINNED_ACTION = re.compile(r"uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def read_workflow(path: Path) -> Any:
    """Return a workflow as it is written; its key ``on`` is read as True."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def list_targets() -> set[str]:
    """Return the targets that ``make help`` lists."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))


def test_there_is_a_workflow() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_commands_of_the_makefile_only(path: Path) -> None:
    commands = []
    for job in read_workflow(path)["jobs"].values():
        runs = [step["run"] for step in job["steps"] if "run" in step]
        assert runs == ["make ${{ matrix.make }}"]
        commands += [entry["make"] for entry in job["strategy"]["matrix"]["include"]]

    words = [word for command in commands for word in command.split()]
    targets = {word for word in words if "=" not in word}
    assert {"lint", "types", "unit", "docs", "dist-check"} <= targets
    assert targets - list_targets() == set()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_pinned_actions_that_may_only_read(path: Path) -> None:
    workflow = read_workflow(path)
    uses = [
        line.strip().removeprefix("- ")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]

    assert uses
    assert [line for line in uses if not PINNED_ACTION.match(line)] == []
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow["jobs"].values())
    assert workflow["concurrency"]["cancel-in-progress"] is True


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_python_of_a_workflow_is_the_one_it_installs(path: Path) -> None:
    for job in read_workflow(path)["jobs"].values():
        for entry in job["strategy"]["matrix"]["include"]:
            tested = re.findall(r"PYTHONS=python([\d.]+)", entry["make"])
            assert tested == [entry["python"]] if "python" in entry else tested == []
