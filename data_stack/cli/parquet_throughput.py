"""The command ``data-stack parquet throughput``: how fast a Parquet dataset is read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from data_stack.cli.settings import Settings, common_options, echo, print_json

__all__ = ["throughput"]


@click.command("throughput")
@click.argument("source", metavar="SRC")
@click.option("--fields", "fields", multiple=True, metavar="REGEX", help="Only fields whose whole name matches; may be repeated.")
@click.option("--workers", type=click.IntRange(0, 1024), metavar="N", help="Threads or processes.  [default: one a processor]")
@click.option(
    "--worker-kind",
    type=click.Choice(["auto", "inline", "threads", "processes"]),
    default="auto",
    show_default=True,
    help="Who reads and decodes.",
)
@click.option("--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Rows of a batch.")
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Row groups at random, and their rows.")
@click.option("--window", type=click.IntRange(min=1), default=8, show_default=True, help="Row groups that are mixed.")
@click.option("--warmup", type=click.IntRange(min=0), default=1, show_default=True, help="Epochs that do not count.")
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Epochs that count.")
@common_options
@click.make_pass_decorator(Settings, ensure=True)
def throughput(settings: Settings, /, source: str, fields: tuple[str, ...], **options: Any) -> None:
    """Measure how fast a Parquet dataset is read, in whole epochs.

    Rows and bytes a second, the time to the first batch, and memory. The first epoch fills the caches and does not
    count, unless --warmup 0 is given.
    """
    from data_stack.cli.measuring import measure
    from data_stack.cli.parquet import located

    found = measure(located(source), fields or None, **options)
    if settings.as_json:
        print_json(asdict(found))
        return
    workers = f"{found.n_workers} {found.worker_kind}" if found.n_workers else "no workers"
    for key, value in (
        ("fields", ", ".join(found.fields)),
        ("read by", workers),
        ("rows", f"{found.n_rows:,} in {found.seconds:.3f} s, {found.n_epochs} epoch{'s' * (found.n_epochs > 1)}"),
        ("rows/s", f"{found.rows_per_second:,.0f}"),
        ("MB/s", f"{found.stored_mb_per_second:,.1f} as stored"),
        ("first batch", f"{found.first_batch_seconds * 1e3:,.1f} ms"),
        ("memory", f"{found.peak_memory_mb:,.0f} MB at most, without worker processes"),
    ):
        echo(f"{key:<12}{value}")
