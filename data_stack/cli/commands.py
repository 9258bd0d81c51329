"""The commands of ``data-stack``; each does its work through the public API and prints what came of it."""

from __future__ import annotations

import html
import sys
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.settings import Settings, common_options, echo, parsed_options, parsed_seconds, parsed_share, print_json
from data_stack.dataset.reports.markup import columns, size_text

if TYPE_CHECKING:
    from data_stack.repository.removal import RemovalReport
    from data_stack.repository.verification import DatasetVerification

__all__ = ["data_stack"]

_EXIT_CODES = """\b
Exit codes:
  0    done
  1    the data or the operation failed; the message says what to do
  2    wrong usage, or an unknown dataset, split or option
  130  interrupted
"""

_pass_settings = click.make_pass_decorator(Settings, ensure=True)
_name = click.argument("name", metavar="NAME")
_split = click.option("--split", metavar="SPLIT", help="One split; default: all of them (show: the first).")
_names = click.argument("names", metavar="[NAME]...", nargs=-1)
_jobs = click.option(
    "--jobs", "n_threads", type=click.IntRange(1, 64), default=4, show_default=True, help="How many resources at a time."
)
_option = click.option(
    "-O", "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the dataset; VALUE is JSON, or else text."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(package_name="datastack", message="data-stack %(version)s")
@common_options
def data_stack() -> None:
    """Any dataset, from any store: list, prepare, look at and verify datasets."""


@data_stack.command("list")
@common_options
@_pass_settings
def list_datasets(settings: Settings) -> None:
    """List the installed datasets.

    Tells which versions of them are prepared in the store, and imports none if the store can list what it has.
    """
    from data_stack.cli.datasets import installed_datasets
    from data_stack.repository.inventory import take_inventory

    connector, records = settings.existing_connector(may_be_new=True), installed_datasets()
    names = sorted({record.name for record in records})
    versions = take_inventory(connector, names).prepared_versions if records else {}
    rows = [(record, versions.get(record.name, [])) for record in records]
    if settings.as_json:
        print_json(
            [
                {
                    "name": record.name,
                    "distribution": record.distribution,
                    "version": record.version,
                    "state": record.state,
                    "error": record.error,
                    "prepared": bool(prepared),
                    "stored_versions": prepared,
                }
                for record, prepared in rows
            ]
        )
        return
    table = [("name", "from", "prepared", "")]
    for record, prepared in rows:
        note = record.state if record.error is not None else ""
        table.append((record.name, f"{record.distribution} {record.version}", ", ".join(prepared) or "no", note))
    _print_columns(table)


@data_stack.command()
@_name
@common_options
@_pass_settings
def info(settings: Settings, name: str) -> None:
    """Tell what a dataset is, retrieving nothing.

    Description, splits, options, licence, and where its files are published with which digests.
    """
    from data_stack.cli.datasets import Dataset

    facts = Dataset.find(name, settings.existing_connector(may_be_new=True)).facts()
    if settings.as_json:
        print_json(facts)
        return
    card: dict[str, Any] = facts["card"] or {}
    echo(f"{facts['name']} {card.get('version', '')}".strip())
    if facts["description"]:
        echo(facts["description"])
    echo()
    rows = [(key, card[key]) for key in ("license", "homepage", "citation") if card.get(key)]
    rows += [("factory", facts["factory"]), ("package", facts["distribution"])]
    if facts["splits"] is not None:
        rows.append(("splits", ", ".join(facts["splits"])))
        rows.append(("options", ", ".join(facts["options"]) or "none"))
    prepared = "yes" if facts["prepared"] else "no" if facts["reason"] is None else f"no: {facts['reason']}"
    rows += [("prepared", prepared), ("stored", ", ".join(facts["stored_versions"]) or "none")]
    rows.append(("store", facts["storage"]))
    for key, value in rows:
        echo(f"{key:<10}{value}")
    for source in facts["sources"]:
        digest = (
            f"sha256 {source['sha256']}" if source["sha256"] else f"md5 {source['md5_sum']}" if source["md5_sum"] else "NO DIGEST"
        )
        size = "" if source["size"] is None else f"{size_text(source['size'])}  "
        echo(f"\n{source['identifier']}  {size}{digest}")
        for place in source["places"]:
            echo(f"  {place}")


@data_stack.command()
@_name
@click.option(
    "--engine", type=click.Choice(["processes", "spark"]), help="Where to prepare the shards.  [default: here, in turn]"
)
@click.option("--processes", "n_processes", type=click.IntRange(1, 1024), metavar="N", help="How many; means --engine processes.")
@click.option("--master", metavar="URL", help="Spark's, e.g. spark://host:7077 or 'local[4]'; means --engine spark.")
@click.option("--attempts", type=click.IntRange(1, 100), metavar="N", help="How often a shard is tried.  [default: 3]")
@click.option("--again", is_flag=True, help="Prepare it also if it is ready, from the sources that are kept.")
@click.option(
    "--keep-steps", is_flag=True, help="Keep steps and shards when the code raises, and use those that other code has done."
)
@common_options
@_pass_settings
def prepare(
    settings: Settings,
    name: str,
    engine: str | None,
    n_processes: int | None,
    master: str | None,
    attempts: int | None,
    again: bool,
    keep_steps: bool,
) -> None:
    """Prepare a dataset ahead of time.

    Retrieves and preprocesses it, so that loading it later only opens files. What is there is not fetched again, and what
    was interrupted goes on where it was, if the dataset's code is the same. If that code raises, it starts over next time.

    A dataset that has shards can prepare them at once, in processes of this machine or on a Spark cluster; another one is
    prepared there as a whole. The store must be reachable from all machines that take part.
    """
    from data_stack.cli.datasets import Dataset, engine_of

    dataset = Dataset.find(name, settings.connector())
    done = dataset.prepare(engine_of(engine, n_processes, master, attempts), again=again, keep_steps=keep_steps)
    size = dataset.stored_size()
    if settings.as_json:
        print_json(
            {
                "name": name,
                "already_ready": done.already_ready,
                "reason": done.reason,
                "steps": [{"step": step, "seconds": round(duration, 6)} for step, duration in done.steps],
                "seconds": round(done.seconds, 6),
                "size": size,
                "storage": repr(dataset.connector),
            }
        )
        return
    if done.already_ready:
        echo(f"{name} was ready in {dataset.connector!r}")
        return
    _print_columns([("step", "time"), *((step, f"{duration:.3f} s") for step, duration in done.steps)], right=(1,))
    echo(f"{name} is ready in {dataset.connector!r}: {size_text(size)}, prepared in {done.seconds:.3f} s")


@data_stack.command()
@_name
@_split
@click.option("--statistics", is_flag=True, help="Read all samples: missing values, extremes, means, distinct values.")
@click.option("--duplicates", is_flag=True, help="Read all samples: which are equal, within and between the splits.")
@click.option(
    "--format",
    "report_format",
    type=click.Choice(["text", "markdown", "html"]),
    help="How to print it.  [default: text]",
)
@_option
@common_options
@_pass_settings
def report(
    settings: Settings,
    name: str,
    split: str | None,
    statistics: bool,
    duplicates: bool,
    report_format: str | None,
    options: tuple[str, ...],
) -> None:
    """Report samples, classes, sizes and digests.

    The dataset is prepared first if it is not ready.
    """
    if settings.as_json and report_format is not None:
        raise click.UsageError("--json and --format both say how to print")
    from data_stack.cli.datasets import Dataset

    dataset = Dataset.find(name, settings.connector())
    made = dataset.report(split, parsed_options(options), statistics=statistics, duplicates=duplicates)
    if settings.as_json:
        print_json(made.to_dict())
    elif report_format == "markdown":
        echo(made.to_markdown())
    elif report_format == "html":  # a page of its own, which a browser is to read as UTF-8
        head = f'<head><meta charset="utf-8"/><title>{html.escape(name)}</title></head>'
        echo(f"<!DOCTYPE html>\n<html>{head}<body>\n{made.to_html()}\n</body></html>")
    else:
        echo(str(made))


@data_stack.command()
@_name
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="The picture to write, .png or .jpg; - is standard output (PNG)."
)
@_split
@click.option(
    "-n", "--samples", "n_samples", type=click.IntRange(min=1), help="How many at most.  [default: 100 pictures, 24 rows]"
)
@click.option("--columns", "n_columns", type=click.IntRange(min=1), help="Pictures in a row.")
@click.option("--seed", type=click.IntRange(min=0), help="Draw random samples instead of the first of each class.")
@_option
@common_options
@_pass_settings
def show(
    settings: Settings,
    name: str,
    output: str,
    split: str | None,
    n_samples: int | None,
    n_columns: int | None,
    seed: int | None,
    options: tuple[str, ...],
) -> None:
    """Draw samples with their labels.

    As many of each class as there is room for. The dataset is prepared first if it is not ready.
    """
    to_stdout = output == "-"
    suffix = Path(output).suffix.lower()
    if not to_stdout and suffix not in (".png", ".jpg", ".jpeg"):
        raise click.BadParameter(f"{output!r} ends neither in .png nor in .jpg", param_hint="'-o'")
    if not to_stdout and not Path(output).absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(Path(output).absolute().parent)!r}", param_hint="'-o'")
    if to_stdout and settings.as_json:
        raise click.UsageError("--json and -o - both want standard output")
    from data_stack.cli.datasets import Dataset, save_picture

    dataset = Dataset.find(name, settings.connector())
    picture = dataset.contact_sheet(split, parsed_options(options), n_samples=n_samples, n_columns=n_columns, seed=seed)
    if to_stdout:
        picture.save(sys.stdout.buffer, format="PNG")
        return
    save_picture(picture, output)
    if settings.as_json:
        print_json({"name": name, "output": output, "width": picture.width, "height": picture.height})
    else:
        echo(f"wrote {output} ({picture.width} x {picture.height} pixels)")


