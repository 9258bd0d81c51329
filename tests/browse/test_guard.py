"""Who may read the pages, and what a page may do."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from browse_kit import TOKEN, Served, labelled, serving
from process_harness import start_python

from data_stack.browse.server.connection import MAX_CONNECTIONS
from data_stack.dataset.iterator import InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.meta import DatasetMeta

PATHS = (
    "/",
    "/app.js",
    "/api/overview",
    "/api/samples?split=0&start=0",
    "/picture?split=0&position=0&column=0",
    "/nothing",
)


def waits(served: Served, sent: bytes, then: bytes = b"") -> bytes:
    """What a client receives that sends just this, and ``then`` behind the answer, until the server
    closes the connection.
    """
    host, port = served.url.removeprefix("http://").split(":")
    received = b""
    started_at = time.monotonic()
    with (
        socket.create_connection((host, int(port)), timeout=60) as connection,
        contextlib.suppress(ConnectionResetError),
    ):
        connection.sendall(sent)
        if time.monotonic() - started_at > 0.5:
            # On a busy machine, the server may have closed it before anything was sent.
            return waits(served, sent, then)
        while part := connection.recv(1 << 16):
            received += part
            connection.sendall(then)
            then = b""
    return received


def test_names_that_are_no_utf8_are_shown_escaped() -> None:
    names = ("caf\udce9", "a\u202eb", "\x9b31m")
    meta = DatasetMeta(target_kind="label", class_names=names, column_names=("x\udce9", "label"))
    source = SequenceDatasetIterator([list(range(6)), [0, 1, 2, 0, 1, 2]])

    with serving({"train\udce9": InformedDatasetIterator(source, meta)}, "t\udce9") as served:
        overview = served.get("/api/overview")
        samples = served.get("/api/samples", split=0, start=0)
        histograms = served.get("/api/histograms", split=0, columns=1)

    assert [overview.status, samples.status, histograms.status] == [200, 200, 200]
    label = overview.json["splits"][0]["columns"][1]
    assert label["class_names"] == ["caf\\udce9", "a\\u202eb", "\\x9b31m"]
    bars = histograms.json["columns"]["1"]["bars"]
    assert sorted(bar["label"] for bar in bars) == sorted(label["class_names"])


def test_ctrl_c_ends_at_once_while_a_sample_is_read() -> None:
    program = """
import signal, threading, time, urllib.request
from data_stack.browse.browser import Browser
from data_stack.browse.server import serve
from data_stack.dataset.iterator import DatasetIterator
class Slow(DatasetIterator):
    def __init__(self): pass
    def __len__(self): return 1000
    def __getitem__(self, index):
        if index >= 100:
            print("reads", flush=True)
            time.sleep(300)
        return {"a": index}
def ask(url):
    base, _, token = url.partition("/?token=")
    address = base + "/api/samples?split=0&start=100&count=2"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    try: urllib.request.urlopen(request, timeout=60).read()
    except OSError: pass
def announce(url):
    threading.Thread(target=ask, args=(url,), daemon=True).start()
