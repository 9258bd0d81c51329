"""The commands of ``data-stack`` on datasets and on the installation."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from typing import Any

import click

from data_stack.cli.browse import html_option, write_page
from data_stack.cli.completion import complete_names
from data_stack.cli.settings import (
    Settings,
    answer,
    common_options,
    dataset_options,
    echo,
    parse_options,
    table,
    takes_settings,
)
from data_stack.exception import DatasetNotFoundError, PluginError
from data_stack.show.markup import Facts, size_text, whole_page

__all__ = ["data_stack"]

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
@click.option("--versions", is_flag=True, help="Also list the versions that can be loaded; imports the plugins.")
@takes_settings
def list_datasets(settings: Settings, versions: bool) -> None:
    """List the installed datasets.

    Shows which versions are prepared in the store. Imports no plugin if the store can list its resources.
    """
    from data_stack.plugins.manager import default_manager
    from data_stack.plugins.record import DATASETS_GROUP
    from data_stack.stores.inventory import take_inventory

    connector = settings.existing_connector(may_be_new=True)
    records = [record for record in default_manager().records() if record.group == DATASETS_GROUP]
    names = sorted({record.name.partition("@")[0] for record in records})
    prepared = take_inventory(connector, names).prepared_versions if records else {}
    rows: list[dict[str, Any]] = [
        {
            "name": record.name,
            "distribution": record.distribution,
            "version": record.version,
            "state": record.state,
            "error": record.error,
            "prepared": record.name in prepared,
            "stored_versions": prepared.get(record.name, []),
            **({"versions": _versions_of(record.name)} if versions else {}),
        }
        for record in records
        if "@" not in record.name
    ]
    cells = [
        (
            row["name"],
            f"{row['distribution']} {row['version']}",
            *([", ".join(row["versions"]) or "-"] if versions else []),
            ", ".join(row["stored_versions"]) or "no",
            row["state"] if row["error"] is not None else "",
        )
        for row in rows
    ]
    answer(settings, rows, table(("name", "from", *(("versions",) if versions else ()), "prepared", ""), cells))


def _versions_of(name: str) -> list[str]:
    from data_stack.repository.repository import default_repository

    with contextlib.suppress(DatasetNotFoundError, PluginError):
        return default_repository().versions(name)
    return []


@data_stack.command()
@_name
@takes_settings
def info(settings: Settings, name: str) -> None:
    """Describe a dataset without downloading it.

    Prints description, splits, options, licence, and the URLs and checksums of its files.
    """
    from data_stack.cli.datasets import collect_facts

    facts = collect_facts(name, settings.existing_connector(may_be_new=True))
    card: dict[str, Any] = facts["card"] or {}
    rows = [(key, card[key]) for key in ("license", "homepage", "citation") if card.get(key)]
    rows += [("factory", facts["factory"]), ("package", facts["distribution"])]
    if facts["splits"] is not None:
        rows.append(("splits", ", ".join(facts["splits"])))
        rows.append(("options", ", ".join(facts["options"]) or "none"))
    prepared = "yes" if facts["prepared"] else "no" if facts["reason"] is None else f"no: {facts['reason']}"
    rows += [("prepared", prepared), ("stored", ", ".join(facts["stored_versions"]) or "none")]
    rows.append(("store", facts["storage"]))
    title = f"{facts['name']} {card.get('version', '')}".strip()
    answer(settings, facts, f"{title}\n{facts['description']}".rstrip(), Facts(rows), *map(_source_text, facts["sources"]))


def _source_text(source: dict[str, Any]) -> str:
    digests = [f"{kind} {source[name]}" for kind, name in (("sha256", "sha256"), ("md5", "md5_sum")) if source[name]]
    size = "" if source["size"] is None else f"{size_text(source['size'])}  "
    first = f"{source['identifier']}  {size}{digests[0] if digests else 'NO DIGEST'}"
    return "\n  ".join([first, *source["places"]])


@data_stack.command()
@_name
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
    from data_stack.cli.datasets import engine_of, prepare_dataset

    connector = settings.connector()
    if dry_run:
        from data_stack.reproduce.planning import plan

        found = plan(name, connector)
        answer(settings, asdict(found) | {"works": found.works}, str(found))
        return 0 if found.works else 1
    chosen = engine_of(engine, n_processes, master)
    done, size = prepare_dataset(name, connector, chosen, again=again, keep_steps=keep_steps)
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


@data_stack.command()
@_name
@click.option("--split", metavar="SPLIT", help="One split.  [default: all splits]")
@click.option("--statistics", is_flag=True, help="Read all samples; add missing values, extremes, means, distinct values.")
@click.option("--duplicates", is_flag=True, help="Read all samples; add equal ones within and between splits.")
@click.option(
    "--format",
    "report_format",
    type=click.Choice(["text", "markdown", "html"]),
    help="Output format.  [default: text]",
)
@html_option
@dataset_options
@takes_settings
def report(
    settings: Settings, name: str, report_format: str | None, page: str | None, options: tuple[str, ...], **what: Any
) -> None:
    """Report samples, classes, sizes and checksums.

    Prepares the dataset first if it is not ready.
    """
    if settings.as_json and report_format is not None:
        raise click.UsageError("--json and --format exclude each other")
    if page is not None and report_format is not None:
        raise click.UsageError("--html and --format exclude each other")
    from data_stack.reproduce.dataset_report import DatasetReport

    document = DatasetReport.of(name, storage=settings.connector(), config=parse_options(options), **what)
    if page is not None:
        size = write_page(page, document)
        answer(settings, {"name": name, "output": page, "size": size}, f"wrote {page} ({size_text(size)})")
    elif report_format == "markdown":
        echo(document.to_markdown())
    elif report_format == "html":
        echo(whole_page(name, document.to_html()))
    else:
        answer(settings, document.to_dict(), *document.document())


@data_stack.command("import-file")
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
    from data_stack.cli.datasets import import_dataset

    connector = settings.connector()
    stored = import_dataset(identifier, path, connector, sha256=sha256, md5_sum=md5, unverified=unverified)
    state = "verified" if stored["verified"] else "NOT VERIFIED"
    text = f"stored {identifier} in {connector!r}: {size_text(stored['size'])}, sha256 {stored['sha256']}, {state}"
    answer(settings, stored, text)


@data_stack.command()
@takes_settings
def doctor(settings: Settings) -> int:
    """Check the environment, the store and all plugins.

    Imports every plugin. Exits with 1 if a plugin or the store is broken, or if the original DataStack is installed too.
    """
    from data_stack.cli.examination import run_checks

    findings = run_checks(settings)
    store = [(key, size_text(value) if key == "free" else str(value)) for key, value in findings["store"].items()]
    packages = [(each["package"], each["version"] or "-", each["for"]) for each in findings["packages"]]
    plugins = [
        (each["name"], each["group"], f"{each['distribution']} {each['version']}", each["state"]) for each in findings["plugins"]
    ]
    healthy = findings["healthy"]
    answer(
        settings,
        findings,
        Facts(list(findings["environment"].items())),
        *(f"in the way: {original}" for original in findings["originals"]),
        Facts(store),
        table(("package", "version", "for"), packages),
        table(("plugin", "group", "from", "state"), plugins),
        *(
            f"{each['state']}: {each['distribution']}:{each['name']}\n  {each['error']}"
            for each in findings["plugins"]
            if each["error"] is not None
        ),
        "no problems found" if healthy else "problems found, see above",
    )
    return int(not healthy)
