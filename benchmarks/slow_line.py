"""Epochs through a line of 20 ms a request and 1 Gbit/s, from object stores and https, and again
from the cache on this disk.

    python benchmarks/slow_line.py [--peers PYTHON]

1 GiB of 10,240 records, 51 to 154 KB of bytes and a label, in shards of 16 MiB, is served by
slow_server.py; ours is read by http as published, and from an S3 store, both by ``Loader(…, 64,
shuffle=BlockShuffled())``; litdata and MosaicML Streaming read their own shards of 16 MB from S3,
and WebDataset tar files of as many samples by http (it has no client of S3), shuffled, by their
loaders with 2 workers, in the Python of ``--peers``. A peer that is not installed there is left
out. A round is a process of its own with an empty cache: the first epoch, and a second one from the
cache. Figures: the first epoch against the line alone (16 requests of 4 MiB at once); the time
until the first batch, in round trips of 20 ms; how many requests followed one another until then,
in a run of its own with half a second a request, so that only waiting counts; the second epoch
against ours on the same files of this disk; the processor time of all processes, and their most
memory; and the bytes. ``SLOW_LINE_RECORDS=1024`` reads a tenth of the records.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import HERE, MIB, Results, machine, parser_of

ROUND_TRIP, LONG_TRIP = 0.02, 0.5
N_RECORDS = int(os.environ.get("SLOW_LINE_RECORDS", "10240"))
_BATCH, _PER_SHARD, _RATE = 64, 160, 1e9 / 8
_KEYS = {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def sample_at(index: int) -> dict[str, Any]:
    """A record: random bytes, as JPEGs are."""
    import numpy as np

    rng = np.random.default_rng(index)
    return {"image": rng.bytes(int(rng.integers(51_200, 153_600))), "label": index}


# ---------------------------------------------------- programs, which run in processes of their own


def write_ours(folder: Path) -> None:
    """As published, and as S3 store of the same files."""
    import data_stack
    from data_stack.io.storage_connectors import FileStorageConnector
    from data_stack.io.storage_connectors.object_store import FsspecStorageConnector

    data_stack.default_repository().register("slow", _factory())
    data_stack.publish("slow", folder / "published", folder.parent / "store")
    store = FileStorageConnector(folder.parent / "store")
    bucket = FsspecStorageConnector(f"file://{folder}/ours")
    for name in store.list_resources("slow/1.0.0/"):
        with store.get_resource(name) as resource:
            bucket.set_resource(name.removeprefix("slow/1.0.0/"), resource)


def _factory() -> Any:
    from data_stack import DatasetCard, DatasetFactory
    from data_stack.formats import records

    class Slow(DatasetFactory):
        card = DatasetCard("slow", "1.0.0", license="CC0-1.0")
        splits = ("train",)

        def preprocess(self, raw: Any, prepared: Any) -> None:
            spec = {"image": "bytes", "label": "i64"}
            with records.ShardedRecordWriter(
                prepared, spec, prefix="train", shardlen=_PER_SHARD
            ) as writer:
                for index in range(N_RECORDS):
                    writer.append(sample_at(index))

        def open(self, split: str, prepared: Any) -> Any:
            return records.open(prepared, prefix=split)

    return Slow


def ours(place: str) -> Callable[[], Iterator[int]]:
    """The labels of an epoch of ours; of a published dataset, or of records."""
    import data_stack
    from data_stack.loader import BlockShuffled, Loader

    if "://" not in place or place.startswith("http"):
        data_stack.default_repository().register("slow", _factory())
        train = data_stack.load(place, split="train")
    else:
        train = data_stack.load(place)
    loader = Loader(train, _BATCH, shuffle=BlockShuffled(), seed=1)
    return lambda: (int(each) for batch in loader for each in batch["label"])


def write_litdata(folder: Path) -> None:
    """Its chunks."""
    import litdata

    inputs, where = list(range(N_RECORDS)), str(folder / "litdata")
    litdata.optimize(
        sample_at, inputs=inputs, output_dir=where, chunk_bytes="16MB", num_workers=1, verbose=False
    )


def litdata_epochs(place: str, cache: str) -> Callable[[], Iterator[int]]:
    """The labels of an epoch."""
    import litdata
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = (
        True  # there is no argument for a server without TLS
    )
    bare = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
    dataset = litdata.StreamingDataset(place, cache_dir=cache, shuffle=True, storage_options=bare)
    loader = litdata.StreamingDataLoader(dataset, batch_size=_BATCH, num_workers=2, collate_fn=list)
    return lambda: (each["label"] for batch in loader for each in batch)


def write_mosaicml(folder: Path) -> None:
    """Its shards."""
    from training_peers.stand_ins import use_stand_ins

    use_stand_ins()
    from streaming import MDSWriter

    with MDSWriter(
        out=str(folder / "mosaicml"), columns={"image": "bytes", "label": "int"}, size_limit="16mb"
    ) as writer:
        for index in range(N_RECORDS):
            writer.write(sample_at(index))


def mosaicml_epochs(place: str, cache: str) -> Callable[[], Iterator[int]]:
    """The labels of an epoch."""
    from training_peers.stand_ins import use_stand_ins

    use_stand_ins()
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(remote=place, local=cache, batch_size=_BATCH, shuffle=True)
    for stream in dataset.streams:
        # Its forked workers would share the connection that fetched the index, and get the answers
        # of each other.
        stream._downloader.clean_up()
    loader: Any = DataLoader(
        dataset, _BATCH, num_workers=2, collate_fn=list, persistent_workers=True
    )
    return lambda: (each["label"] for batch in loader for each in batch)


def write_webdataset(folder: Path) -> None:
    """Its tar files."""
    import webdataset

    where = folder / "webdataset"
    where.mkdir(parents=True)
    for start in range(0, N_RECORDS, _PER_SHARD):
        with webdataset.TarWriter(str(where / f"{start:06}.tar")) as writer:
            for index in range(start, min(start + _PER_SHARD, N_RECORDS)):
                sample = sample_at(index)
                writer.write(
                    {"__key__": f"{index:06}", "bin": sample["image"], "cls": sample["label"]}
                )


def webdataset_epochs(place: str, cache: str) -> Callable[[], Iterator[int]]:
    """The labels of an epoch; curl fetches each file whole."""
    import webdataset

    urls = [f"{place}/{start:06}.tar" for start in range(0, N_RECORDS, _PER_SHARD)]
    Path(cache).mkdir(exist_ok=True)
    dataset = webdataset.WebDataset(urls, cache_dir=cache, shardshuffle=len(urls))
    batches = dataset.shuffle(1000).to_tuple("bin", "cls").batched(_BATCH, collation_fn=list)
    loader = webdataset.WebLoader(batches, batch_size=None, num_workers=2, persistent_workers=True)
    return lambda: (int(label) for batch in loader for _, label in batch)


WAYS: dict[str, Callable[[str, str], Any]] = {
    "ours, http": lambda port, cache: ours(f"http://127.0.0.1:{port}/published?cache={cache}"),
    "ours, S3": lambda port, cache: ours(
        f"s3://ours/train?endpointUrl=http://127.0.0.1:{port}&anonymous=true&cache={cache}"
    ),
    "litdata": lambda port, cache: litdata_epochs("s3://litdata", cache),
    "MosaicML Streaming": lambda port, cache: mosaicml_epochs("s3://mosaicml", cache),
    "WebDataset": lambda port, cache: webdataset_epochs(
        f"http://127.0.0.1:{port}/webdataset", cache
    ),
    "ours, this disk": lambda port, cache: ours(str(Path(cache).parent / "www" / "published")),
}
#: Imported before the clock starts.
_IMPORTS = {
    "ours": "data_stack.loader data_stack.io.web.sessions obstore.store botocore.session"
    " data_stack.io.storage_connectors.object_store.obstore_objects",
    "litdata": "litdata obstore boto3 torch",
    "MosaicML": "boto3 torch",
    "WebDataset": "webdataset torch",
}
#: The folder of each peer below the root of the server.
_PEER_FOLDERS = {
    "litdata": "litdata",
    "MosaicML Streaming": "mosaicml",
    "WebDataset": "webdataset",
}


def processor_seconds() -> float:
    """The processor time of all processes of this session, those that have ended included."""
    n_ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the program, in parentheses, may have spaces.
            _, _, fields_text = path.read_text().rpartition(") ")
        except OSError:  # it has just ended
            continue
        fields = fields_text.split()
        if int(fields[3]) == os.getsid(0):
            # Its own, in user and system mode, and that of the children that it waited for.
            n_ticks += sum(int(field) for field in fields[11:15])
    return n_ticks / os.sysconf("SC_CLK_TCK")


def run_way(way: str, port: str, cache: str, until: str = "second") -> None:
    """Two epochs, or until the first batch; prints what they took."""
    for name in next(names for start, names in _IMPORTS.items() if way.startswith(start)).split():
        importlib.import_module(name)
    if way.startswith("ours"):
        ours(str(Path(cache).parent / "www" / "published"))  # imports the rest
    started = time.time()
    begin = WAYS[way](port, cache)
    figures = {"started": started, "cpu": -processor_seconds()}
    for number, epoch in enumerate(("first", "second")):
        began, seen = time.time() if number else started, []
        for label in begin():
            if not seen and not number:
                figures["batch"] = time.time()
                if until == "batch":
                    print(json.dumps(figures), flush=True)
                    time.sleep(60)  # until this process and its workers are killed
            seen.append(label)
        figures[epoch] = time.time() - began
        if number == 0:
            figures["cpu"] += processor_seconds()
        assert len(seen) >= N_RECORDS * 0.99, len(seen)
        assert len(set(seen)) >= N_RECORDS * 0.99
    print(json.dumps(figures), flush=True)


# ---------------------------------------------------------------------- the comparison


@contextlib.contextmanager
def server(folder: Path, *line: str) -> Iterator[str]:
    """The port of slow_server.py."""
    command = [sys.executable, str(HERE / "slow_server.py"), str(folder), *line]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def log_of(port: str) -> list[list[Any]]:
    """The requests since the last call."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/log") as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def follow_one_another(log: list[list[Any]]) -> int:
    """The longest chain of requests of which each came after the answer to the one before."""
    n_requests, last = 0, 0.0
    for came, ended, *_ in sorted(log, key=lambda each: each[1]):
        if came >= last:
            n_requests, last = n_requests + 1, ended
    return n_requests


