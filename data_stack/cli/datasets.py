"""The commands that bring datasets into a store."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings, answer, table, takes_settings
from data_stack.exception import ConfigError, DatasetNotFoundError, PluginError
from data_stack.show.markup import size_text
from data_stack.util.suggestions import did_you_mean

if TYPE_CHECKING:
    from data_stack.factories.engine import PreparationEngine
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.storage_connectors import StorageConnector


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_names)
@click.option("--engine", metavar="NAME", help="Engine that prepares the shards: processes, spark …  [default: this process]")
@click.option(
    "--processes",
    "n_processes",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Number of processes; implies --engine processes.",
)
@click.option("--master", metavar="URL", help="Spark cluster, e.g. spark://host:7077 or 'local[4]'; implies --engine spark.")
@click.option("--again", is_flag=True, help="Prepare the dataset even if it is ready; reuses downloaded sources.")
@click.option(
    "--keep-steps",
    is_flag=True,
    help="Keep finished steps and shards if the code raises, and reuse them if the code has changed.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done; exits with 1 if it cannot work.")
@takes_settings
def prepare(
    settings: Settings,
    name: str,
    engine: str | None,
    n_processes: int | None,
    master: str | None,
    again: bool,
    keep_steps: bool,
    dry_run: bool,
) -> int:
    """Prepare a dataset ahead of time.

    Downloads and preprocesses the dataset, so that loading it later only opens files. Stored files are not downloaded
    again. After an interruption the command resumes if the dataset's code is unchanged; if that code raises, it starts over.

    A dataset with shards can prepare them in parallel, in processes of this machine or on a Spark cluster (with the package
    datastack-spark); other datasets run there as one task. All machines must reach the store.
    """
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.repository.repository import default_repository
    from data_stack.reproduce.planning import plan

    connector = settings.connector()
    if dry_run:
        found = plan(name, connector)
        answer(settings, asdict(found) | {"works": found.works}, str(found))
        return 0 if found.works else 1
    chosen = engine_of(engine, n_processes, master)
    dataset = default_repository().resolve(name, connector)
    dataset.check_licence()
    factory = dataset.factory
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(
            f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}) and cannot be prepared ahead of time; "
            f"loading a split prepares it, e.g. `data-stack report {name} --split train`"
        )
    done, manifest = factory.prepare(engine=chosen, again=again, keep_steps=keep_steps), factory.manifest()
    size = None if manifest is None else manifest.size
    facts = {
        "name": name,
        "already_ready": done.already_ready,
        "reason": done.reason,
        "steps": [{"step": step, "seconds": round(duration, 6)} for step, duration in done.steps],
        "seconds": round(done.seconds, 6),
        "size": size,
        "storage": repr(connector),
    }
    if done.already_ready:
        answer(settings, facts, f"{name} was ready in {connector!r}")
        return 0
    steps = table(("step", "time"), [(step, f"{duration:.3f} s") for step, duration in done.steps], right=(1,))
    answer(settings, facts, steps, f"{name} is ready in {connector!r}: {size_text(size)}, prepared in {done.seconds:.3f} s")
    return 0


@click.command("import-file")
@click.argument("identifier", metavar="IDENTIFIER")
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.option("--sha256", metavar="HEX", help="SHA-256 that the file must have.")
@click.option("--md5", metavar="HEX", help="MD5 that the file must have.")
@click.option("--unverified", is_flag=True, help="Store the file without verifying it.")
@takes_settings
def import_file(settings: Settings, identifier: str, path: str, sha256: str | None, md5: str | None, unverified: bool) -> None:
    """Store a file that you downloaded yourself.

    For example: data-stack import-file digits/1.0.0/raw/digits.csv.gz ~/Downloads/digits.csv.gz

    The file must have the checksum that the installed dataset defines for IDENTIFIER, or the given one. The error of a failed
    download contains the identifier.
    """
    from data_stack.io.identifiers import check_identifier
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.retriever import import_file

    connector = settings.connector()
    name = check_identifier(identifier).partition("/")[0]
    known = _sources_of(name, connector)
    definition = known.get(identifier, ResourceDefinition(identifier, path))
    if not unverified and not any((definition.sha256, definition.md5_sum, sha256, md5)):
        raise ConfigError(
            f"the digest of {identifier!r} is unknown; dataset {name!r} defines: {', '.join(known) or 'nothing'}. "
            f"Pass --sha256 or --md5 as its publisher states it, or --unverified to store it without a check"
        )
    definition = replace(definition, identifier=identifier, source=path, mirrors=())
    stored = import_file(definition, path, connector, sha256=sha256, md5_sum=md5)
    facts: dict[str, Any] = {"identifier": identifier, "path": os.path.abspath(path), "storage": repr(connector)}
    facts |= {"size": stored.size, "sha256": stored.sha256, "verified": stored.verified}
    state = "verified" if stored.verified else "NOT VERIFIED"
    answer(settings, facts, f"stored {identifier} in {connector!r}: {size_text(stored.size)}, sha256 {stored.sha256}, {state}")


def _sources_of(name: str, connector: StorageConnector) -> dict[str, ResourceDefinition]:
    """The sources of an installed dataset, by their identifiers in a store."""
    from data_stack.factories.declarative import DatasetFactory, dataset_folder
    from data_stack.repository.repository import default_repository

    with contextlib.suppress(DatasetNotFoundError, PluginError):
        factory = default_repository().get_factory(name, connector)
        if isinstance(factory, DatasetFactory):
            return {f"{dataset_folder(factory)}/{source.identifier}": source for source in factory.sources}
    return {}


def engine_of(kind: str | None, n_processes: int | None, master: str | None) -> PreparationEngine | None:
    """The engine that the options of a command choose; None without such options.

    Args:
        kind: ``"processes"``, or an engine of a plugin such as ``"spark"``; None: implied by the other options.
        n_processes: number of processes on this machine.
        master: URL of a cluster.

    Raises:
        ConfigError: the options contradict each other, or the engine is unknown.
    """
    from data_stack.plugins.manager import default_manager

    kind = kind or ("spark" if master is not None else "processes" if n_processes is not None else None)
    if kind is None:
        return None
    if kind == "processes":
        if master is not None:
            raise ConfigError("--master requires --engine spark")
        from data_stack.distributed import ProcessEngine

        return ProcessEngine(n_processes)
    if n_processes is not None:
        raise ConfigError("--processes requires --engine processes")
    engines = default_manager().engines()
    if kind not in engines:
        known = ["processes", *sorted(engines)]
        raise ConfigError(f"unknown engine {kind!r:.60}{did_you_mean(kind, known)}; known engines: {', '.join(known)}")
    return engines[kind](master, attempts=3)
