"""The command ``data-stack show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings, answer, dataset_options, parse_options, table, takes_settings

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF

_N_SAMPLES = 20
_COLUMNS = ("position", "label", "sample")


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_names)
@click.option("-o", "--output", metavar="FILE", help="Write an image file, .png or .jpg.  [default: show the samples here]")
@click.option("--split", metavar="SPLIT", help="One split.  [default: the first]")
@click.option(
    "-n",
    "--samples",
    "n_samples",
    type=click.IntRange(min=1),
    help="Maximum number of samples.  [default: 100 in a file, else 20]",
)
@click.option("--seed", type=click.IntRange(min=0), help="Draw random samples instead of the first of each class.")
@dataset_options
@takes_settings
def show(
    settings: Settings,
    name: str,
    output: str | None,
    split: str | None,
    n_samples: int | None,
    seed: int | None,
    options: tuple[str, ...],
) -> None:
    """Draw samples with their labels.

    Draws the same number of samples of each class. Prepares the dataset first if it is not ready. Prints a line for each
    sample; -o writes one picture of all.
    """
    if output is not None and Path(output).suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise click.BadParameter(f"{output!r} must end in .png or .jpg", param_hint="'-o'")
    from data_stack.repository.repository import default_repository

    loaded = default_repository().load(name, split, settings.connector(), **parse_options(options))
    samples = next(iter(loaded.values())) if isinstance(loaded, dict) else loaded
    if output is None:
        _show_here(settings, samples, n_samples or _N_SAMPLES, seed)
        return
    from data_stack.show import contact_sheet

    picture = contact_sheet(samples, n_samples=n_samples, seed=seed)
    picture.save(output)
    facts = {"name": name, "output": output, "width": picture.width, "height": picture.height}
    answer(settings, facts, f"wrote {output} ({picture.width} x {picture.height} pixels)")


def _show_here(settings: Settings, iterator: DatasetIteratorIF, n_samples: int, seed: int | None) -> None:
    """Print samples as lines of text."""
    from data_stack.show.looks import choose, default_keys, label_text, part_of, shorten

    meta: Any = getattr(iterator, "dataset_meta", None)
    sample_key, target_key = default_keys(meta, iterator[0] if len(iterator) else ())
    positions = choose(iterator, target_key, min(n_samples, len(iterator)), seed)[0] if len(iterator) else []
    samples = [iterator[position] for position in positions]
    labels = [label_text(part_of(sample, target_key), getattr(meta, "class_names", None)) for sample in samples]
    values = [part_of(sample, sample_key) for sample in samples]
    texts = [
        f"{value.dtype} {' × '.join(map(str, value.shape))}" if getattr(value, "ndim", 0) > 1 else shorten(value, 100)
        for value in values
    ]
    rows = list(zip(positions, labels, texts, strict=True))
    shown = table(_COLUMNS, [(str(position), label, text) for position, label, text in rows], right=(0,))
    answer(settings, [dict(zip(_COLUMNS, row, strict=True)) for row in rows], shown)
