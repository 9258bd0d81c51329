"""Granular 0.21.2, the last version with sequences, in a process of its own: 0.24.2 is the one that is installed."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OLD_GRANULAR = Path(sys.prefix) / "granular-0.21"
INSTALL = f"{sys.executable} -m pip install --no-deps --upgrade --target {OLD_GRANULAR} granular==0.21.2"

# Only this process unpickles what only that one wrote.
_SERVE = """
import pickle, sys
import granular
assert granular.__file__.startswith(sys.argv[1]), granular.__file__
requests, answers = sys.stdin.buffer, sys.stdout.buffer
while True:
    try:
        what, folder, arguments = pickle.load(requests)
    except EOFError:
        break
    if what == "read":
        with granular.DatasetReader(folder, granular.decoders if arguments else None, cache_index=False) as reader:
            answer = reader.spec, [reader[i] for i in range(len(reader))], [reader.available(i) for i in range(len(reader))]
    else:
        spec, samples = arguments
        with granular.DatasetWriter(folder, spec, granular.encoders) as writer:
            for sample in samples:
                writer.append(sample)
        answer = None
    pickle.dump(answer, answers)
    answers.flush()
"""


class OldGranular:
    """Reads and writes whole datasets by Granular 0.21.2.

    Raises:
        FileNotFoundError: it is not installed; the message says how to.
    """

    def __init__(self) -> None:
        if not (OLD_GRANULAR / "granular").is_dir():
            raise FileNotFoundError(
                f"these tests read by Granular 0.21.2 what data_stack wrote. It is installed by make, or by: {INSTALL}"
            )
        path = f"import sys; sys.path.insert(0, {str(OLD_GRANULAR)!r})\n"
        self._process = subprocess.Popen(
            [sys.executable, "-c", path + _SERVE, str(OLD_GRANULAR)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> OldGranular:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def read(self, folder: Path, *, decoded: bool = True) -> tuple[dict[str, str], list[dict[str, Any]], list[dict[str, Any]]]:
        """Spec, samples, and what is available of each."""
        answer: tuple[dict[str, str], list[dict[str, Any]], list[dict[str, Any]]] = self._ask("read", folder, decoded)
        return answer

    def write(self, folder: Path, spec: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> None:
        """Write a dataset."""
        self._ask("write", folder, (spec, samples))

    def _ask(self, what: str, folder: Path, arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((what, str(folder), arguments), self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)
