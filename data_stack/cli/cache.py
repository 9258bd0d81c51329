"""The command that lists what this machine keeps of large text files: cache."""

from __future__ import annotations

import datetime
from typing import Any

import click

from data_stack.cli.group import cli
from data_stack.cli.output import count_text, print_result, whole_table
from data_stack.cli.settings import Settings
from data_stack.show.markup import size_text


@cli.command()
@click.option("--clear", is_flag=True, help="Remove all of it; the next opening makes it again.")
def cache(settings: Settings, clear: bool) -> None:
    """List what this machine keeps of large text files.

    The first opening of a large CSV or JSON lines file keeps an index of its rows, and the text of
    a compressed file, for the next opening. While texts take more of the disk than stays free,
    those that were not used for a day are removed. All of it lies in the folder
    DATA_STACK_ROW_INDEXES, or else among the user's caches.
    """
    from data_stack.formats.text_tables.kept_folder import KeptFolder
    from data_stack.formats.text_tables.kept_texts import source_of

    folder = KeptFolder.of_user()
    listing = folder.list_files()
    texts = sorted(listing.texts, key=lambda text: text.used_at, reverse=True)
    indexes = listing.indexes
    facts: dict[str, Any] = {"folder": str(folder.path), "texts": [], "cleared": clear}
    rows = []
    for text in texts:
        used_at = datetime.datetime.fromtimestamp(text.used_at, datetime.timezone.utc)
        source = source_of(folder, text)
        facts["texts"].append(
            {"of": source, "bytes": text.n_bytes, "used_at": used_at.isoformat(timespec="seconds")}
        )
        rows.append((source, size_text(text.n_bytes), f"{used_at:%Y-%m-%d %H:%M} UTC"))
    n_bytes_of_texts = sum(text.n_bytes for text in texts)
    n_bytes_of_indexes = sum(index.n_bytes for index in indexes)
    n_bytes_of_unfinished = sum(file.n_bytes for file in listing.unfinished)
    facts["bytes_of_texts"] = n_bytes_of_texts
    facts["bytes_of_indexes"] = n_bytes_of_indexes
    facts["bytes_of_unfinished"] = n_bytes_of_unfinished

    table = None
    if rows:
        table = whole_table(("text of", "size", "last used"), rows, right=(1,))
    verb = "removed from" if clear else "kept in"
    summary = (
        f"{count_text(len(texts), 'text')} ({size_text(n_bytes_of_texts)}), "
        f"{count_text(len(indexes), 'index file')} ({size_text(n_bytes_of_indexes)}) "
        f"{verb} {folder.path}"
    )
    if listing.unfinished:
        n_unfinished = count_text(len(listing.unfinished), "unfinished file")
        summary += f"; {n_unfinished} ({size_text(n_bytes_of_unfinished)})"
    if clear:
        folder.clear()
    print_result(settings, facts, table, summary)
