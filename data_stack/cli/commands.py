"""The commands of ``data-stack`` on datasets or the installation."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from data_stack.cli import common
from data_stack.cli.common import Settings, answer, cli, echo, name_argument, table
from data_stack.exception import (
    DataStackError,
    ReadOnlyStorageError,
    UnsupportedStorageOperationError,
)
from data_stack.show.markup import Facts, size_text
from data_stack.util.distributions import distributions_of
from data_stack.util.json_text import json_text


@cli.command("list")
def list_datasets(settings: Settings) -> None:
    """List the installed datasets.

    Shows which versions are prepared, if the store can list its resources. Imports no plugin.
    """
    from data_stack.plugins.manager import default_manager
    from data_stack.plugins.record import DATASETS_GROUP

    connector = settings.existing_connector(may_be_new=True)
    records = [record for record in default_manager().records() if record.group == DATASETS_GROUP]
    names = sorted({record.name.partition("@")[0] for record in records})
    prepared = _stored_versions(connector, names) if records else {}
    listed = [record for record in records if "@" not in record.name]
    rows = [
        {
            **asdict(each),
            "prepared": each.name in prepared,
            "stored_versions": prepared.get(each.name, []),
        }
        for each in listed
    ]
    cells = []
    for each in listed:
        stored = ", ".join(prepared.get(each.name, ())) or "no"
        cells.append(
            (
                each.name,
                f"{each.distribution} {each.version}",
                stored,
                each.state if each.error is not None else "",
            )
        )
    answer(settings, rows, table(("name", "from", "prepared", ""), cells))


def _stored_versions(connector: Any, names: Sequence[str]) -> dict[str, list[str]]:
    """The prepared versions of datasets; none if the store cannot list its resources."""
    from data_stack.stores.inventory import take_inventory

    with contextlib.suppress(UnsupportedStorageOperationError):
        return take_inventory(connector, names).prepared_versions
    return {}


@cli.command()
@name_argument
def info(settings: Settings, name: str) -> None:
    """Describe a dataset without downloading it.

    Prints description, splits, options, license, and the URLs and checksums of its files. Of a path or URL, prints the splits,
    and the files and folders that are not read.
    """
    from data_stack.factories.declarative import DatasetFactory
    from data_stack.factories.definition import DatasetDefinition
    from data_stack.io.redaction import shorten

    place = common.find_place(settings, name, {})
    if place is not None:
        found = common.repository().describe(os.fspath(place))
        answer(settings, asdict(found), f"{found.name}\n{found.description}", Facts(found.facts()))
        return
    connector = settings.existing_connector(may_be_new=True)
    dataset = common.repository().resolve(name, connector)
    description, factory = dataset.describe(), dataset.factory
    kind = f"{type(factory).__module__}:{type(factory).__qualname__}"
    facts = {**asdict(description), "factory": kind, "storage": repr(connector)}
    rows, sources = [*description.facts(), ("factory", kind)], []
    if isinstance(factory, DatasetFactory):
        stored = _stored_versions(connector, [factory.card.name]).get(factory.card.name, [])
        reason, is_ready = factory.readiness().reason, factory.is_ready()
        for source in DatasetDefinition(factory, DatasetFactory).retrieval_jobs:
            known: dict[str, Any] = {
                key: getattr(source, key) for key in ("identifier", "size", "sha256", "md5_sum")
            }
            sources.append(
                {**known, "places": [shorten(os.fsdecode(each)) for each in source.sources]}
            )
        facts |= {
            "prepared": is_ready,
            "reason": reason,
            "stored_versions": stored,
            "sources": sources,
        }
        rows.append(
            ("prepared", "yes" if is_ready else "no" if reason is None else f"no: {reason}")
        )
        rows.append(("stored", ", ".join(stored) or "none"))
    title = f"{description.name} {description.version or ''}".rstrip()
    about = f"{title}\n{description.description}".rstrip()
    answer(
        settings,
        facts,
        about,
        Facts([*rows, ("store", repr(connector))]),
        *map(_source_text, sources),
    )


def _source_text(source: dict[str, Any]) -> str:
    digests = [
        f"{kind} {source[name]}"
        for kind, name in (("sha256", "sha256"), ("md5", "md5_sum"))
        if source[name]
    ]
    size = "" if source["size"] is None else f"{size_text(source['size'])}  "
    first = f"{source['identifier']}  {size}{digests[0] if digests else 'NO DIGEST'}"
    return "\n  ".join([first, *source["places"]])


@cli.command()
@name_argument
@click.option("--split", metavar="SPLIT", help="One split.  [default: all splits]")
@click.option(
    "--statistics",
    is_flag=True,
    help="Read all samples; add missing values, extremes, means, distinct values.",
)
@click.option(
    "--duplicates", is_flag=True, help="Read all samples; add equal ones within and between splits."
)
@common.dataset_options
def report(settings: Settings, name: str, options: dict[str, Any], **what: Any) -> None:
    """Report samples, classes, sizes and checksums.

    Prepares the dataset first if it is not ready.
    """
    from data_stack.reproduce.dataset_report import DatasetReport

    document = DatasetReport.of(name, storage=settings.connector(), config=options, **what)
    answer(settings, document.to_dict(), *document.document())


@cli.command()
def doctor(settings: Settings) -> int:
    """Check the environment, the store and all plugins.

    Imports every plugin. Exits with 1 if a plugin is broken or shadowed by another one, if the
    store cannot be used, or if the original DataStack is installed too.
    """
    findings = run_checks(settings)
    healthy, plugins = findings["healthy"], findings["plugins"]
    sources = [
        (each["name"], each["group"], f"{each['distribution']} {each['version']}", each["state"])
        for each in plugins
    ]
    about, store = (
        Facts([(key, str(value)) for key, value in findings[each].items()])
        for each in ("environment", "store")
    )
    originals = [f"in the way: {original}" for original in findings["originals"]]
    shown = table(("plugin", "group", "from", "state"), sources)
    errors = [
        f"{each['state']}: {each['distribution']}:{each['name']}\n  {each['error']}"
        for each in plugins
        if each["error"]
    ]
    verdict = "no problems found" if healthy else "problems found, see above"
    answer(settings, findings, about, *originals, store, shown, *errors, verdict)
    return int(not healthy)


@cli.command()
@click.argument("first", metavar="FIRST", shell_complete=common.complete_names)
@click.argument("second", metavar="SECOND", shell_complete=common.complete_names)
@click.option(
    "--key", metavar="COLUMN", help="A column that identifies samples: its name, or its number."
)
@click.option(
    "--other-storage", metavar="URL", help="The store of SECOND.  [default: the store of FIRST]"
)
def diff(
    settings: Settings, first: str, second: str, key: str | None, other_storage: str | None
) -> int:
    """Compare two datasets, sample by sample.

    FIRST and SECOND are names, such as digits@1.0.0. Lists samples that were added, removed, moved to another split,
    relabelled and, with --key, changed. Exits with 1 if they differ.
    """
    from data_stack.reproduce.difference import diff as compare

    column = int(key) if key is not None and key.lstrip("-").isdigit() else key
    connector, load = settings.connector(), common.repository().load
    found = compare(
        load(first, None, connector), load(second, None, other_storage or connector), key=column
    )
    verdict = "the datasets differ" if found.differs else "the datasets are equal"
    answer(settings, found.to_dict(), *found.document(), verdict)
    return int(found.differs)


@cli.command()
@name_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The file to write.  [default: standard output]",
)
@common.dataset_options
def croissant(settings: Settings, name: str, output: str | None, options: dict[str, Any]) -> None:
    """Describe a dataset in Croissant, the vocabulary of MLCommons.

    Writes JSON with the license, sources, splits, and, if the dataset is prepared, its files and columns.
    """
    from data_stack.repository.croissant.writing import to_croissant

    document = to_croissant(name, settings.existing_connector(may_be_new=True), **options)
    text = json_text(document)
    if output is None:
        click.echo(text)
        return
    Path(output).write_text(text + "\n", encoding="utf-8")
    if "recordSet" not in document:
        echo(
            f"{output} does not describe the columns, because the dataset is not prepared: data-stack prepare {name}",
            err=True,
        )


@cli.command()
@click.argument("terms", metavar="TERM...", nargs=-1, required=True)
@click.option(
    "--catalogue",
    metavar="SCHEME",
    help="Search a catalogue, such as hf, instead; needs the network.",
)
@click.option("--catalogues", is_flag=True, help="Search all installed catalogues instead.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number of datasets of a catalogue.",
)
def search(
    settings: Settings, terms: tuple[str, ...], catalogue: str | None, catalogues: bool, limit: int
) -> None:
    """Search the installed datasets, or catalogues.

    For example: data-stack search handwritten

    Finds the datasets whose name, description, license and classes contain every TERM. Imports the plugins.
    Without --catalogue or --catalogues it uses no network.
    """
    from data_stack.repository.catalogues import search_catalogues
    from data_stack.repository.repository import search_datasets

    if catalogue is not None or catalogues:
        offered = search_catalogues(" ".join(terms), catalogue, limit=limit)
        cells = [
            (each.name, each.title or "-", each.license or "-", size_text(each.size))
            for each in offered
        ]
        answer(
            settings,
            [asdict(each) for each in offered],
            table(("name", "title", "license", "size"), cells, right=(3,)),
        )
        return
    found = search_datasets(" ".join(terms))
    rows = [
        (each.name, each.description.partition("\n")[0] or "-", each.license or "-")
        for each in found
    ]
    nothing = "no installed dataset matches; `data-stack list` shows all"
    answer(
        settings,
        [asdict(each) for each in found],
        table(("name", "title", "license"), rows) if found else nothing,
    )


def run_checks(settings: Settings) -> dict[str, Any]:
    """Check the environment, store and plugins; returns plain JSON data. Imports all plugins."""
    from data_stack.plugins.manager import default_manager
    from data_stack.repository.default_storage import HOME

    store = _check_store(settings)
    plugins = [asdict(record) for record in default_manager().doctor()]
    originals = [  # PyPI's datastack, whose modules have the names of this package
        f"datastack {each.version} of the original DataStack, or of an early clone, is in {each.locate_file('')}, this one in "
        f"{Path(__file__).parents[2]}; both define the same modules, so Python may import either. Run "
        f"`{sys.executable} -m pip uninstall datastack` until it finds no package, then reinstall lazy-data-stack"
        for each in importlib.metadata.distributions(name="datastack")
    ]
    # the URL of DATA_STACK_HOME may hold a password
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("DATA_STACK_") and name != HOME
    }
    about = {
        "data_stack": ", ".join(distributions_of("data_stack")),
        "python": platform.python_version(),
    }
    about |= {"executable": sys.executable, "platform": platform.platform(), **variables}
    healthy = (
        bool(store["usable"])
        and not originals
        and not any(plugin["state"] in ("broken", "shadowed") for plugin in plugins)
    )
    return {
        "healthy": healthy,
        "environment": about,
        "originals": originals,
        "store": store,
        "plugins": plugins,
    }


#: Errors of a store that the user may read, and not write to.
_NO_RIGHT_TO_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)


def _check_store(settings: Settings) -> dict[str, Any]:
    """Check that the store answers and can store a few bytes; a missing folder is not created.

    A store without the right to write is usable, for reading.
    """
    from data_stack.io.storage_connectors.file import FileStorageConnector
    from data_stack.repository.default_storage import check_there

    findings: dict[str, Any] = {"store": "none", "usable": False, "writable": False}
    probe = f"doctor-probe-{os.getpid()}"
    try:
        connector = settings.connector()
        findings["store"] = repr(connector)
        check_there(connector, may_be_new=True)
        connector.has_resource(probe)
    except (DataStackError, OSError) as error:
        findings["problem"] = str(error)
        return findings
    findings["usable"] = True
    if isinstance(connector, FileStorageConnector) and not os.path.isdir(connector.root_path):
        return findings
    try:
        connector.set_resource(probe, [b"data_stack"])
        findings["writable"] = True
        with contextlib.suppress(UnsupportedStorageOperationError):
            connector.delete_resource(probe)
    except ReadOnlyStorageError:
        findings["not_writable"] = "the URL asks for reading only"
    except (DataStackError, OSError) as error:
        if getattr(error, "errno", None) in _NO_RIGHT_TO_WRITE:  # prepared datasets can be loaded
            findings["not_writable"] = str(error)
        else:
            findings |= {"usable": False, "problem": str(error)}
    return findings
