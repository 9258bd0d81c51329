"""Downloads from servers that cut, stall, lie, redirect and refuse; those that one command began
and another one ends.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import logging
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from process_harness import n_bytes_read, start_python, until
from web_server import ScriptedServer

from data_stack.exception import RetrievalError, SeveralRetrievalErrors
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, RetrievedResource, retrieve
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.storage_connectors.connector import DAY_SECONDS, StorageConnector
from data_stack.stores.garbage import collect_garbage
from data_stack.testing.storage_connector import content

BODY = random.Random(7).randbytes(200_000)
SHA256 = hashlib.sha256(BODY).hexdigest()
WRONG = BODY[:100_000] + bytes([BODY[100_000] ^ 1]) + BODY[100_001:]
ETAG = {"ETag": '"one"'}
PAGE = b"<!DOCTYPE html>\n<html><head><title>Please  log in\n&amp; pay</title></head></html>"
QUICK = Limits(n_retries=2, backoff_seconds=0.01, max_wait_seconds=0.3)


def fetch(
    store: StorageConnector,
    *sources: str,
    timeout_seconds: float = 30.0,
    limits: Limits = QUICK,
    **fields: Any,
) -> RetrievedResource:
    """Retrieve one resource ``raw/data`` from ``sources``."""
    definition = ResourceDefinition("raw/data", sources[0], mirrors=sources[1:], **fields)
    return retrieve([definition], store, timeout_seconds=timeout_seconds, limits=limits)[0]


def refusal(store: FileStorageConnector, *sources: str, **options: Any) -> str:
    """The error of a retrieval that must fail and leave nothing behind, neither resource nor
    temporary.
    """
    with pytest.raises(RetrievalError) as caught:
        fetch(store, *sources, **options)
    assert [path for path in Path(store.root_path).rglob("*") if path.is_file()] == []
    return str(caught.value)


# ---------------------------------------------------------------------- cut and resumed


def test_a_cut_download_goes_on_where_it_was_cut(
    store: FileStorageConnector, server: ScriptedServer
) -> None:
    good = {"body": BODY, "headers": ETAG, "ranges": True}

    fetch(store, server.script("/data.bin", good | {"cut_at": 120_000}, good), sha256=SHA256)

    assert content(store, "raw/data") == BODY
    first, second = server.requests
    assert "range" not in first.headers
    assert second.headers["if-range"] == '"one"'
    assert 119_000 < offset_of(server, 1) <= 120_000


@pytest.mark.parametrize(
    "second",
    [
        {"body": BODY},
        {"body": BODY, "headers": {"ETag": '"two"'}, "ranges": True},
        {
            "body": BODY[99_744:],
            "status": 206,
            "headers": ETAG | {"Content-Range": "bytes 0-100255/200000"},
        },
        {
            "body": BODY[99_744:],
            "status": 206,
            "headers": ETAG | {"Content-Range": "bytes 99744-199999/200001"},
        },
        {
            "body": BODY[99_744:],
            "status": 206,
            "headers": ETAG | {"Content-Range": "bytes 99744-150000/200000"},
        },
        {
            "body": BODY[99_744:],
            "status": 206,
            "headers": {"ETag": '"two"', "Content-Range": "bytes 99744-199999/200000"},
        },
        {"body": BODY[99_744:], "status": 206, "headers": ETAG},
        {
            "body": BODY[:100_256],
            "status": 206,
            "headers": ETAG | {"Content-Range": "bytes 99744-199999/200000"},
        },
        {"body": b"", "status": 416, "headers": {"Content-Range": "bytes */10"}},
    ],
    ids=["ignores", "changed", "start", "total", "end", "etag", "silent", "lies", "416"],
)
def test_a_download_that_cannot_be_resumed_faithfully_begins_again(
    store: FileStorageConnector, server: ScriptedServer, second: dict[str, Any]
) -> None:
    first = {"body": BODY, "headers": ETAG, "cut_at": 100_000}

    fetch(
        store, server.script("/data.bin", first, second, {"body": BODY})
    )  # no digest: nothing else would notice a mixture

    assert content(store, "raw/data") == BODY


@pytest.mark.parametrize("announced", [-1, "chunked", 200_001])
def test_a_download_that_is_always_cut_ends_as_an_error(
    store: FileStorageConnector, server: ScriptedServer, announced: int | str
) -> None:
    cut_at = 200_000 if announced == 200_001 else 50_000

    assert "the connection was cut after" in refusal(
        store, server.serve("/a", BODY, cut_at=cut_at, announced=announced)
    )
    assert len(server.requests) <= 1 + 1 + QUICK.n_retries


# ---------------------------------------------------------------------- asked again, or not


@pytest.mark.parametrize("status", [408, 429, 500, 504])
def test_a_busy_server_is_asked_again(
    store: FileStorageConnector, server: ScriptedServer, status: int
) -> None:
    busy = {"status": status, "body": b"busy"}

    fetch(store, server.script("/data.bin", busy, busy, {"body": BODY}), sha256=SHA256)

    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [401, 404, 451, 204, 304])
def test_after_a_refusal_the_mirror_is_asked(
    store: FileStorageConnector, server: ScriptedServer, other_server: ScriptedServer, status: int
) -> None:
    resource = fetch(
        store,
        server.serve("/data.bin", status=status),
        mirror := other_server.serve("/data.bin", BODY),
    )

    assert resource.source == mirror
    assert len(server.requests) == 1


def test_retry_after_is_obeyed_up_to_the_cap(
    store: FileStorageConnector, server: ScriptedServer
) -> None:
    busy = {"status": 503, "headers": {"Retry-After": "1000000000"}}
    started = time.monotonic()

    fetch(store, server.script("/data.bin", busy, {"body": BODY}))

    assert time.monotonic() - started >= QUICK.max_wait_seconds  # and it came to an end


def test_wrong_bytes_from_everywhere_are_an_error_that_names_all(
    store: FileStorageConnector, server: ScriptedServer, other_server: ScriptedServer
) -> None:
    urls = server.serve("/data.bin", WRONG), other_server.serve("/data.bin", status=404)

    said = refusal(store, *urls, sha256=SHA256)

    assert len(server.requests) == 2
    facts = (
        "'raw/data'",
        *urls,
        SHA256,
        hashlib.sha256(WRONG).hexdigest(),
        "answers 404",
        "data-stack import-file raw/data",
    )
    assert [fact for fact in facts if fact not in said] == []


def test_a_host_that_failed_is_asked_last_from_then_on(
    store: FileStorageConnector, server: ScriptedServer, other_server: ScriptedServer
) -> None:
    urls = [
        (server.serve(f"/{i}", status=404), other_server.serve(f"/{i}", BODY)) for i in range(5)
    ]
    definitions = [ResourceDefinition(url[-1], url, mirrors=(mirror,)) for url, mirror in urls]

    retrieve(definitions, store, max_parallel=1, limits=QUICK)

    assert server.paths() == ["/0"]


def test_good_files_are_kept_and_all_failures_are_told(
    store: FileStorageConnector, server: ScriptedServer
) -> None:
    definitions = [
        ResourceDefinition("raw/good", server.serve("/good", BODY), sha256=SHA256),
        ResourceDefinition("raw/wrong", server.serve("/wrong", WRONG), sha256=SHA256),
        ResourceDefinition("raw/missing", server.serve("/missing", status=404)),
        ResourceDefinition("raw/late", server.serve("/late", BODY)),
    ]

    with pytest.raises(SeveralRetrievalErrors) as caught:
        retrieve(definitions, store, limits=QUICK)

    assert [error.identifier for error in caught.value.errors] == ["raw/wrong", "raw/missing"]
    assert "raw/wrong" in str(caught.value)
    assert "raw/missing" in str(caught.value)
    assert store.list_resources() == ["raw/good", "raw/late"]


# ------------------------------------------------------------- too much, too little, something else


def test_endless_answers_and_html_pages_are_refused(
    store: FileStorageConnector, server: ScriptedServer
) -> None:
    endless = refusal(
        store,
        server.serve("/data.bin", BODY, announced="chunked"),
        limits=Limits(max_bytes=150_000),
    )
    page = refusal(
        store, server.serve("/page.bin", PAGE, headers={"Content-Type": "application/octet-stream"})
    )

    assert "sends more than the limit of 150,000 bytes" in endless
    assert "an HTML page" in page


def test_an_encoded_answer_is_never_decoded(
    store: FileStorageConnector, server: ScriptedServer
) -> None:
    packed = gzip.compress(bytes(10_000_000))
    url = server.serve("/data.gz", packed, headers={"Content-Encoding": "gzip"})

    assert "encoded as gzip" in refusal(store, url)
    fetch(
        store, url, sha256=hashlib.sha256(packed).hexdigest()
    )  # servers say so of files that simply are gzip files

    assert content(store, "raw/data") == packed


# ---------------------------------------------------------------------- redirects


def test_five_redirects_are_followed_and_six_are_not(
    store: FileStorageConnector, server: ScriptedServer
) -> None:
    server.serve("/0", BODY)
    for i in range(1, 7):
        server.serve(f"/{i}", status=301, headers={"Location": f"/{i - 1}"})

    assert "redirects more than 5 times" in refusal(store, server.origin + "/6")
    fetch(store, server.origin + "/5", sha256=SHA256)

    assert content(store, "raw/data") == BODY


# ---------------------------------------------------------------------- secrets


def test_a_password_goes_to_its_own_server_only(
    store: FileStorageConnector, server: ScriptedServer, other_server: ScriptedServer
) -> None:
    target = other_server.serve("/data.bin", BODY)
    server.script(
        "/here",
        {"status": 302, "headers": {"Location": "/there", "Set-Cookie": "sid=c00kie; Path=/"}},
    )
    server.serve("/there", status=302, headers={"Location": target})

    fetch(store, server.origin.replace("://", "://me:s%40cret@") + "/here")

    assert [seen.headers.get("authorization") for seen in server.requests] == [
        "Basic bWU6c0BjcmV0"
    ] * 2
    assert "authorization" not in other_server.requests[0].headers
    assert not any("cookie" in seen.headers for seen in (*server.requests, *other_server.requests))


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 404},
        {"body": WRONG},
        {"body": BODY, "hang_at": 10},
        {"status": 302, "headers": {"Location": "http://u:canary5ecret@[/"}},
    ],
)
@pytest.mark.parametrize("parsable", [True, False])
def test_secrets_of_a_url_are_never_shown(
    store: FileStorageConnector,
    server: ScriptedServer,
    caplog: pytest.LogCaptureFixture,
    fault: dict[str, Any],
    parsable: bool,
) -> None:
    userinfo = "user:canary5ecret@" if parsable else "user:canary5ecret/x#y@"
    url = (
        server.script("/data.bin", fault).replace("://", f"://{userinfo}")
        + "?size=1&access_token=c4narytoken"
    )

    with caplog.at_level(logging.DEBUG), pytest.raises(RetrievalError) as caught:
        fetch(
            store,
            url,
            sha256=SHA256,
            timeout_seconds=0.4,
            limits=Limits(n_retries=1, backoff_seconds=0.01),
        )

    error = caught.value
    shown = [str(error), repr(error), repr(error.args), *traceback.format_exception(error)]
    shown += [record.getMessage() for record in caplog.records if record.name == "data_stack"]
    assert "canary5ecret" not in "\n".join(shown)
    assert "c4narytoken" not in "\n".join(shown)
    assert error.attempts[0][0].endswith(
        f"***@localhost:{server.port}/data.bin?size=1&access_token=***"
    )


# ---------------------------------------------------------------------- names that are none


HOSTLESS = [
    "http:",
    "http://[::1/data.bin",
    "http://localhost:99999999/",
    "http://a\x00b/",
    "http://\udcff.invalid/",
]


@pytest.mark.parametrize(
    "url",
    [
        *HOSTLESS,
        "http://" + "a" * 300 + ".invalid/",
        "http://user@:80/",
        "http://localhost:1/\r\nHost: evil",
    ],
)
def test_a_url_that_is_none_is_an_error_of_ours(store: FileStorageConnector, url: str) -> None:
    assert "raw/data" in refusal(store, url, limits=Limits(n_retries=0))


# ---------------------------------------------------------------------- offline


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_offline_touches_no_network_and_deletes_nothing(
    store: FileStorageConnector, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    store.set_resource("raw/data", b"wrong")
    definition = ResourceDefinition("raw/data", server.serve("/data.bin", BODY), sha256=SHA256)
    if by == "environment":
        monkeypatch.setenv("DATA_STACK_OFFLINE", "1")

    with pytest.raises(RetrievalError, match="offline") as caught:
        retrieve([definition], store, offline=True if by == "argument" else None)

    assert "data-stack import-file raw/data" in str(caught.value)
    assert server.requests == []
    assert content(store, "raw/data") == b"wrong"


# ---------------------------------------------------------------------- a process of its own


#: Arguments: a store, the digest of all, and the URLs, which become raw/data, raw/data1 and so on.
RETRIEVING = """
import sys
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors import FileStorageConnector
definitions = [ResourceDefinition(f"raw/data{i or ''}", url, sha256=sys.argv[2]) for i, url in enumerate(sys.argv[3:])]
retrieve(definitions, FileStorageConnector(sys.argv[1]), timeout_seconds=3600)
"""


def test_ctrl_c_ends_promptly_and_publishes_nothing(
    store: FileStorageConnector, server: ScriptedServer
) -> None:
    urls = [server.serve(f"/{i}", BODY, hang_at=100_000) for i in range(3)]

    with start_python("-c", RETRIEVING, store.root_path, SHA256, *urls) as process:
        assert until(lambda: len(server.requests) == 3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)

    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert [path for path in Path(store.root_path).rglob("*") if path.is_file()] == []


# ---------------------------------------------------------------------- goes on in another command


LONG = random.Random(7).randbytes(1_000_000)
LONG_SHA256 = hashlib.sha256(LONG).hexdigest()
CUT = 600_000
GOOD: dict[str, Any] = {"body": LONG, "headers": {"ETag": '"one"'}, "ranges": True}
ONCE = Limits(n_retries=0, backoff_seconds=0.001)


def resume(store: StorageConnector, url: str, *, sha256: str | None = LONG_SHA256) -> None:
    fetch(store, url, sha256=sha256, limits=ONCE, timeout_seconds=120)


def interrupt(store: StorageConnector, url: str, *, sha256: str | None = LONG_SHA256) -> None:
    """A download that fails in the middle."""
    with pytest.raises(RetrievalError):
        resume(store, url, sha256=sha256)
    with contextlib.suppress(FileNotFoundError):
        assert store.list_resources() == []


def partials(tmp_path: Path) -> list[Path]:
    """What waits to be gone on with."""
    return [path for path in tmp_path.rglob(".~*") if path.is_file()]


def offset_of(server: ScriptedServer, number: int) -> int:
    """From which byte on a request asks."""
    return int(
        server.requests[number]
        .headers.get("range", "bytes=0-")
        .removeprefix("bytes=")
        .removesuffix("-")
    )


def interrupted_for_ever(server: ScriptedServer, *then: dict[str, Any]) -> str:
    """A URL whose first answer is cut, and the second one too, before it brings anything."""
    return server.script(
        "/data", GOOD | {"cut_at": CUT}, GOOD | {"cut_at": 0, "reset": True}, *then
    )


CHANGED = {"body": LONG, "headers": {"ETag": '"two"'}, "ranges": True}


@pytest.mark.parametrize(
    "then", [GOOD, CHANGED, {"body": LONG}], ids=["good", "changed", "without ranges"]
)
def test_the_next_command_asks_only_for_the_rest(
    store: StorageConnector, server: ScriptedServer, tmp_path: Path, then: dict[str, Any]
) -> None:
    url = interrupted_for_ever(server, then)

    interrupt(store, url)
    n_read = n_bytes_read()
    resume(store, url)

    assert then is not GOOD or n_bytes_read() - n_read < len(LONG)  # what is taken up, once
    assert content(store, "raw/data") == LONG
    assert server.requests[-1].headers["if-range"] == '"one"'
    assert CUT - 1024 < offset_of(server, -1) <= CUT
    assert partials(tmp_path) == []


def test_so_it_does_after_the_first_one_was_killed(
    store: FileStorageConnector, server: ScriptedServer, tmp_path: Path
) -> None:
    url = server.script("/data", GOOD | {"hang_at": CUT}, GOOD)
    with start_python("-c", RETRIEVING, store.root_path, LONG_SHA256, url) as process:
        until(lambda: any(path.stat().st_size > CUT / 2 for path in partials(tmp_path)))
        process.kill()

    store.remove_abandoned()  # as the next preparation does
    resume(store, url)

    assert content(store, "raw/data") == LONG
    assert offset_of(server, -1) > CUT / 2
    assert partials(tmp_path) == []


@pytest.mark.parametrize(
    ("harm", "resumed"),
    [
        (
            lambda partial: partial.write_bytes(bytes(1000) + partial.read_bytes()[1000:]),
            [True, False],
        ),
        (
            lambda partial: partial.rename(f"{partial}".rpartition("-")[0] + "-").write_bytes(
                bytes(2 * len(LONG))
            ),
            [False],
        ),
        (lambda partial: os.link(partial, partial.with_name("second")), [False]),
    ],
    ids=["overwritten", "without version", "second name"],
)
def test_what_was_harmed_meanwhile_is_found_and_fetched_anew_once(
    store: StorageConnector,
    server: ScriptedServer,
    tmp_path: Path,
    harm: Callable[[Path], object],
    resumed: list[bool],
) -> None:
    url = interrupted_for_ever(server, GOOD)
    interrupt(store, url)
    (partial,) = partials(tmp_path)
    harm(partial)
    before = len(server.requests)

    resume(store, url)

    assert content(store, "raw/data") == LONG
    assert [
        offset_of(server, number) > 0 for number in range(before, len(server.requests))
    ] == resumed
    assert partials(tmp_path) == []


@pytest.mark.parametrize(
    ("headers", "sha256"),
    [
        (ETAG, None),
        ({"ETag": 'W/"one"'}, LONG_SHA256),
        ({"ETag": f'"{"1" * 300}"'}, LONG_SHA256),
        ({}, LONG_SHA256),
    ],
    ids=["digest", "weak", "long", "none"],
)
def test_nothing_is_kept_that_could_not_be_verified(
    store: StorageConnector,
    server: ScriptedServer,
    tmp_path: Path,
    headers: dict[str, str],
    sha256: str | None,
) -> None:
    answer = GOOD | {"headers": headers}

    interrupt(
        store,
        server.script("/data", answer | {"cut_at": CUT}, answer | {"cut_at": 0, "reset": True}),
        sha256=sha256,
    )

    assert partials(tmp_path) == []


def test_it_is_swept_when_it_is_a_day_old(
    store: StorageConnector, server: ScriptedServer, tmp_path: Path
) -> None:
    interrupt(store, interrupted_for_ever(server))
    (partial,) = partials(tmp_path)

    assert collect_garbage(store, DAY_SECONDS, dry_run=False) == []
    assert [garbage.size for garbage in collect_garbage(store, 0.0, dry_run=True)] == [
        partial.stat().st_size
    ]
    os.utime(partial, (time.time() - DAY_SECONDS - 1,) * 2)
    n_open = len(os.listdir("/dev/fd"))
    (garbage,) = collect_garbage(store, DAY_SECONDS, dry_run=False)
    assert len(os.listdir("/dev/fd")) == n_open

    assert garbage.reason == "an interrupted download"
    assert not partial.exists()


def test_one_that_is_under_way_is_neither_swept_nor_shared(
    store: StorageConnector, server: ScriptedServer, tmp_path: Path
) -> None:
    url = server.script("/data", GOOD | {"hang_at": CUT}, GOOD)
    first = threading.Thread(target=resume, args=(store, url))
    first.start()
    assert until(lambda: any(path.stat().st_size for path in partials(tmp_path)))

    swept = collect_garbage(store, 0.0, dry_run=False)
    resume(store, url)
    server.stopped.set()  # the first one is cut, goes on by itself and is published too
    first.join()

    assert swept == []
    assert [offset_of(server, number) > 0 for number in range(3)] == [False, False, True]
    assert content(store, "raw/data") == LONG
    assert partials(tmp_path) == []