serve(Browser("t", {"all": Slow()}), opens=False, announce=announce)
print("ended")
"""
    with start_python("-c", program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reads\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)

    assert (output, process.returncode) == ("ended\n", 0)
    assert "Traceback" not in errors


BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("given", ["", TOKEN[:-1], "\u00e9"])
def test_no_page_is_shown_without_the_token(pictures: Served, path: str, given: str) -> None:
    for headers in (
        {"Authorization": f"Bearer {given}"},
        {"Cookie": f"data_stack_1={TOKEN}; data_stack={given}"},
    ):
        assert (
            pictures.ask(
                path, {name: value.encode().decode("latin-1") for name, value in headers.items()}
            ).status
            == 403
        )


def test_the_token_in_the_url_sets_a_cookie(pictures: Served) -> None:
    link = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }  # on another page
    first = pictures.ask(f"/?token={TOKEN}", link)
    cookie, *attributes = first.headers["set-cookie"].split("; ")

    assert (first.status, b"app.js" in first.body, set(attributes)) == (
        200,
        True,
        {"HttpOnly", "SameSite=strict", "Path=/"},
    )
    assert pictures.ask("/api/overview", {"Cookie": f"theme=dark; {cookie}"}).status == 200
    assert pictures.ask("/?token=wrong", {}).headers.get("set-cookie") is None


@pytest.mark.parametrize(
    "host",
    ["evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example", "127.0.0.1:http", ""],
)
def test_a_name_that_resolves_to_this_machine_is_refused(pictures: Served, host: str) -> None:
    assert pictures.ask("/api/overview", {**BEARER, "Host": host}).status == 403


@pytest.mark.parametrize("host", ["localhost:8080", "LOCALHOST", "[::1]:9", "[::1]"])
def test_a_forwarded_port_is_let_through(pictures: Served, host: str) -> None:
    assert (
        pictures.ask("/api/overview", {**BEARER, "Host": host, "Origin": f"http://{host}"}).status
        == 200
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "document"},
    ],
)
def test_other_pages_are_refused(pictures: Served, headers: dict[str, str]) -> None:
    assert pictures.ask("/api/overview", {**BEARER, **headers}).status == 403


@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_nothing_but_reading_is_answered(pictures: Served, method: str) -> None:
    assert pictures.ask("/api/overview", BEARER, method).status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/../setup.py",
        "/static/../../table.py",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/app.js/..",
        "/etc/passwd",
    ],
)
def test_no_path_reaches_a_file(pictures: Served, path: str) -> None:
    answer = pictures.ask(path, BEARER)

    assert (answer.status, answer.body) == (404, b"Not Found")


def test_answers_forbid_what_pages_do_not_need(pictures: Served) -> None:
    for path in PATHS:
        headers = pictures.ask(path, BEARER).headers
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert (policy["default-src"], policy["script-src"], policy["frame-ancestors"]) == (
            "'none'",
            "'self'",
            "'none'",
        )
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == (
            "nosniff",
            "no-referrer",
        )
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"].split(",")[0] == (
            "private" if path.startswith("/picture") else "no-store"
        )
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


def test_the_page_embeds_no_script_and_loads_nothing_from_elsewhere(
    pictures: Served,
) -> None:
    answers = [pictures.ask(path, BEARER) for path in ("/", "/app.js", "/style.css")]
    page, script, style = (answer.body.decode() for answer in answers)

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert "<style" not in page
    assert "://" not in page + style
    assert "<script src=" in page
    assert page.count("<script") == 1
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert forbidden not in script


def test_a_connection_without_a_whole_request_in_time_is_closed() -> None:
    whole = f"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()

    post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    slow = whole.replace(b"overview", b"sample?split=1&position=0")

    def read_slowly(sample: Any) -> Any:
        threading.Event().wait(1.1)  # longer than a connection may be idle
        return sample

    longer = labelled(1).map(read_slowly)
    with (
        serving({"train": labelled(3), "longer": longer}, idle_seconds=1) as served,
        ThreadPoolExecutor(7) as threads,
    ):
        later = threads.submit(waits, served, whole, whole[:-1])
        empty = threads.submit(waits, served, b"")
        cut = threads.submit(waits, served, whole[:-1])
        one = threads.submit(waits, served, whole)
        two = threads.submit(waits, served, whole + whole + whole[:-1])
        posted = threads.submit(waits, served, post)
        slept = threads.submit(waits, served, slow)

    assert empty.result() == b""
    assert cut.result() == b""
    assert one.result().count(b"200 OK") == 1
    assert two.result().count(b"200 OK") == 2
    assert slept.result().count(b"200 OK") == 1
    assert later.result().count(b"200 OK") == 1
    assert posted.result().count(b"405 ") == 1


def test_one_connection_too_many_closes_the_longest_idle_one() -> None:
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serving({"train": labelled(3)}, idle_seconds=600))
        host, port = served.url.removeprefix("http://").split(":")
        idle = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            for _ in range(MAX_CONNECTIONS)
        ]

        assert served.get("/api/overview").status == 200

        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(1) == b""
        for other in idle[1:]:
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(1)