def line_alone(port: str, folder: Path) -> float:
    """Seconds to fetch the published files, 16 requests of 4 MiB at once."""
    files = [file for file in sorted((folder / "published").rglob("*")) if file.is_file()]
    pieces = [(file, start) for file in files for start in range(0, file.stat().st_size, 4 * MIB)]

    def fetch(piece: tuple[Path, int]) -> None:
        asked = {"Range": f"bytes={piece[1]}-{piece[1] + 4 * MIB - 1}"}
        url = f"http://127.0.0.1:{port}/{piece[0].relative_to(folder).as_posix()}"
        with urllib.request.urlopen(urllib.request.Request(url, headers=asked)) as answer:
            while answer.read(MIB):
                pass

    started = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(fetch, pieces))
    return time.perf_counter() - started


def run(
    way: str, python: str, port: str, folder: Path, until: str
) -> tuple[dict[str, float], list[list[Any]], int]:
    """The figures of a way in a process of its own with an empty cache, its requests, and the most
    memory.
    """
    from loader_peers.memory import proportional_bytes

    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    log_of(port)
    address = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        **_KEYS,
        "AWS_ENDPOINT_URL": address,
        "S3_ENDPOINT_URL": address,
        "TMPDIR": str(folder),
    }
    command = [
        python,
        "-W",
        "ignore",
        str(HERE / "slow_line.py"),
        "--run",
        way,
        port,
        str(cache),
        until,
    ]
    with (
        open(folder / "errors", "w+") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=HERE,
            start_new_session=True,
        ) as process,
    ):
        peaks, stopped = [0], threading.Event()

        def watch() -> None:
            while not stopped.wait(0.2):
                peaks.append(proportional_bytes(process.pid))

        threading.Thread(target=watch, daemon=True).start()
        assert process.stdout is not None
        found = next((line for line in process.stdout if line.startswith("{")), None)
        stopped.set()
        if until == "batch" or found is None:
            os.killpg(process.pid, signal.SIGKILL)
        if process.wait() and found is None:
            errors.seek(0)
            raise RuntimeError(errors.read()[-1500:])
    return json.loads(found or ""), log_of(port), max(peaks)


