"""Writes the version of data_stack and its plugins into every file that has it.

python tools/package_version.py 0.3.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: Of each kind of file, what stands before a version: of the project, and of its packages that it
#: needs.
PLACES = {
    "setup.py": r'^VERSION = "',
    "plugins/*/pyproject.toml": r'^version = "|lazy-data-stack[^">]*>=',
    "CITATION.cff": r"^version: ",
}


def versions() -> dict[tuple[str, str], str]:
    """The versions in all files, by file and what stands before them."""
    return {
        (str(path.relative_to(ROOT)), before): version
        for pattern, place in PLACES.items()
        for path in sorted(ROOT.glob(pattern))
        for before, version in re.findall(
            rf"({place})([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }


def write(version: str) -> None:
    """Write a version into all files."""
    for pattern, place in PLACES.items():
        for path in ROOT.glob(pattern):
            text = path.read_text(encoding="utf-8")
            path.write_text(
                re.sub(rf"({place})[\w.]+", rf"\g<1>{version}", text, flags=re.MULTILINE),
                encoding="utf-8",
            )


if __name__ == "__main__":
    if len(sys.argv) != 2 or not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", sys.argv[1]):
        sys.exit("expected one version, such as 0.3.0 or 1.0.0rc1")
    write(sys.argv[1])
    print(f"{len(versions())} places now have the version {sys.argv[1]}")
