"""Prints the results of commands, as text or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from typing import Any

import click

from data_stack.cli.settings import Settings
from data_stack.show.markup import Block, Paragraph, Table, as_text, printable


def print_result(settings: Settings, value: Any, *blocks: Block | str | None) -> None:
    """Print the result of a command.

    Args:
        settings: the settings of the command.
        value: the result with ``--json``. It is written in ASCII, for any locale.
        blocks: the result without ``--json``. Those that are None or empty are left out.
    """
    if settings.as_json:
        click.echo(json.dumps(value, indent=2, default=str), file=settings.stdout)
        return
    shown_blocks: list[Block] = []
    for block in blocks:
        if isinstance(block, str) and block:
            shown_blocks.append(Paragraph(block))
        elif block:
            shown_blocks.append(block)
    echo(as_text(shown_blocks))


def whole_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> Table:
    """Return a table that shows all of its rows; columns numbered in ``right`` are flush right."""
    return Table(header, rows, frozenset(right), max_rows=sys.maxsize)


def echo(text: str = "", *, err: bool = False) -> None:
    """Write lines on stdout, or with ``err`` on stderr, with control characters escaped."""
    click.echo(printable(text, keep="\n\t"), err=err)


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun: ``"1 fault"``, ``"1,200 faults"``."""
    plural = "" if number == 1 else "s"
    return f"{number:,} {noun}{plural}"
