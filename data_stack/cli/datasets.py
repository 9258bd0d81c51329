"""The commands that prepare, draw or browse datasets."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli import common
from data_stack.cli.common import Settings, answer, cli, name_argument, table
from data_stack.exception import ConfigError, DatasetNotFoundError, PluginError
from data_stack.show.markup import size_text

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF
    from data_stack.engines import PreparationEngine


@cli.command()
@name_argument
@click.option(
    "--engine",
    metavar="NAME",
    help="Engine that prepares the shards: processes, spark, ray …  [default: this process]",
)
@click.option(
    "--processes",
    "n_processes",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Number of processes; implies --engine processes.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Spark cluster, e.g. spark://host:7077 or 'local[4]'; implies --engine spark.",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="Ray cluster, e.g. auto or ray://host:10001; implies --engine ray.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Prepare the dataset even if it is ready; reuses downloaded sources.",
)
@click.option(
    "--keep-steps",
    is_flag=True,
    help="Keep finished steps and shards if the code raises, and reuse them if the code has changed.",
)
@click.option(
    "--dry-run", is_flag=True, help="Only print what would be done; exits with 1 if it cannot work."
)
def prepare(
    settings: Settings,
    name: str,
    engine: str | None,
    n_processes: int | None,
    master: str | None,
    address: str | None,
    dry_run: bool,
    **how: bool,
) -> int:
    """Prepare a dataset ahead of time.

    Downloads and preprocesses the dataset, so that loading it later only opens files. Stored files are not downloaded
    again. After an interruption the command resumes if the dataset's code is unchanged; if that code raises, it starts over.

    A dataset with shards can prepare them in parallel, in processes of this machine, or on a cluster of Spark or Ray (with
    the package lazy-data-stack-spark or lazy-data-stack-ray); other datasets run there as one task. All machines must reach the
    store.
    """
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.reproduce.planning import plan

    connector = settings.connector()
    if dry_run:
        found = plan(name, connector)
        # "licence" is the name that the field "license" had before version 0.2.
        more_fields = {"works": found.works, "licence": found.license}
        answer(settings, asdict(found) | more_fields, str(found))
        return 0 if found.works else 1
    if master is not None and address is not None:
        raise ConfigError("--master is of Spark and --address of Ray; pass one of them")
    chosen = engine_of(
        engine or (None if address is None else "ray"),
        n_processes,
        address if master is None else master,
    )
    dataset = common.repository().resolve(name, connector)
    dataset.check_license()
    factory = dataset.factory
    if not isinstance(factory, DatasetFactory):
        advice = f"which loading a split prepares, e.g. `data-stack report {name} --split train`"
        raise ConfigError(
            f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}), {advice}"
        )
    done, manifest = factory.prepare(engine=chosen, **how), factory.manifest()
    size = None if manifest is None else manifest.size
    facts = {"name": name, "already_ready": done.already_ready, "reason": done.reason}
    facts["steps"] = [
        {"step": step, "seconds": round(duration, 6)} for step, duration in done.steps
    ]
    facts |= {"seconds": round(done.seconds, 6), "size": size, "storage": repr(connector)}
    steps = table(
        ("step", "time"), [(step, f"{duration:.3f} s") for step, duration in done.steps], right=(1,)
    )
    text = f"{name} is ready in {connector!r}: {size_text(size)}, prepared in {done.seconds:.3f} s"
    answer(
        settings,
        facts,
        *([f"{name} was ready in {connector!r}"] if done.already_ready else [steps, text]),
    )
    return 0


@cli.command("import-file")
@click.argument("identifier", metavar="IDENTIFIER")
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.option("--sha256", metavar="HEX", help="SHA-256 that the file must have.")
@click.option("--md5", metavar="HEX", help="MD5 that the file must have.")
@click.option("--unverified", is_flag=True, help="Store the file without verifying it.")
def import_file(
    settings: Settings,
    identifier: str,
    path: str,
    sha256: str | None,
    md5: str | None,
    unverified: bool,
) -> None:
    """Store a file that you downloaded yourself.

    For example: data-stack import-file digits/1.0.0/raw/digits.csv.gz ~/Downloads/digits.csv.gz

    The file must have the checksum that the installed dataset defines for IDENTIFIER, or the given one. The error of a failed
    download contains the identifier.
    """
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.factories.definition import DatasetDefinition
    from data_stack.io.identifiers import check_identifier
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.retriever import import_file

    connector, known = settings.connector(), dict[str, ResourceDefinition]()
    name = check_identifier(identifier).partition("/")[0]
    with contextlib.suppress(DatasetNotFoundError, PluginError):
        factory = common.repository().get_factory(name, connector)
        if isinstance(factory, DatasetFactory):
            known = {
                each.identifier: each
                for each in DatasetDefinition(factory, DatasetFactory).retrieval_jobs
            }
    definition = known.get(identifier, ResourceDefinition(identifier, path))
    if not unverified and not any((definition.sha256, definition.md5_sum, sha256, md5)):
        problem = f"the digest of {identifier!r} is unknown; dataset {name!r} defines: {', '.join(known) or 'nothing'}"
        advice = "Pass --sha256 or --md5 as its publisher states it, or --unverified to store it without a check"
        raise ConfigError(f"{problem}. {advice}")
    stored = import_file(
        replace(definition, source=path, mirrors=()), path, connector, sha256=sha256, md5_sum=md5
    )
    facts: dict[str, Any] = {
        "identifier": identifier,
        "path": os.path.abspath(path),
        "storage": repr(connector),
    }
    facts |= {"size": stored.size, "sha256": stored.sha256, "verified": stored.verified}
    state = "verified" if stored.verified else "NOT VERIFIED"
    answer(
        settings,
        facts,
        f"stored {identifier} in {connector!r}: {size_text(stored.size)}, sha256 {stored.sha256}, {state}",
    )


def engine_of(
    kind: str | None, n_processes: int | None, master: str | None
) -> PreparationEngine | None:
    """The engine that the options of a command choose; None without such options.

    Args:
        kind: ``"processes"``, or an engine of a plugin such as ``"spark"``; None: implied by the other options.
        n_processes: number of processes on this machine.
        master: URL of a cluster.

    Raises:
        ConfigError: the options contradict each other, or the engine is unknown.
    """
    from data_stack.engines import ProcessEngine
    from data_stack.factories.engine_names import make_engine

    kind = kind or (
        "spark" if master is not None else "processes" if n_processes is not None else None
    )
    if kind == "processes" and master is not None:
        raise ConfigError("--master requires --engine spark, and --address --engine ray")
    if kind != "processes" and n_processes is not None:
        raise ConfigError("--processes requires --engine processes")
    if n_processes is not None:
        return ProcessEngine(n_processes)
    return None if kind is None else make_engine(kind, master)


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
    *("-n", "--samples", "n_samples"),
    type=click.IntRange(min=1),
    help="Maximum number of samples.  [default: 100 in a file, else 20]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Draw random samples instead of the first of each class.",
)
@common.dataset_options
def show(
    settings: Settings,
    name: str,
    output: str | None,
    split: str | None,
    options: dict[str, Any],
    **how: Any,
) -> None:
    """Draw samples with their labels.

    NAME is a dataset, or the path or URL of a file or folder, such as ./pictures. Draws the same number of samples of each
    class. Prepares the dataset first if it is not ready. Prints a line for each sample, with all columns; -o writes one
    picture of all. `data-stack head` prints the first samples.
    """
    if output is not None and Path(output).suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise click.BadParameter(f"{output!r} must end in .png or .jpg", param_hint="'-o'")

    loaded = common.repository().load(name, split, settings.connector(), **options)
    samples = next(iter(loaded.values())) if isinstance(loaded, dict) else loaded
    if output is None:
        _show_here(settings, samples, **how)
        return
    from data_stack.show import contact_sheet

    picture = contact_sheet(samples, **how)
    picture.save(output)
    facts = {"name": name, "output": output, "width": picture.width, "height": picture.height}
    answer(settings, facts, f"wrote {output} ({picture.width} x {picture.height} pixels)")


def _show_here(
    settings: Settings, iterator: DatasetIteratorIF, n_samples: int | None, seed: int | None
) -> None:
    """Print samples as lines of text, equally many of each class."""
    from data_stack.cli.sample_tables import show_samples
    from data_stack.show.sample_parts import choose, default_keys

    positions: list[int] = []
    if len(iterator):
        target_key = default_keys(getattr(iterator, "dataset_meta", None), iterator[0])[1]
        n_shown = min(n_samples or 20, len(iterator))
        positions = choose(iterator, target_key, n_shown, seed)[0]
    show_samples(settings, iterator, positions)


@cli.command()
@name_argument
@click.option("--split", metavar="SPLIT", help="One split.  [default: the first]")
@click.option(
    *("-n", "--samples", "n_samples"),
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Number of samples.",
)
@common.dataset_options
def head(
    settings: Settings, name: str, split: str | None, n_samples: int, options: dict[str, Any]
) -> None:
    """Print the first samples, with all columns.

    NAME is a dataset, or the path or URL of a file or folder, such as ./train.csv. Prepares the
    dataset first if it is not ready.
    """
    from data_stack.cli.sample_tables import show_samples

    loaded = common.repository().load(name, split, settings.connector(), **options)
    samples = next(iter(loaded.values())) if isinstance(loaded, dict) else loaded
    show_samples(settings, samples, range(min(n_samples, len(samples))))


@cli.command("browse")
@click.argument("source", metavar="NAME | PATH | URL", shell_complete=common.complete_places)
@click.option("--split", metavar="SPLIT", help="Only this split.  [default: all, side by side]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="The port.  [default: any free one]",
)
@click.option("--no-open", is_flag=True, help="Print the URL only.")
@common.dataset_options
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

    The source is an installed dataset, which is prepared first if it is not ready, or a folder, a file or a URL in a format
    that data-stack convert reads: records, Parquet, WebDataset, images, HDF5 …; a folder of such folders opens as splits.

    The page is served on 127.0.0.1, requires the token in its URL, and is read-only. Ctrl-C ends it.
    """
    from data_stack.browse.browser import Browser
    from data_stack.browse.server import serve

    place = common.find_place(settings, source, options)
    name: Any = source if place is None else place
    about = common.repository().describe(name)
    storage = settings.connector() if place is None else None
    loaded = common.repository().load(name, split, storage, **options)
    splits = loaded if isinstance(loaded, dict) else {split or "all": loaded}
    for each in splits.values():
        if hasattr(each, "limit_cache"):  # Parquet; a page needs few row groups
            each.limit_cache(16 << 20)
    title = about.name if place is None else os.path.basename(source.rstrip("/"))
    browser = Browser(title or source, splits, dict(about.facts()) if place is None else {})
    serve(
        browser,
        port=port,
        opens=not no_open,
        announce=lambda url: answer(settings, {"url": url}, f"{url}\nCtrl-C ends it."),
    )
