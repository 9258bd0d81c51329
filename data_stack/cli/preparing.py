"""The commands that prepare datasets: prepare, import-file."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from data_stack.cli.group import cli
from data_stack.cli.names import name_argument, repository
from data_stack.cli.output import print_result, whole_table
from data_stack.cli.settings import Settings
from data_stack.exception import ConfigError, DatasetNotFoundError, PluginError
from data_stack.show.markup import size_text

if TYPE_CHECKING:
    from data_stack.engines import PreparationEngine
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.factories.preparation import PreparationReport
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.storage_connectors import StorageConnector

# ---------------------------------------------------------------------- prepare


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
    help=(
        "Keep finished steps and shards if the code raises, and reuse them if the code has changed."
    ),
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
    again: bool,
    keep_steps: bool,
    dry_run: bool,
) -> int:
    """Prepare a dataset ahead of time.

    Downloads and preprocesses the dataset, so that loading it later only opens files. Stored files
    are not downloaded again. After an interruption the command resumes if the dataset's code is
    unchanged; if that code raises, it starts over.

    A dataset with shards can prepare them in parallel, in processes of this machine, or on a
    cluster of Spark or Ray (with the package lazy-data-stack-spark or lazy-data-stack-ray); other
    datasets run there as one task. All machines must reach the store.
    """
    connector = settings.connector()
    if dry_run:
        return _plan_preparation(settings, name, connector)

    chosen_engine = engine_of_options(
        engine, n_processes=n_processes, master=master, address=address
    )
    factory = _factory_to_prepare(name, connector)
    report = factory.prepare(engine=chosen_engine, again=again, keep_steps=keep_steps)
    manifest = factory.manifest()
    size = None if manifest is None else manifest.size
    _print_preparation(settings, name, connector, report, size)
    return 0


def _plan_preparation(settings: Settings, name: str, connector: StorageConnector) -> int:
    """Print what a preparation would do; return the exit code, 1 if it cannot work."""
    from data_stack.reproduce.planning import plan

    planned = plan(name, connector)
    facts = asdict(planned)
    facts["works"] = planned.works
    # The name that the field "license" had before version 0.2.
    facts["licence"] = planned.license
    print_result(settings, facts, str(planned))
    return 0 if planned.works else 1


def _factory_to_prepare(name: str, connector: StorageConnector) -> DatasetFactory:
    """Return the factory of a dataset, whose license the policy of this process allows.

    Raises:
        ConfigError: the factory is a legacy one, which prepares its data when it is loaded.
        LicenseDeniedError: the policy denies the license.
    """
    from data_stack.factories.declarative import DatasetFactory

    dataset = repository().resolve(name, connector)
    dataset.check_license()
    factory = dataset.factory
    if isinstance(factory, DatasetFactory):
        return factory
    raise ConfigError(
        f"dataset {name!r} is a legacy factory ({type(factory).__qualname__}), which loading a "
        f"split prepares, e.g. `data-stack report {name} --split train`"
    )


def _print_preparation(
    settings: Settings,
    name: str,
    connector: StorageConnector,
    report: PreparationReport,
    size: int | None,
) -> None:
    """Print what a preparation did.

    Args:
        settings: the settings of the command.
        name: the name of the dataset.
        connector: the store.
        report: what the preparation did.
        size: the size of the prepared dataset in bytes; None if it is unknown.
    """
    facts = {
        "name": name,
        "already_ready": report.already_ready,
        "reason": report.reason,
        "steps": [{"step": step, "seconds": round(seconds, 6)} for step, seconds in report.steps],
        "seconds": round(report.seconds, 6),
        "size": size,
        "storage": repr(connector),
    }
    if report.already_ready:
        print_result(settings, facts, f"{name} was ready in {connector!r}")
        return
    cells = [(step, f"{seconds:.3f} s") for step, seconds in report.steps]
    print_result(
        settings,
        facts,
        whole_table(("step", "time"), cells, right=(1,)),
        f"{name} is ready in {connector!r}: {size_text(size)}, prepared in {report.seconds:.3f} s",
    )


def engine_of_options(
    engine: str | None,
    *,
    n_processes: int | None = None,
    master: str | None = None,
    address: str | None = None,
) -> PreparationEngine | None:
    """Return the engine that the options of ``prepare`` choose; None without such options.

    Args:
        engine: ``"processes"``, or an engine of a plugin such as ``"spark"``; None: the engine that
            the other options imply.
        n_processes: number of processes on this machine.
        master: URL of a cluster of Spark.
        address: address of a cluster of Ray.

    Raises:
        ConfigError: the options contradict each other, or the engine is unknown.
    """
    from data_stack.engines import ProcessEngine
    from data_stack.factories.engine_names import make_engine

    if master is not None and address is not None:
        raise ConfigError("--master is of Spark and --address of Ray; pass one of them")
    cluster = address if master is None else master
    name = engine or _implied_engine(n_processes, master, address)
    if name == "processes" and cluster is not None:
        raise ConfigError("--master requires --engine spark, and --address --engine ray")
    if name != "processes" and n_processes is not None:
        raise ConfigError("--processes requires --engine processes")

    if name is None:
        return None
    if n_processes is not None:
        return ProcessEngine(n_processes)
    return make_engine(name, cluster)


def _implied_engine(n_processes: int | None, master: str | None, address: str | None) -> str | None:
    """Return the engine that has the given options; None without options."""
    if address is not None:
        return "ray"
    if master is not None:
        return "spark"
    if n_processes is not None:
        return "processes"
    return None


# ---------------------------------------------------------------------- import-file


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

    The file must have the checksum that the installed dataset defines for IDENTIFIER, or the given
    one. The error of a failed download contains the identifier.
    """
    from data_stack.io.identifiers import check_identifier
    from data_stack.io.resource_definition import ResourceDefinition
    from data_stack.io.retriever import import_file as store_file

    connector = settings.connector()
    dataset_name = check_identifier(identifier).partition("/")[0]
    definitions = _sources_of_dataset(dataset_name, connector)
    definition = definitions.get(identifier, ResourceDefinition(identifier, path))

    digests = (definition.sha256, definition.md5_sum, sha256, md5)
    if not any(digests) and not unverified:
        known = ", ".join(definitions) or "nothing"
        raise ConfigError(
            f"the digest of {identifier!r} is unknown; dataset {dataset_name!r} defines: {known}. "
            "Pass --sha256 or --md5 as its publisher states it, or --unverified to store it "
            "without a check"
        )
    stored = store_file(
        replace(definition, source=path, mirrors=()), path, connector, sha256=sha256, md5_sum=md5
    )

    facts = {
        "identifier": identifier,
        "path": os.path.abspath(path),
        "storage": repr(connector),
        "size": stored.size,
        "sha256": stored.sha256,
        "verified": stored.verified,
    }
    state = "verified" if stored.verified else "NOT VERIFIED"
    print_result(
        settings,
        facts,
        f"stored {identifier} in {connector!r}: {size_text(stored.size)}, sha256 {stored.sha256}, "
        f"{state}",
    )


def _sources_of_dataset(name: str, connector: StorageConnector) -> dict[str, ResourceDefinition]:
    """Return the sources of an installed dataset by identifier; none if it is not installed."""
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.factories.definition import DatasetDefinition

    try:
        factory = repository().get_factory(name, connector)
        if not isinstance(factory, DatasetFactory):
            return {}
        definition = DatasetDefinition(factory, DatasetFactory)
    except (DatasetNotFoundError, PluginError):
        return {}
    return {source.identifier: source for source in definition.retrieval_jobs}
