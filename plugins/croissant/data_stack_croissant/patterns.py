"""Applies the regular expressions of documents within limits, in a process of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.processes.isolation import run_on_bytes

#: Limit of the processor time of one run of the other process.
MAX_SECONDS: Final = 10.0
#: Limit of the texts of one run, in characters together. A longer text is a run of its own.
_RUN_LENGTH: Final = 1 << 18
#: Limit of one text, in characters. The answer of a run has a limit, too, which a longer text might
#: exceed.
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
    """Apply a ``regex`` or a ``replace`` of Croissant to texts.

    After a ``regex``, a text becomes the first group of the match at its start. Without a match it
    stays as it is.

    Args:
        texts: the texts, each once.
        pattern: a regular expression of Python.
        replacement: what replaces each match, for a ``replace``; None for a ``regex``.
        where: the field, for messages.
        max_seconds: limit of the processor time of a run.
        run_length: limit of the texts of a run, in characters together.

    Returns:
        The rewritten text of each text.

    Raises:
        DatasetFileCorruptError: the pattern is malformed, or takes too much time or memory; or a
            text is too long.
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
    """Yield the texts in runs.

    Args:
        texts: the texts.
        run_length: limit of the texts of a run, in characters together.
        where: the field, for messages.

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
    """Rewrite texts in a process with limits; in this process if isolation is switched off."""
    rewritten: list[str] = run_on_bytes(
        f"{__name__}:rewrite",
        [pattern, replacement],
        json.dumps(run).encode(),
        name="texts",
        seconds=max_seconds,
    )
    return rewritten


def rewrite(file: Any, pattern: str, replacement: str | None) -> list[str]:
    """Rewrite texts. The other process calls this function by its name.

    Args:
        file: a binary file with the texts, a list in JSON.
        pattern: see :func:`rewrite_texts`.
        replacement: see :func:`rewrite_texts`.

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
    """Return the first group of a match that has text; the whole text without one."""
    if match is None:
        return text
    for group in match.groups():
        if group is not None:
            return str(group)
    return text