@data_stack.command()
@_names
@click.option("--deep", is_flag=True, help="Read all that is stored, each block, whether it belongs to a dataset or not.")
@click.option("--sample", metavar="SHARE", help="Read a random part, e.g. 5%, of the blocks of 1 MiB; means --deep.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the sample; the same seed chooses the same blocks.")
@_jobs
@common_options
@_pass_settings
@click.pass_context
def verify(
    context: click.Context,
    settings: Settings,
    names: tuple[str, ...],
    deep: bool,
    sample: str | None,
    seed: int | None,
    n_threads: int,
) -> None:
    """Hold stored bytes against their digests.

    Reads all of the datasets NAME, or of all that are prepared, also of those whose plugin is not installed. Exits with 1
    if anything is damaged or missing.

    --deep reads every resource below NAME, or in the store, block by block, names each damaged block, and looks for what
    the store has lost or holds to no purpose: dangling pointers, missing chunks, strays. It changes nothing.
    """
    _check_names(names)
    if deep or sample is not None:
        context.exit(_verify_deeply(settings, names, sample, seed, n_threads))
    if seed is not None:
        raise click.UsageError("--seed is of a sample; give --sample too")
    from data_stack.repository.verification import verify_datasets

    connector = settings.existing_connector()
    results = []
    for result in verify_datasets(names, connector):
        results.append(result)
        if not settings.as_json:
            _print_verified(result)
    faulty = any(result.state != "ok" for result in results)
    if settings.as_json:
        print_json([asdict(result) for result in results])
    elif not results:
        echo(f"no dataset is prepared in {connector!r}")
    context.exit(1 if faulty else 0)


