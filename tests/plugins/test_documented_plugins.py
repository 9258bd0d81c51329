"""Each plugin of docs/plugins.md keeps its contract, and its hook is one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import data_stack
from data_stack.plugins import PluginManager

Site = Any  # the class in conftest.py, which cannot be imported from here

PAGE = (Path(data_stack.__file__).parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
#: The examples by the names of their suites, without "Contract".
EXAMPLES = {match[2]: match[1] for match in re.finditer(r"```python\n((?:(?!```).)*?\((\w+)Contract\):.*?)```", PAGE, re.DOTALL)}


def test_there_is_an_example_of_each_kind() -> None:
    assert set(EXAMPLES) == {"StorageConnector", "Retriever", "Engine", "Encoder", "Codec", "Layer"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name != "Codec" else name for name in sorted(EXAMPLES)],
)
def test_an_example_keeps_its_contract(tmp_path: Path, name: str) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLES[name], encoding="utf-8")

    command = [
        sys.executable,
        *["-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_example.py"],
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)

    assert result.returncode == 0, result.stdout[-5000:] + result.stderr


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"Layer"}))
def test_the_hook_of_an_example_is_accepted(site: Site, manager: PluginManager, name: str) -> None:
    site.install_hooks("example", EXAMPLES[name])

    (record,) = site.records(manager.doctor()).values()

    assert (record.state, record.error) == ("ok", None)
