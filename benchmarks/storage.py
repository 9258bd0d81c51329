"""All stores one after the other, each against its bare client and the naive way: folder, MongoDB, cache, S3.

Run: python benchmarks/storage.py [STORE …] [OPTION …]. STORE is ``folder``, ``mongodb``, ``cache`` or ``object_stores``, options
are those of the script of that name, e.g. ``--rounds 5``. The machine must do nothing else meanwhile; figures: README.md.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STORES = ("folder", "mongodb", "cache", "object_stores")


def main() -> int:
    """Run the scripts in processes of their own; the first exit code that is not 0, if any."""
    stores = [argument for argument in sys.argv[1:] if argument in STORES] or list(STORES)
    options = [argument for argument in sys.argv[1:] if argument not in STORES]
    codes = []
    for store in stores:
        print(f"== {store}", flush=True)
        codes.append(
            subprocess.run([sys.executable, str(Path(__file__).with_name(f"{store}.py")), *options], check=False).returncode
        )
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