def _verify_deeply(settings: Settings, names: tuple[str, ...], sample: str | None, seed: int | None, n_threads: int) -> int:
    """Print what a deep verification finds; the exit code."""
    from data_stack.repository.verification import verify_storage

    share = None if sample is None else parsed_share(sample)
    if sample is not None and share is None:
        raise click.BadParameter(f"{sample!r} is no share; write 5% or 0.05", param_hint="'--sample'")
    if seed is not None and sample is None:
        raise click.UsageError("--seed is of a sample; give --sample too")
    found = verify_storage(settings.existing_connector(), names, sample=share, seed=seed, n_threads=n_threads)
    if settings.as_json:
        print_json(asdict(found))
        return 1 if found.state == "faulty" else 0
    for fault in found.faults:
        echo(f"FAULT  {fault.identifier}{_block(fault.block)}: {fault.problem}")
    for finding in found.findings:
        echo(f"{'FAULT' if finding.is_fault else 'note '}  {finding.name}: {finding.problem}")
    n_faults = len(found.faults) + sum(finding.is_fault for finding in found.findings)
    what = f"{found.n_resources} resources" if share is None else f"{found.n_ranges} blocks of {found.n_resources} resources"
    echo(
        f"{found.state}: read {what}, {size_text(found.n_bytes)}, in {found.seconds:.3f} s from {found.storage}; "
        f"{n_faults} faults"
    )
    if share is not None:
        echo(f"a sample of {share:.3%}; repeat it with --seed {found.seed}")
    if found.n_without_digest:
        echo(f"of {found.n_without_digest} resources no digest is known; they were read, but compared with nothing")
    return 1 if found.state == "faulty" else 0


