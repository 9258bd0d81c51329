"""Throw-away distributions on disk: real packages, real metadata, real entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent


def write_distribution(
    site: Path,
    name: str,
    entry_points: str = "",
    modules: Mapping[str, str] | None = None,
    version: str = "1.0",
) -> None:
    """Write the metadata of a distribution into a folder of ``sys.path``, and its modules by their
    names.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)
    for module, source in (modules or {}).items():
        (site / f"{module}.py").write_text(dedent(source), encoding="utf-8")