def measure(way: str, python: str, port: str, folder: Path) -> dict[str, float]:
    """The figures of one round of a way."""
    with server(folder / "www", str(LONG_TRIP * 1000), "100000") as far:
        figures, log, _ = run(way, python, far, folder, "batch")
    chain = follow_one_another([each for each in log if each[1] <= figures["batch"]])
    figures, log, memory = run(way, python, port, folder, "second")
    first = [each for each in log if each[0] < figures["started"] + figures["first"]]
    return {
        "epoch": figures["first"],
        "second": figures["second"],
        "batch": (figures["batch"] - figures["started"]) / ROUND_TRIP,
        "cpu": figures["cpu"] * (1 << 30) / _stored(folder, way),
        "chain": float(chain),
        "memory": float(memory),
        "bytes": sum(each[2] for each in first) / _stored(folder, way),
        "requests": float(len(first)),
        "again": sum(each[2] for each in log) / _stored(folder, way)
        - sum(each[2] for each in first) / _stored(folder, way),
    }


def _stored(folder: Path, way: str) -> int:
    bucket = {"ours, S3": "ours", **_PEER_FOLDERS}.get(way, "published")
    return sum(
        file.stat().st_size for file in (folder / "www" / bucket).rglob("*") if file.is_file()
    )


_CASES = {
    "epoch": ("first epoch", "s"),
    "batch": ("until the first batch, in round trips", ""),
    "chain": ("requests that followed one another until then", ""),
    "second": ("second epoch, from the cache", "s"),
    "memory": ("most memory", "MiB"),
    "cpu": ("processor time of the first epoch, a GiB", "s"),
    "bytes": ("bytes of the first epoch by bytes stored", ""),
    "again": ("bytes of the second epoch by bytes stored", ""),
    "requests": ("requests of the first epoch", ""),
}