def _block(number: int | None) -> str:
    return "" if number is None else f", block {number}"


def _print_verified(result: DatasetVerification) -> None:
    name = f"{result.name} {result.version or ''}".strip()
    echo(f"{name}: {result.state}, {result.n_resources} resources, {size_text(result.size)}")
    for finding in result.findings:
        echo(f"  {'FAULT' if finding.is_fault else 'note'}  {finding.identifier}: {finding.problem}")


@data_stack.command()
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@_names
@click.option("--deep", is_flag=True, help="Read what DST has already, and replace what is damaged there.")
@_jobs
@click.option("--dry-run", is_flag=True, help="Only tell what would be copied.")
@common_options
@_pass_settings
@click.pass_context
def copy(
    context: click.Context,
    settings: Settings,
    source: str,
    target: str,
    names: tuple[str, ...],
    deep: bool,
    n_threads: int,
    dry_run: bool,
) -> None:
    """Copy datasets from one store to another.

    For example: data-stack copy /data/sets 'mongodb://host/datasets' digits mnist

    SRC and DST are folders or URLs of stores; without NAME everything in SRC is copied. Every byte is hashed on its way and
    held against the manifest. What DST has already is neither read nor sent: run the same command again after an
    interruption, and it goes on with the file that broke off. A dataset is ready at DST once all of it is there.
    """
    _check_names(names)
    if settings.storage is not None:
        raise click.UsageError("copy takes its stores as SRC and DST; --storage is not for it")
    from data_stack.exception import IncompleteCopyError, StorageError
    from data_stack.repository.copies import copy_datasets
    from data_stack.repository.default_storage import as_storage_connector, check_there

    there = as_storage_connector(source)
    check_there(there)
    try:
        report = copy_datasets(there, target, names or None, n_threads=n_threads, deep=deep, dry_run=dry_run)
    except IncompleteCopyError as error:
        report = error.report
    except (StorageError, KeyboardInterrupt):
        echo("What is copied stays. The same command goes on from there.", err=True)
        raise
    if settings.as_json:
        outcomes = ("copied", "shared", "present")
        counts = {each: {"resources": report.count(each), "bytes": report.size(each)} for each in outcomes}
        print_json(asdict(report) | counts)
        context.exit(1 if report.faults else 0)
    for name in report.complete:
        echo(f"{name} {'would be' if dry_run else 'is'} ready in {report.target}")
    parts = [
        f"{report.count(outcome)} {words} ({size_text(report.size(outcome))})"
        for outcome, words in (("copied", "copied"), ("shared", "stored there under another name"), ("present", "there already"))
        if report.count(outcome) or outcome == "copied"
    ]
    echo(f"{'dry run: ' if dry_run else ''}{', '.join(parts)}, in {report.seconds:.3f} s")
    for skipped in report.skipped:
        echo(f"left   {skipped.identifier}: {skipped.problem}")
    for fault in report.faults:
        echo(f"FAULT  {fault.identifier}: {fault.problem}")
    if report.faults:
        echo(f"{len(report.faults)} faults in {report.source}: their datasets are not ready in {report.target}")
    context.exit(1 if report.faults else 0)


