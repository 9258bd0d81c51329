"""Loads a dataset by name into an empty store, prints a report, and draws samples; called by ``make
quickstart``.

Writes to the current folder: the store to ``.quickstart``, which it empties first, and the contact
sheet to ``quickstart.png``.
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
    """Load the first sample from the store that DATA_STACK_HOME names."""
    import data_stack

    train = data_stack.load("digits", split="train")
    image, label, tag = train[0]
    return train, image, label, tag


def main() -> None:
    """Prepare the dataset, print its report, and draw samples."""
    shutil.rmtree(STORE, ignore_errors=True)
    os.environ["DATA_STACK_HOME"] = str(STORE.absolute())
    # The output may go to a log or a terminal of any encoding.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    print("Loading the dataset 'digits' into an empty store.\n")

    from data_stack.reproduce import DatasetReport
    from data_stack.show import contact_sheet

    print(DatasetReport.of("digits"))
    train, image, label, _ = the_code()
    contact_sheet(train).save(SHEET)

    lines = [line for line in inspect.getsource(the_code).splitlines()[2:-1] if line.strip()]
    print(
        f"\nThe first of {len(train):,} samples is an image of a {label}, {image.shape[0]} × {image.shape[1]} pixels."
    )
    print(f"{SHEET} shows a hundred samples.\n")
    print("In Python:\n")
    print(textwrap.indent(textwrap.dedent("\n".join(lines)), "    "))
    command = Path(os.path.relpath(sys.executable)).with_name("data-stack")
    print(
        f"\nThe store is {STORE}. To verify its checksums, run:  {command} verify --storage {STORE}"
    )
    print(
        "Without --storage and DATA_STACK_HOME, data_stack stores datasets in your cache folder. README.md has the next steps."
    )


if __name__ == "__main__":
    main()
