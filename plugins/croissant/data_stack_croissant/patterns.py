"""Applies the regular expressions of documents, in a process of its own with limits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.processes.isolation import run_on_bytes

#: Limit of processor time for the texts of one run.
MAX_SECONDS: Final = 10.0
#: Texts of one run, in characters; a longer text is a run of its own.
_RUN_LENGTH: Final = 1 << 18
#: What comes back of a run has a limit of bytes.
MAX_TEXT_LENGTH: Final = 1 << 21


def rewrite_texts(
    texts: Iterable[str],
    pattern: str,
    replacement: str | None,
    where: str,
    *,
    max_seconds: float = MAX_SECONDS,
    run_length: int = _RUN_LENGTH,
) -> dict[str, str]:
    """Return each text after a ``regex`` of Croissant, or its ``replace``.

    A text becomes the first group that matches at its start; without a match it stays as it is.

    Args:
        texts: distinct ones.
        pattern: a regular expression of Python.
        replacement: for all its matches; None for a ``regex``.
        where: the field, for messages.
        max_seconds: limit of processor time of a run.
        run_length: texts of one run, in characters.

    Raises:
        DatasetFileCorruptError: the pattern is malformed, or takes too much time or memory; a text
            is too long.
    """
    rewritten: dict[str, str] = {}
    for run in _split_into_runs(texts, run_length, where):
        try:
            new_texts = _rewrite_run(run, pattern, replacement, max_seconds)
        except DatasetFileCorruptError as error:
            raise DatasetFileCorruptError(
                f"the regular expression {pattern!r:.200} of {where} cannot be applied to "
                f"{run[0]!r:.80} or a text after it: it is malformed, or takes more than "
                f"{max_seconds:g} s of processor time or too much memory. Ask the document's "
                f"publisher to correct it; if you trust it, set the environment variable "
                f"DATA_STACK_ISOLATION=off ({error!s:.300})"
            ) from error
        rewritten.update(zip(run, new_texts, strict=True))
    return rewritten


def _split_into_runs(texts: Iterable[str], run_length: int, where: str) -> Iterator[list[str]]:
    """Yield the texts in runs of limited length.

    Raises:
        DatasetFileCorruptError: a text is too long.
    """
    run: list[str] = []
    n_characters = 0
    for text in texts:
        if len(text) > MAX_TEXT_LENGTH:
            raise DatasetFileCorruptError(
                f"{where} has a regular expression for a text of {len(text):,} characters: "
                f"at most {MAX_TEXT_LENGTH:,} are read"
            )
        if run and n_characters + len(text) > run_length:
            yield run
            run = []
            n_characters = 0
        run.append(text)
        n_characters += len(text)
    if run:
        yield run


def _rewrite_run(
    run: list[str], pattern: str, replacement: str | None, max_seconds: float
) -> list[str]:
    """Rewrite texts in a process with limits; in this one if that is switched off."""
    rewritten: list[str] = run_on_bytes(
        f"{__name__}:rewrite",
        [pattern, replacement],
        json.dumps(run).encode(),
        name="texts",
        seconds=max_seconds,
    )
    return rewritten


def rewrite(file: Any, pattern: str, replacement: str | None) -> list[str]:
    """Rewrite texts in JSON; runs in the other process.

    Args:
        file: with the texts.
        pattern: see :func:`rewrite_texts`, like ``replacement``.
        replacement: for all its matches; None for a ``regex``.

    Raises:
        DatasetFileCorruptError: the pattern is malformed, or cannot be applied.
    """
    try:
        compiled = re.compile(pattern)
        texts = json.loads(file.read())
        if replacement is not None:
            return [compiled.sub(replacement, text) for text in texts]
        return [_first_group(compiled.match(text), text) for text in texts]
    except (re.error, RecursionError, OverflowError, LookupError) as error:
        raise DatasetFileCorruptError(f"{type(error).__name__}: {error!s:.200}") from error


def _first_group(match: re.Match[str] | None, text: str) -> str:
    """Return the first group that matched; the whole text without one."""
    if match is None:
        return text
    for group in match.groups():
        if group is not None:
            return str(group)
    return text