@data_stack.command()
@_name
@click.option("--version", "version", metavar="V", help="Which version.  [default: the only one there is]")
@click.option("--all-versions", is_flag=True, help="All versions, and all else that lies below NAME.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask. Nothing is asked where standard input is no terminal.")
@common_options
@_pass_settings
def remove(settings: Settings, name: str, version: str | None, all_versions: bool, dry_run: bool, yes: bool) -> None:
    """Remove a dataset from the store.

    Its plugin need not be installed, and stays. The manifest goes first: a removal that was interrupted leaves nothing that
    looks ready, and the same command goes on. Others' datasets and other versions are not touched.
    """
    _check_names((name,))
    if version is not None and all_versions:
        raise click.UsageError("--version and --all-versions exclude each other")
    from data_stack.repository.removal import remove_dataset

    def removed(dry_run: bool) -> RemovalReport:
        return remove_dataset(name, connector, version=version, all_versions=all_versions, dry_run=dry_run)

    connector = settings.connector()
    if not dry_run and not yes and sys.stdin.isatty():
        would = removed(dry_run=True)
        folders = ", ".join(each.folder for each in would.removed)
        click.confirm(
            f"Remove {would.n_resources} resources, {size_text(would.n_bytes)}, of {folders} from {connector!r}?",
            abort=True,
            err=True,
        )
    report = removed(dry_run)
    if settings.as_json:
        facts = {"n_resources": report.n_resources, "n_bytes": report.n_bytes}
        print_json(asdict(report) | facts)
        return
    for each in report.removed:
        what = f"{each.folder}: {each.n_resources} resources, {size_text(each.n_bytes)}"
        click.echo(f"{'would remove' if dry_run else 'removed'} {what}")


