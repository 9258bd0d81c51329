"""The commands that show samples: show, head, browse."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.dataset_options import dataset_options
from data_stack.cli.group import cli
from data_stack.cli.names import find_place, load_first_split, name_argument, repository
from data_stack.cli.output import print_result
from data_stack.cli.settings import Settings

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF

#: The number of samples that ``show`` prints in the terminal, unless ``-n`` is given.
_N_SHOWN = 20

#: The maximum size of the row groups that ``browse`` keeps of each split, in bytes: a page needs
#: few of them.
_MAX_BYTES_OF_ROW_GROUPS = 16 << 20

# ---------------------------------------------------------------------- show


@cli.command()
@name_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write an image file, .png or .jpg.  [default: show the samples here]",
)
@click.option("--split", metavar="SPLIT", help="One split.  [default: the first]")
@click.option(
    "-n",
    "--samples",
    "n_samples",
    type=click.IntRange(min=1),
    help="Maximum number of samples.  [default: 100 in a file, else 20]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Draw random samples instead of the first of each class.",
)
@dataset_options
def show(
    settings: Settings,
    name: str,
    output: str | None,
    split: str | None,
    n_samples: int | None,
    seed: int | None,
    options: dict[str, Any],
) -> None:
    """Draw samples with their labels.

    NAME is a dataset, or the path or URL of a file or folder, such as ./pictures. Draws the same
    number of samples of each class. Prepares the dataset first if it is not ready. Prints a line
    for each sample, with all columns; -o writes one picture of all. `data-stack head` prints the
    first samples.
    """
    if output is not None and Path(output).suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise click.BadParameter(f"{output!r} must end in .png or .jpg", param_hint="'-o'")

    samples = load_first_split(settings, name, split, options)
    if output is None:
        _show_in_terminal(settings, samples, n_samples, seed)
        return

    from data_stack.show import contact_sheet

    picture = contact_sheet(samples, n_samples, seed=seed)
    picture.save(output)
    facts = {"name": name, "output": output, "width": picture.width, "height": picture.height}
    print_result(settings, facts, f"wrote {output} ({picture.width} x {picture.height} pixels)")


def _show_in_terminal(
    settings: Settings, iterator: DatasetIteratorIF, n_samples: int | None, seed: int | None
) -> None:
    """Print samples as lines of text, equally many of each class."""
    from data_stack.cli.sample_table import print_samples
    from data_stack.show.sample_parts import choose, default_keys

    positions: list[int] = []
    if len(iterator) > 0:
        meta = getattr(iterator, "dataset_meta", None)
        _, target_key = default_keys(meta, iterator[0])
        n_shown = min(n_samples or _N_SHOWN, len(iterator))
        positions, _ = choose(iterator, target_key, n_shown, seed)
    print_samples(settings, iterator, positions)


# ---------------------------------------------------------------------- head


@cli.command()
@name_argument
@click.option("--split", metavar="SPLIT", help="One split.  [default: the first]")
@click.option(
    "-n",
    "--samples",
    "n_samples",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Number of samples.",
)
@dataset_options
def head(
    settings: Settings, name: str, split: str | None, n_samples: int, options: dict[str, Any]
) -> None:
    """Print the first samples, with all columns.

    NAME is a dataset, or the path or URL of a file or folder, such as ./train.csv. Prepares the
    dataset first if it is not ready.
    """
    from data_stack.cli.sample_table import print_samples

    samples = load_first_split(settings, name, split, options)
    print_samples(settings, samples, range(min(n_samples, len(samples))))


# ---------------------------------------------------------------------- browse


@cli.command()
@click.argument("source", metavar="NAME | PATH | URL", shell_complete=complete_places)
@click.option("--split", metavar="SPLIT", help="Only this split.  [default: all, side by side]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="The port.  [default: any free one]",
)
@click.option("--no-open", is_flag=True, help="Print the URL only.")
@dataset_options
def browse(
    settings: Settings,
    source: str,
    split: str | None,
    port: int,
    no_open: bool,
    options: dict[str, Any],
) -> None:
    """Show a dataset in the web browser.

    For example: data-stack browse mnist

    The source is an installed dataset, which is prepared first if it is not ready, or a folder, a
    file or a URL in a format that data-stack convert reads: records, Parquet, WebDataset, images,
    HDF5 …; a folder of such folders opens as splits.

    The page is served on 127.0.0.1, requires the token in its URL, and is read-only. Ctrl-C ends
    it.
    """
    from data_stack.browse.browser import Browser
    from data_stack.browse.server import serve

    place = find_place(settings, source, options)
    if place is None:
        description = repository().describe(source)
        loaded = repository().load(source, split, settings.connector(), **options)
        title = description.name
        facts = dict(description.facts())
    else:
        loaded = repository().load(place, split, **options)
        title = os.path.basename(source.rstrip("/"))
        facts = {}

    if isinstance(loaded, dict):
        splits = loaded
    else:
        splits = {split or "all": loaded}
    for iterator in splits.values():
        if hasattr(iterator, "limit_cache"):
            iterator.limit_cache(_MAX_BYTES_OF_ROW_GROUPS)

    def print_url(url: str) -> None:
        print_result(settings, {"url": url}, f"{url}\nCtrl-C ends it.")

    browser = Browser(title or source, splits, facts)
    serve(browser, port=port, opens=not no_open, announce=print_url)
