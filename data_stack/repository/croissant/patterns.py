"""Regular expressions of documents, which may take for ever, applied in another process that has limits of time and memory."""

from __future__ import annotations

import functools
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.processes.isolation import ISOLATION, run_apart

#: Limit of processor time for the texts of one run.
MAX_SECONDS: Final = 10.0
#: Texts of one run, in characters; a longer text is a run of its own.
_RUN_LENGTH: Final = 1 << 18
#: What comes back of a run has a limit of bytes.
MAX_TEXT_LENGTH: Final = 1 << 21


def rewrite_texts(texts: Iterable[str], pattern: str, replacement: str | None, where: str) -> dict[str, str]:
    """Each text after a ``regex`` of Croissant, or its ``replace``.

    A text becomes the first group that matches at its start; without a match it stays as it is.

    Args:
        texts: distinct ones.
        pattern: a regular expression of Python.
        replacement: for all its matches; None for a ``regex``.
        where: the field, for messages.

    Raises:
        DatasetFileCorruptError: the pattern is malformed, or takes too much time or memory; a text is too long.
    """
    rewritten: dict[str, str] = {}
    is_off = os.environ.get(ISOLATION, "").strip().lower() in ("off", "0")
    for run in _runs(texts, where):
        data = json.dumps(run).encode()
        how: dict[str, Any] = {"name": "texts", "size": len(data), "seconds": MAX_SECONDS}
        try:
            if is_off:
                found = rewrite(io.BytesIO(data), pattern, replacement)
            else:
                view = functools.partial(_part_of, data)
                found = run_apart(f"{__name__}:rewrite", [pattern, replacement], read_at=view, **how)
        except DatasetFileCorruptError as error:
            raise DatasetFileCorruptError(
                f"the regular expression {pattern!r:.200} of {where} cannot be applied to {run[0]!r:.80} or a text after it: it "
                f"is malformed, or takes more than {MAX_SECONDS:g} s of processor time or too much memory. Ask the document's "
                f"publisher to correct it; if you trust it, set the environment variable {ISOLATION}=off ({error!s:.300})"
            ) from error
        rewritten.update(zip(run, found, strict=True))
    return rewritten


def _runs(texts: Iterable[str], where: str) -> Iterator[list[str]]:
    run, length = list[str](), 0
    for text in texts:
        if len(text) > MAX_TEXT_LENGTH:
            raise DatasetFileCorruptError(
                f"{where} has a regular expression for a text of {len(text):,} characters: at most {MAX_TEXT_LENGTH:,} are read"
            )
        if run and length + len(text) > _RUN_LENGTH:
            yield run
            run, length = [], 0
        run.append(text)
        length += len(text)
    if run:
        yield run


def _part_of(data: bytes, start: int, size: int) -> bytes:
    return data[start : start + size]


def rewrite(file: Any, pattern: str, replacement: str | None) -> list[str]:
    """The same of texts in JSON; runs in the other process."""
    try:
        compiled = re.compile(pattern)
        texts = json.loads(file.read())
        if replacement is not None:
            return [compiled.sub(replacement, text) for text in texts]
        matches = [compiled.match(text) for text in texts]
    except (re.error, RecursionError, OverflowError, LookupError) as error:
        raise DatasetFileCorruptError(f"{type(error).__name__}: {error!s:.200}") from error
    firsts = [next((group for group in match.groups() if group is not None), None) if match else None for match in matches]
    return [text if first is None else first for text, first in zip(texts, firsts, strict=True)]
