"""Writes constraints-lowest.txt by uv: the lowest versions that setup.py and the plugins admit, with
the current tools of the tests (`make constraints`).

uv knows one resolution for all requirements. So this program gives it the versions of the tools
from constraints.txt, and leaves out what is not installed for the tests.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TITLE = (
    "# The environment of `make test-lowest`, by `make constraints`: "
    "the lowest versions of what users install."
)

#: What uv finds lower bounds in, and what users install.
PROJECTS = [ROOT / "setup.py", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]
EXTRAS_OF_USERS = ["--extra", "all", "--extra", "s3", "--extra", "testing"]

#: Packages that uv leaves out.
EXCLUDED = [
    # The packages of this repository.
    "lazy-data-stack",
    *(f"lazy-data-stack-{project.parent.name}" for project in PROJECTS[1:]),
    # Earlier versions bring gigabytes of CUDA; its version is that of constraints.txt.
    "torch",
    # Its current version raises that of platformdirs.
    "pre-commit",
]


def compile_requirements(*arguments: str | Path) -> list[str]:
    """Return the lines ``name==version`` of ``uv pip compile``."""
    options = ["--quiet", "--no-header", "--no-annotate", "--python-version", "3.11"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as excluded:
        excluded.write("\n".join(EXCLUDED))
        excluded.flush()
        uv = Path(sys.executable).with_name("uv")
        command = [uv, "pip", "compile", *options, "--excludes", excluded.name, *arguments]
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.splitlines()


def name_of(line: str) -> str:
    """Return the name of a package, as uv writes it."""
    return re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()


def pin_tools(pinned: list[str]) -> list[str]:
    """Return the lines of constraints.txt of what only the tests and their tools require."""
    for_users = compile_requirements("--no-deps", *PROJECTS, *EXTRAS_OF_USERS)
    for_tests = compile_requirements("--no-deps", PROJECTS[0], "--extra", "dev")
    tools = {name_of(line) for line in for_tests} - {name_of(line) for line in for_users}
    return [line for line in pinned if name_of(line) in tools]


def main() -> None:
    """Write the file."""
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as tools:
        tools.write("\n".join(pin_tools(pinned)))
        tools.flush()
        lowest = compile_requirements(
            *("--resolution", "lowest-direct", "--constraint", tools.name),
            *PROJECTS,
            *EXTRAS_OF_USERS,
            *("--extra", "dev"),
        )
    torch = [line for line in pinned if name_of(line) == "torch"]
    text = "\n".join([TITLE, *torch, *lowest, ""])
    (ROOT / "constraints-lowest.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
