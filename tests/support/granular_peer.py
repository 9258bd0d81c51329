"""Granular 0.21.2, the last version with sequences, in a process of its own: 0.24.2 is the one that
is installed.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

OLD_GRANULAR = Path(sys.prefix) / "granular-0.21"
INSTALL = (
    f"{sys.executable} -m pip install --no-deps --upgrade --target {OLD_GRANULAR} granular==0.21.2"
)

_READ = """
import pickle, sys
path, *folders = sys.argv[1:]
sys.path.insert(0, path)
import granular
assert granular.__file__.startswith(path), granular.__file__
answer = []
for folder in folders:
    with granular.DatasetReader(folder, granular.decoders, cache_index=False) as reader:
        answer.append([reader[i] for i in range(len(reader))])
pickle.dump(answer, sys.stdout.buffer)
"""


def read_by_old_granular(*folders: Path) -> list[list[dict[str, Any]]]:
    """The samples of some datasets, as Granular 0.21.2 reads them.

    Raises:
        FileNotFoundError: it is not installed; the message says how to.
    """
    if not (OLD_GRANULAR / "granular").is_dir():
        raise FileNotFoundError(
            f"these tests read by Granular 0.21.2 what data_stack wrote. It is installed by make, or by: {INSTALL}"
        )
    done = subprocess.run(
        [sys.executable, "-c", _READ, OLD_GRANULAR, *folders], stdout=subprocess.PIPE, check=True
    )
    answer: list[list[dict[str, Any]]] = pickle.loads(done.stdout)  # of our own process
    return answer