@data_stack.command()
@click.option(
    "--grace", default="24h", show_default=True, metavar="TIME", help="Keep what was replaced since: 90s, 30m, 24h, 7d."
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be removed.")
@common_options
@_pass_settings
def gc(settings: Settings, grace: str, dry_run: bool) -> None:
    """Free what no resource needs any more.

    What writers that died left behind goes at once; replaced versions, and content that nothing refers to, after the grace
    period. It may run beside readers and writers, and be interrupted and run again.
    """
    from data_stack.repository.removal import collect_garbage

    seconds = parsed_seconds(grace)
    if seconds is None:
        raise click.BadParameter(f"{grace!r} is no duration; write 90s, 30m, 24h or 7d, not less than 0", param_hint="'--grace'")
    connector = settings.existing_connector()
    garbage = collect_garbage(connector, seconds, dry_run=dry_run)
    n_bytes = sum(each.size or 0 for each in garbage)
    if settings.as_json:
        items = [{"name": each.name, "size": each.size, "reason": each.reason} for each in garbage]
        print_json({"storage": repr(connector), "dry_run": dry_run, "grace_seconds": seconds, "bytes": n_bytes, "garbage": items})
        return
    if garbage:
        rows = [(each.name, size_text(each.size), each.reason) for each in garbage]
        _print_columns([("what", "size", "why"), *rows], right=(1,))
    echo(f"{len(garbage)} items {'could be' if dry_run else 'were'} removed from {connector!r}, {size_text(n_bytes)}")


@data_stack.command()
@_names
@common_options
@_pass_settings
def du(settings: Settings, names: tuple[str, ...]) -> None:
    """Tell how much is stored.

    Resources and bytes of the datasets NAME, or of all: raw (as retrieved), preprocessed (what is opened), other. Unique
    counts equal content once. Reads no data.
    """
    _check_names(names)
    from data_stack.repository.inventory import disk_usage

    facts = asdict(disk_usage(settings.existing_connector(), names))
    if settings.as_json:
        print_json(facts)
        return
    kinds = ("raw", "preprocessed", "other", "total")
    rows: list[tuple[str, ...]] = [("dataset", "resources", *kinds)]
    for row in facts["datasets"]:
        name = f"{row['name']} {row['version'] or ''}".strip()
        rows.append((name, str(row["n_resources"]), *(size_text(row[kind]) for kind in kinds)))
    _print_columns(rows, right=range(1, 6))
    echo(f"\n{facts['n_resources']} resources in {facts['storage']}: {size_text(facts['total'])}")
    for key, words in (("unique", "unique content"), ("stored", "stored"), ("garbage", "garbage (data-stack gc)")):
        if facts[key] is not None:
            echo(f"{size_text(facts[key])} {words}")


def _check_names(names: tuple[str, ...]) -> None:
    # What looks like a URL may hold a password, so it must not come back in an error of ours.
    if any("://" in name for name in names):
        raise click.UsageError("NAME is the name of a dataset, not a URL; a store goes before it (copy) or with --storage")


@data_stack.command("import-file")
@click.argument("identifier", metavar="IDENTIFIER")
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.option("--sha256", metavar="HEX", help="SHA-256 that the file must have.")
@click.option("--md5", metavar="HEX", help="MD5 that the file must have.")
@click.option("--unverified", is_flag=True, help="Store a file that no digest is known of.")
@common_options
@_pass_settings
def import_file(settings: Settings, identifier: str, path: str, sha256: str | None, md5: str | None, unverified: bool) -> None:
    """Store a file fetched by other means.

    For example: data-stack import-file digits/raw/digits.csv.gz ~/Downloads/digits.csv.gz

    It must have the digest that the installed dataset defines for IDENTIFIER, or else the one given. The error of a failed
    download names the identifier.
    """
    from data_stack.cli.datasets import imported

    connector = settings.connector()
    stored = imported(identifier, path, connector, sha256=sha256, md5_sum=md5, unverified=unverified)
    if settings.as_json:
        print_json(stored)
    else:
        state = "verified" if stored["verified"] else "NOT VERIFIED"
        echo(f"stored {identifier} in {connector!r}: {size_text(stored['size'])}, sha256 {stored['sha256']}, {state}")


@data_stack.command()
@common_options
@_pass_settings
@click.pass_context
def doctor(context: click.Context, settings: Settings) -> None:
    """Check environment, store and all plugins.

    Imports every plugin; exits with 1 if one of them, or the store, is broken, or if the original DataStack is in the way.
    """
    from data_stack.cli.examination import examined

    findings = examined(settings)
    if settings.as_json:
        print_json(findings)
        context.exit(0 if findings["healthy"] else 1)
    for key, value in findings["environment"].items():
        echo(f"{key:<14}{value}")
    for original in findings["originals"]:
        echo(f"\nin the way: {original}")
    echo()
    for key, value in findings["store"].items():
        echo(f"{key:<14}{size_text(value) if key == 'free' else value}")
    echo()
    _print_columns(
        [("package", "version", "for")]
        + [(each["package"], each["version"] or "-", each["for"]) for each in findings["packages"]]
    )
    echo()
    rows = [("plugin", "group", "from", "state", "import")]
    for each in findings["plugins"]:
        duration = "-" if each["import_ms"] is None else f"{each['import_ms']:.0f} ms"
        rows.append((each["name"], each["group"], f"{each['distribution']} {each['version']}", each["state"], duration))
    _print_columns(rows)
    for each in findings["plugins"]:
        if each["error"] is not None:
            echo(f"\n{each['state']}: {each['distribution']}:{each['name']}\n  {each['error']}")
    echo("\nall is well" if findings["healthy"] else "\nsomething is broken, see above")
    context.exit(0 if findings["healthy"] else 1)


def _print_columns(rows: list[Any], right: Collection[int] = ()) -> None:
    for line in columns(rows, right):
        echo(line)
