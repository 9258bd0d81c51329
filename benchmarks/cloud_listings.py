"""Listing gs:// and az:// by our web client, against gcsfs and adlfs (client=fsspec).

Run: python benchmarks/cloud_listings.py. The figures are the processor time of a process of its own
that lists: to the end of the first page, with the import of the client and the login, and then for
each of 20,000 keys. The servers are those of the tests, in the process of the benchmark; their time
is not counted. Target: Azure at least 2 × less than by adlfs in both. gcsfs finds the login of both
clients, so the first page of Google costs about the same.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from harness import SUPPORT, Results, answer_of, in_turn, machine, parser_of

sys.path.insert(0, str(SUPPORT))
# Otherwise gcsfs asks by gRPC what kind of bucket it is. It reads this when it is imported.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

from azure_server import ACCOUNT, KEY, AzureServer
from gcs_server import GCSServer

N_KEYS = 20_000
LIST = f"""
import json, os, time
from data_stack.io.storage_connectors import FsspecStorageConnector
options = json.loads(os.environ["OPTIONS"])
started_at = time.process_time()
store = FsspecStorageConnector(os.environ["PLACE"], timeout_seconds=60.0, **options)
assert len(store._files.files("one")) == 1
first_page_at = time.process_time()
assert len(store._files.files("many")) == {N_KEYS}
print(json.dumps([first_page_at - started_at, time.process_time() - first_page_at]))
"""


def list_keys(place: str, options: Mapping[str, Any]) -> list[float]:
    """Return the seconds to the end of the first page, and for all other keys."""
    environment = {**os.environ, "PLACE": place, "OPTIONS": json.dumps(options)}
    seconds: list[float] = answer_of([sys.executable, "-c", LIST], environment)
    return seconds


def measure(
    scheme: str, options: Mapping[str, Any], other: str, results: Results, rounds: int
) -> None:
    """Measure both clients in turn.

    Args:
        scheme: of the URL.
        options: how the store is found, and how it logs in.
        other: the name of fsspec's client.
        results: take the figures.
        rounds: how often each client is measured.
    """
    place = f"{scheme}://data/f"
    ways = {
        "ours": functools.partial(list_keys, place, options),
        other: functools.partial(list_keys, place, {**options, "client": "fsspec"}),
    }
    first_case = f"{scheme}:// first page"
    many_case = f"{scheme}:// a key"
    for way, figures in in_turn(scheme, ways, rounds, results).items():
        results.kinds[way] = "ours" if way == "ours" else "peer"
        results.keep(first_case, way, [first for first, _ in figures], "s")
        results.keep(many_case, way, [many / N_KEYS for _, many in figures], "us")
    results.print(first_case, other)
    results.print(many_case, other)


def main() -> None:
    """Print the figures of both stores."""
    arguments = parser_of(__doc__, rounds=5).parse_args()
    results = Results()
    print(machine())
    with GCSServer() as google, AzureServer() as azure:
        for server in (google, azure):
            server.page_size = 5_000
            server.put("f/one/a", b"1")
            for number in range(N_KEYS):
                server.put(f"f/many/{number:06}", b"1")
        google_options = {"endpoint_url": google.url, "token": google.service_account()}
        measure("gs", google_options, "gcsfs", results, arguments.rounds)
        azure_options = {"endpoint_url": azure.url, "account_name": ACCOUNT, "account_key": KEY}
        measure("az", azure_options, "adlfs", results, arguments.rounds)
    for case in ("az:// first page", "az:// a key"):
        results.at_least(case, case, "ours", "adlfs", 2.0)
    results.save(arguments.json)


if __name__ == "__main__":
    main()