def write(name: str, python: str, folder: Path) -> None:
    """Write the files of ours or of a peer below ``www``, whole or not at all.

    Raises:
        RuntimeError: the package is not installed, or failed.
    """
    destination = folder / "www"
    if (destination / name).exists():
        return
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [python, "-W", "ignore", str(HERE / "slow_line.py"), "--write", name]
    done = subprocess.run([*command, str(unfinished)], stderr=subprocess.PIPE, text=True, cwd=HERE)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    destination.mkdir(exist_ok=True)
    for path in unfinished.iterdir():
        path.rename(destination / path.name)


def main() -> None:
    """Write, serve, read, and print the figures."""
    if sys.argv[1:2] == ["--run"]:
        run_way(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["--write"]:
        writers = {
            "ours": write_ours,
            "litdata": write_litdata,
            "mosaicml": write_mosaicml,
            "webdataset": write_webdataset,
        }
        writers[sys.argv[2]](Path(sys.argv[3]))
        return
    parser = parser_of(__doc__, list(WAYS), 3)
    parser.add_argument("--peers", default=sys.executable, help="the Python that has the peers")
    given, results = parser.parse_args(), Results()
    if given.small:
        os.environ["SLOW_LINE_RECORDS"] = "1024"
    print(machine())
    results.kinds = {"the line": "limit", "ours, this disk": "limit"}
    for peer in _PEER_FOLDERS:
        results.kinds[peer] = "peer"
    with contextlib.ExitStack() as exits:
        folder = Path(given.folder or exits.enter_context(tempfile.TemporaryDirectory()))
        write("ours", sys.executable, folder)
        ways = [way for way in given.only if way not in _PEER_FOLDERS]
        for peer, name in _PEER_FOLDERS.items():
            if peer not in given.only:
                continue
            try:
                write(name, given.peers, folder)
            except RuntimeError as error:
                results.leave_out(peer, error)
            else:
                ways.append(peer)
        if not ways:
            sys.exit("none of the chosen peers is installed: name a Python that has them (--peers)")
        port = exits.enter_context(server(folder / "www"))
        figures_of_rounds: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        lines = []
        for number in range(given.rounds):
            lines.append(line_alone(port, folder / "www"))
            first_way = number % len(ways)
            for way in ways[first_way:] + ways[:first_way]:
                if way in results.left_out:
                    continue
                python = given.peers if way in _PEER_FOLDERS else sys.executable
                try:
                    figures_of_rounds[way].append(measure(way, python, port, folder))
                except Exception as error:  # a package may be broken in its own way
                    results.leave_out(way, error)
    results.keep(_CASES["epoch"][0], "the line", lines, "s")
    for key, (case, unit) in _CASES.items():
        for way, rounds in figures_of_rounds.items():
            if rounds and (way != "ours, this disk" or key in ("second", "memory")):
                results.keep(case, way, [each[key] for each in rounds], unit)
        results.print(
            case, "the line" if key == "epoch" else "ours, this disk" if key == "second" else None
        )
    for way in ("ours, http", "ours, S3"):
        results.at_least(f"{way}: epoch", _CASES["epoch"][0], way, "the line", 1 / 1.2)
        results.at_least(f"{way}: epoch", _CASES["epoch"][0], way, "best peer", 1)
        results.at_most(f"{way}: processor time", _CASES["cpu"][0], way, 3)
        results.at_most(f"{way}: first batch", _CASES["chain"][0], way, 5)
        results.at_least(f"{way}: second epoch", _CASES["second"][0], way, "ours, this disk", 1)
        results.at_most(f"{way}: bytes", _CASES["bytes"][0], way, 1.2)
    results.save(given.json)


if __name__ == "__main__":
    main()
