"""Tars of a web server: what an epoch moves, and answers that are cut short or of another version."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from archives import tar_of
from web_server import Answer, Seen, WebServer

from data_stack.exception import ResourceChangedError
from data_stack.formats.webdataset import WebDatasetIterator
from data_stack.loader import BlockShuffled, Loader

N_SAMPLES = 80
PICTURE_BYTES = 50_000


def tar_of_samples(n_samples: int) -> bytes:
    files: dict[str, bytes] = {}
    for number in range(n_samples):
        files[f"{number:04}.bin"] = number.to_bytes(2, "little") * (PICTURE_BYTES // 2)
        files[f"{number:04}.cls"] = str(number).encode()
    return tar_of(files, "w")


class TarServer(WebServer):
    """Serves ranges of one tar, and counts what it sends.

    Attributes:
        tar: the tar.
        n_bytes: the bytes of all answers.
        n_requests: the number of requests so far.
        cut_request: the number of the request whose answer is cut short; 0 for none.
        first_changed_request: from this request on, the tar is another one; 0 for never.
    """

    def __init__(self, tar: bytes) -> None:
        self.tar = tar
        self.n_bytes = 0
        self.n_requests = 0
        self.cut_request = 0
        self.first_changed_request = 0
        super().__init__()

    def answer(self, seen: Seen) -> Answer:
        self.n_requests += 1
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", seen.headers["range"])
        assert match is not None
        start = int(match[1])
        stop = min(int(match[2]) + 1, len(self.tar))
        self.n_bytes += stop - start

        tag = '"first"'
        if self.first_changed_request and self.n_requests >= self.first_changed_request:
            tag = '"second"'
        if self.n_requests == self.cut_request:
            return Answer(self.tar, ranges=True, headers={"ETag": tag}, cut_at=(stop - start) // 2)
        return Answer(self.tar, ranges=True, headers={"ETag": tag}, is_last=False)


@pytest.fixture
def server() -> Iterator[TarServer]:
    with TarServer(tar_of_samples(N_SAMPLES)) as server:
        yield server


def test_headers_and_an_epoch_move_each_byte_once(server: TarServer) -> None:
    samples = WebDatasetIterator(f"{server.origin}/a.tar")

    labels: list[int] = []
    for batch in Loader(samples, 16, shuffle=BlockShuffled(window=4), workers=2):
        labels.extend(batch["cls"].tolist())

    assert sorted(labels) == list(range(N_SAMPLES))
    assert server.n_bytes <= 1.05 * len(server.tar)


def test_an_answer_that_is_cut_short_is_requested_again(server: TarServer) -> None:
    server.cut_request = 4

    samples = WebDatasetIterator(f"{server.origin}/a.tar")

    assert len(samples) == N_SAMPLES
    assert samples[79]["bin"] == (79).to_bytes(2, "little") * (PICTURE_BYTES // 2)
    assert server.n_requests > 4


@pytest.mark.parametrize("first_changed_request", [3, 4, 5])
def test_a_tar_that_changes_between_its_headers_is_refused(
    server: TarServer, first_changed_request: int
) -> None:
    server.first_changed_request = first_changed_request

    with pytest.raises(ResourceChangedError, match=r"a\.tar"):
        len(WebDatasetIterator(f"{server.origin}/a.tar"))


def test_a_tar_that_changes_later_is_read_as_it_was(server: TarServer) -> None:
    samples = WebDatasetIterator(f"{server.origin}/a.tar")
    assert len(samples) == N_SAMPLES

    server.first_changed_request = 1

    assert [samples[number]["cls"] for number in range(N_SAMPLES)] == list(range(N_SAMPLES))


def test_a_tar_that_changes_later_is_refused_unless_kept(server: TarServer) -> None:
    samples = WebDatasetIterator(f"{server.origin}/a.tar", max_kept_bytes=0)
    assert len(samples) == N_SAMPLES
    server.first_changed_request = 1

    with pytest.raises(ResourceChangedError, match=r"a\.tar"):
        samples[0]
