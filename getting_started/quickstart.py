"""Loads real data by name from a cold store, reports what it is, and draws it; called by ``make quickstart``.

All is written to the current folder: the store to ``.quickstart``, emptied first so that every step is seen, and the
contact sheet to ``quickstart.png``.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

STORE, SHEET = Path(".quickstart"), Path("quickstart.png")


def the_code() -> tuple[Any, Any, Any, Any]:
    """Three lines; the store is the one that DATA_STACK_HOME names."""
    import data_stack

    train = data_stack.load("digits", split="train")
    image, label, tag = train[0]
    return train, image, label, tag


def main() -> None:
    """Prepare and report, draw, and do it again in three lines."""
    shutil.rmtree(STORE, ignore_errors=True)
    os.environ["DATA_STACK_HOME"] = str(STORE.absolute())
    # The output may go to a log or a terminal of any encoding; none of them shall stop a first impression.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    print("Loading the dataset 'digits' into an empty store.\n")

    from data_stack.display import DatasetReport, contact_sheet

    print(DatasetReport.of("digits"))
    train, image, label, _ = the_code()
    contact_sheet(train).save(SHEET)

    lines = [line for line in inspect.getsource(the_code).splitlines()[2:-1] if line.strip()]
    print(f"\nThe first sample of {len(train):,} is a picture of {image.shape[0]} × {image.shape[1]} pixels, of a {label}.")
    print(f"A hundred of them are on the contact sheet {SHEET}.\n")
    print("In Python:\n")
    print(textwrap.indent(textwrap.dedent("\n".join(lines)), "    "))
    command = Path(os.path.relpath(sys.executable)).with_name("data-stack")
    print(f"\nThe bytes are in {STORE}; this reads them all again:  {command} verify --storage {STORE}")
    print("Without --storage and DATA_STACK_HOME they go to your cache folder. README.md goes on from here.")


if __name__ == "__main__":
    main()
