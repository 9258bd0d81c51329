"""Writes constraints-lowest.txt: the lowest versions that setup.py and the plugins admit, with the
current tools of the tests.

Needs uv and setuptools. torch is the one of constraints.txt: its earlier versions bring gigabytes
of CUDA.
"""

from __future__ import annotations

import re
import subprocess
import sys
from distutils.core import run_setup
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent

#: Its current version raises that of platformdirs.
RAISES = {"pre-commit"}


def name_of(requirement: str) -> str:
    """The name of a package, as indexes compare it."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def requirements() -> list[str]:
    """What data_stack and its plugins require, and what their tests require at the versions of
    constraints.txt.
    """
    project: Any = run_setup(str(ROOT / "setup.py"), stop_after="init")
    pinned = {
        name_of(line): line.strip()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    }
    extras = project.extras_require
    required = [*project.install_requires, *extras["s3"], *extras["testing"], *extras["all"]]
    for plugin in ROOT.glob("plugins/*/pyproject.toml"):
        required += tomllib.loads(plugin.read_text(encoding="utf-8"))["project"]["dependencies"]
    untried = {name_of(each) for each in extras["cloud"]} - {
        name_of(each) for each in extras["test"]
    } | {"torch"}
    found = {
        each
        for each in required
        if name_of(each) not in untried and not each.startswith("lazy-data-stack")
    }
    tools = {each for each in set(extras["dev"]) - set(required) if name_of(each) not in RAISES}
    return sorted(found) + sorted(
        re.split("[<>=]", each)[0] + "==" + pinned[name_of(each)].partition("==")[2]
        for each in tools
    )


def main() -> None:
    """Write the file."""
    options = (
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--python-version",
        "3.11",
        "--resolution",
        "lowest-direct",
    )
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", *options, "-"]
    done = subprocess.run(
        command, input="\n".join(requirements()), text=True, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    title = "# The environment of `make test-lowest`, by `make constraints`: the lowest versions of what users install."
    torch = re.findall(
        "^torch==.*", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    (ROOT / "constraints-lowest.txt").write_text(
        "\n".join((title, *torch, done.stdout)), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
