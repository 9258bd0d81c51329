"""What the fixtures of ``tests/cli`` return: runs of the ``data-stack`` command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

#: The code of a plugin with two versions of a dataset, for ``Install``.
TWO_VERSIONS = """
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

    class New(DatasetFactory):
        card = DatasetCard("wine", "2.0")
        splits = ("all",)

        def open(self, split, prepared):
            return SequenceDatasetIterator([[self.card.version], [0], [0]])

    class Old(New):
        card = DatasetCard("wine", "1.0")
"""


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The standard output as JSON."""
        return json.loads(self.out)

    @property
    def facts(self) -> dict[str, str]:
        """The second column of the standard output, by the first one."""
        facts = {}
        for line in self.out.splitlines():
            words = line.split(maxsplit=1)
            if words:
                facts[words[0]] = words[-1]
        return facts

    @property
    def first_words(self) -> list[str]:
        """The first column of a table, without its header."""
        return [line.split()[0] for line in self.out.splitlines()[2:]]


Run: TypeAlias = Callable[..., Outcome]
"""Runs the command in this process; the arguments are the words of the line."""

Start: TypeAlias = Callable[..., "subprocess.Popen[str]"]
"""Starts the command in a process of its own; keyword arguments are environment variables."""

Install: TypeAlias = Callable[..., None]
"""Installs a distribution with datasets; see the fixture ``install``."""


def outcome_of(process: subprocess.Popen[str]) -> Outcome:
    """Wait until a started command ends, and return its exit code and output."""
    out, err = process.communicate(timeout=120)
    return Outcome(process.returncode, out, err)
