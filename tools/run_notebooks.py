"""Run the notebooks of ``getting_started`` and keep their output in them: ``make notebooks``, or
with names of notebooks.

nbclient runs them, as it does in the tests. What differs from run to run is left out here, so that
a second run changes nothing: counts, names of temporary files, ports, and what is written to
stderr. (nbmake and nbconvert keep these.) A cell with the tag ``varies`` keeps the output that it
has; clear it to renew it. One with the tag ``network`` is left out.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


def execute(notebook: Any, folder: Path, *, skipped_tag: str = "") -> None:
    """Run a notebook in a folder by nbclient, which writes the outputs into its cells.

    Cells with ``skipped_tag`` are not run, and keep their outputs.
    """
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        skip_cells_with_tag=skipped_tag,
        resources={"metadata": {"path": str(folder)}},
    ).execute()


def renew(path: Path, folder: Path) -> Any:
    """Return the notebook at ``path`` with the output of a run in ``folder``."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # nbformat has no annotations
    kept_outputs = {
        cell.id: cell.outputs
        for cell in notebook.cells
        if "varies" in cell.metadata.get("tags", ()) and cell.outputs
    }
    execute(notebook, folder, skipped_tag="network")
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        shown = [output for output in cell.outputs if output.get("name") != "stderr"]
        cell.outputs = kept_outputs.get(cell.id) or clean(shown, folder)
    notebook.metadata.update(METADATA)
    return notebook


def clean(value: Any, folder: Path) -> Any:
    """An output without counts, addresses and paths of this machine."""
    if isinstance(value, str):
        value = re.sub(
            rf"({re.escape(tempfile.gettempdir())}/data_stack_)\w+",
            "/tmp/data_stack",  # noqa: S108  # shown only
            value,
        )
        value = re.sub(r"127.0.0.1:\d+", "127.0.0.1:27017", re.sub(r"0x[0-9a-f]{9,}", "0x…", value))
        return (
            value.replace(str(folder), ".")
            .replace(str(folder.parent), "~")
            .replace(str(ROOT), "data_stack")
        )
    if isinstance(value, list):
        return [clean(item, folder) for item in value]
    if isinstance(value, dict):
        if "execution_count" in value:
            value["execution_count"] = None
        if "image/png" in value:
            value.pop("image/jpeg", None)  # the same picture
        return type(value)({key: clean(item, folder) for key, item in value.items()})
    return value


def main(names: list[str]) -> None:
    """Run the notebooks of these names, or all; each in an empty store, without a network."""
    for path in sorted((ROOT / "getting_started").glob("*.ipynb")):
        if names and path.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(
                DATA_STACK_HOME=f"{folder}/.cache/data_stack", DATA_STACK_OFFLINE="1", HOME=folder
            )
            (Path(folder) / "getting_started").mkdir()
            (Path(folder) / "tests").symlink_to(
                ROOT / "tests"
            )  # as in a clone, beside the notebooks
            notebook = renew(path, Path(folder) / "getting_started")
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
