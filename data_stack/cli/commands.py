"""The commands of ``data-stack`` on datasets or the installation."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from data_stack.cli.settings import (
    Settings,
    answer,
    common_options,
    complete_names,
    dataset_options,
    echo,
    parse_options,
    table,
    takes_settings,
)
from data_stack.exception import DataStackError, ReadOnlyStorageError, UnsupportedStorageOperationError
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.plugins.manager import default_manager
from data_stack.repository.default_storage import HOME, check_there
from data_stack.show.markup import Facts, size_text

_EXIT_CODES = """\b
Exit codes:
  0    done
  1    the data or the operation failed; see the message
  2    wrong usage, or an unknown dataset, split or option
  130  interrupted
"""

_name = click.argument("name", metavar="NAME", shell_complete=complete_names)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(package_name="datastack", message=f"data-stack %(version)s, Python {sys.version.split()[0]}")
@common_options
def data_stack() -> None:
    """List, prepare, show, verify and copy datasets."""


@data_stack.command("list")
@takes_settings
def list_datasets(settings: Settings) -> None:
    """List the installed datasets.

    Shows which versions are prepared in the store. Imports no plugin if the store can list its resources.
    """
    from data_stack.plugins.installed import DATASETS_GROUP
    from data_stack.plugins.manager import default_manager
    from data_stack.stores.inventory import take_inventory

    connector = settings.existing_connector(may_be_new=True)
    records = [record for record in default_manager().records() if record.group == DATASETS_GROUP]
    names = sorted({record.name.partition("@")[0] for record in records})
    prepared = take_inventory(connector, names).prepared_versions if records else {}
    rows: list[dict[str, Any]] = [
        {**asdict(record), "prepared": record.name in prepared, "stored_versions": prepared.get(record.name, [])}
        for record in records
        if "@" not in record.name
    ]
    cells = [
        (
            row["name"],
            f"{row['distribution']} {row['version']}",
            ", ".join(row["stored_versions"]) or "no",
            row["state"] if row["error"] is not None else "",
        )
        for row in rows
    ]
    answer(settings, rows, table(("name", "from", "prepared", ""), cells))


@data_stack.command()
@_name
@takes_settings
def info(settings: Settings, name: str) -> None:
    """Describe a dataset without downloading it.

    Prints description, splits, options, licence, and the URLs and checksums of its files.
    """
    from data_stack.factories.declarative import DatasetFactory, dataset_folder
    from data_stack.io.redaction import shorten
    from data_stack.repository.repository import default_repository
    from data_stack.stores.inventory import take_inventory

    connector = settings.existing_connector(may_be_new=True)
    dataset = default_repository().resolve(name, connector)
    description, factory = dataset.describe(), dataset.factory
    kind = f"{type(factory).__module__}:{type(factory).__qualname__}"
    facts = {**asdict(description), "factory": kind, "storage": repr(connector)}
    rows, sources = [*description.facts(), ("factory", kind)], []
    if isinstance(factory, DatasetFactory):
        stored = take_inventory(connector, [factory.card.name]).prepared_versions.get(factory.card.name, [])
        reason, is_ready = factory.readiness().reason, factory.is_ready()
        for source in factory.sources:
            known = {key: getattr(source, key) for key in ("size", "sha256", "md5_sum")}
            places = [shorten(os.fsdecode(each)) for each in source.sources]
            sources.append({"identifier": f"{dataset_folder(factory)}/{source.identifier}", **known, "places": places})
        facts |= {"prepared": is_ready, "reason": reason, "stored_versions": stored, "sources": sources}
        rows.append(("prepared", "yes" if is_ready else "no" if reason is None else f"no: {reason}"))
        rows.append(("stored", ", ".join(stored) or "none"))
    title = f"{description.name} {description.version or ''}".rstrip()
    about = f"{title}\n{description.description}".rstrip()
    answer(settings, facts, about, Facts([*rows, ("store", repr(connector))]), *map(_source_text, sources))


def _source_text(source: dict[str, Any]) -> str:
    digests = [f"{kind} {source[name]}" for kind, name in (("sha256", "sha256"), ("md5", "md5_sum")) if source[name]]
    size = "" if source["size"] is None else f"{size_text(source['size'])}  "
    first = f"{source['identifier']}  {size}{digests[0] if digests else 'NO DIGEST'}"
    return "\n  ".join([first, *source["places"]])


@data_stack.command()
@_name
@click.option("--split", metavar="SPLIT", help="One split.  [default: all splits]")
@click.option("--statistics", is_flag=True, help="Read all samples; add missing values, extremes, means, distinct values.")
@click.option("--duplicates", is_flag=True, help="Read all samples; add equal ones within and between splits.")
@dataset_options
@takes_settings
def report(settings: Settings, name: str, options: tuple[str, ...], **what: Any) -> None:
    """Report samples, classes, sizes and checksums.

    Prepares the dataset first if it is not ready.
    """
    from data_stack.reproduce.dataset_report import DatasetReport

    document = DatasetReport.of(name, storage=settings.connector(), config=parse_options(options), **what)
    answer(settings, document.to_dict(), *document.document())


@data_stack.command()
@takes_settings
def doctor(settings: Settings) -> int:
    """Check the environment, the store and all plugins.

    Imports every plugin. Exits with 1 if a plugin or the store is broken, or if the original DataStack is installed too.
    """
    findings = run_checks(settings)
    healthy, plugins = findings["healthy"], findings["plugins"]
    sources = [(each["name"], each["group"], f"{each['distribution']} {each['version']}", each["state"]) for each in plugins]
    answer(
        settings,
        findings,
        Facts(list(findings["environment"].items())),
        *(f"in the way: {original}" for original in findings["originals"]),
        Facts([(key, str(value)) for key, value in findings["store"].items()]),
        table(("plugin", "group", "from", "state"), sources),
        *(f"{each['state']}: {each['distribution']}:{each['name']}\n  {each['error']}" for each in plugins if each["error"]),
        "no problems found" if healthy else "problems found, see above",
    )
    return int(not healthy)


@data_stack.command()
@click.argument("first", metavar="FIRST", shell_complete=complete_names)
@click.argument("second", metavar="SECOND", shell_complete=complete_names)
@click.option("--key", metavar="COLUMN", help="A column that identifies samples: its name, or its number.")
@click.option("--other-storage", metavar="URL", help="The store of SECOND.  [default: the store of FIRST]")
@takes_settings
def diff(settings: Settings, first: str, second: str, key: str | None, other_storage: str | None) -> int:
    """Compare two datasets, sample by sample.

    FIRST and SECOND are names, such as digits@1.0.0. Lists samples that were added, removed, moved to another split,
    relabelled and, with --key, changed. Exits with 1 if they differ.
    """
    from data_stack.repository.repository import default_repository
    from data_stack.reproduce.difference import diff as compare

    column = int(key) if key is not None and key.lstrip("-").isdigit() else key
    connector, load = settings.connector(), default_repository().load
    found = compare(load(first, None, connector), load(second, None, other_storage or connector), key=column)
    verdict = "the datasets differ" if found.differs else "the datasets are equal"
    answer(settings, found.to_dict(), *found.document(), verdict)
    return int(found.differs)


@data_stack.command()
@_name
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="The file to write.  [default: standard output]"
)
@dataset_options
@takes_settings
def croissant(settings: Settings, name: str, output: str | None, options: tuple[str, ...]) -> None:
    """Describe a dataset in Croissant, the vocabulary of MLCommons.

    Writes JSON with the licence, sources, splits, and, if the dataset is prepared, its files and columns.
    """
    from data_stack.repository.croissant.writing import to_croissant

    document = to_croissant(name, settings.existing_connector(may_be_new=True), **parse_options(options))
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if output is None:
        click.echo(text)
        return
    Path(output).write_text(text + "\n", encoding="utf-8")
    if "recordSet" not in document:
        echo(f"{output} does not describe the columns, because the dataset is not prepared: data-stack prepare {name}", err=True)


@data_stack.command()
@click.argument("terms", metavar="TERM...", nargs=-1, required=True)
@click.option("--catalogue", metavar="SCHEME", help="Search a catalogue, such as hf, instead; needs the network.")
@click.option("--catalogues", is_flag=True, help="Search all installed catalogues instead.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of datasets of a catalogue."
)
@takes_settings
def search(settings: Settings, terms: tuple[str, ...], catalogue: str | None, catalogues: bool, limit: int) -> None:
    """Search the installed datasets, or catalogues.

    For example: data-stack search handwritten

    Finds the datasets whose name, description, keywords, licence and classes contain every TERM. Imports the plugins.
    Without --catalogue or --catalogues it uses no network.
    """
    if catalogue is not None or catalogues:
        _search_catalogues(settings, " ".join(terms), catalogue, limit)
        return
    from data_stack.repository.repository import search_datasets

    found = search_datasets(" ".join(terms))
    rows = [(each.name, each.description.partition("\n")[0] or "-", each.license or "-") for each in found]
    nothing = "no installed dataset matches; `data-stack list` shows all"
    answer(settings, [asdict(each) for each in found], table(("name", "title", "license"), rows) if found else nothing)


def _search_catalogues(settings: Settings, text: str, scheme: str | None, limit: int) -> None:
    from data_stack.repository.catalogues import search_catalogues

    found = search_catalogues(text, scheme, limit=limit)
    rows = [(each.name, each.title or "-", each.license or "-", size_text(each.size)) for each in found]
    answer(settings, [asdict(each) for each in found], table(("name", "title", "license", "size"), rows, right=(3,)))


_PROBE = "doctor-probe"


def run_checks(settings: Settings) -> dict[str, Any]:
    """Check the environment, store and plugins; returns plain JSON data. Imports all plugins."""
    store = _store(settings)
    plugins = [asdict(record) for record in default_manager().doctor()]
    originals = _originals()
    return {
        "healthy": bool(store["usable"]) and not originals and not any(plugin["state"] == "broken" for plugin in plugins),
        "environment": {
            "datastack": _version("datastack") or "not installed",
            "python": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
            # the URL of DATA_STACK_HOME may hold a password
            **{name: value for name, value in sorted(os.environ.items()) if name.startswith("DATA_STACK_") and name != HOME},
        },
        "originals": originals,
        "store": store,
        "plugins": plugins,
    }


def _version(distribution: str) -> str | None:
    found = next(iter(importlib.metadata.distributions(name=distribution)), None)
    return None if found is None else found.version


def _originals() -> list[str]:
    """Installations of the original DataStack (PyPI's datastack), whose modules have the names of this package."""
    return [
        f"datastack {distribution.version} of the original DataStack is in {distribution.locate_file('')}, and this one is in "
        f"{Path(__file__).parents[2]}; both define the same modules, so Python may import either. Run "
        f"`{sys.executable} -m pip uninstall datastack` until it finds no package, then reinstall this package from its clone"
        for distribution in importlib.metadata.distributions(name="datastack")
        if not any(entry_point.name == "data-stack" for entry_point in distribution.entry_points)
    ]


def _store(settings: Settings) -> dict[str, Any]:
    """Check that the store answers and can store a few bytes; a missing folder is not created."""
    found: dict[str, Any] = {"store": "none", "usable": False, "writable": False}
    try:
        connector = settings.connector()
        found["store"] = repr(connector)
        check_there(connector, may_be_new=True)
        connector.has_resource(_PROBE)
        found["usable"] = True
        if not isinstance(connector, FileStorageConnector) or os.path.isdir(connector.root_path):
            identifier = f"{_PROBE}-{os.getpid()}"
            connector.set_resource(identifier, [b"data_stack"])
            found["writable"] = True
            with contextlib.suppress(UnsupportedStorageOperationError):
                connector.delete_resource(identifier)
    except ReadOnlyStorageError:  # the URL requests it
        pass
    except (DataStackError, OSError) as error:
        found |= {"usable": False, "problem": str(error)}
    return found
