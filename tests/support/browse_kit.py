"""Browsers served by a real uvicorn on this machine, asked by http.client."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import layer_laws
import numpy as np

from data_stack import SequenceDatasetIterator
from data_stack.browse.browser import Browser
from data_stack.browse.server import Server
from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIterator
from data_stack.dataset.meta import DatasetMeta

TOKEN = "a-token-of-the-tests"


@dataclass
class Answer:
    """What the server answered."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Served:
    """A served browser.

    Attributes:
        url: without a token, and without a slash at its end.
    """

    url: str

    def ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> Answer:
        """Ask with just these headers, ``Host`` if it is not among them, and this path, byte for
        byte.
        """
        host = self.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": host} | dict(headers)).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        found = Answer(
            answer.status,
            answer.read(),
            {name.lower(): value for name, value in answer.getheaders()},
        )
        connection.close()
        return found

    def get(self, path: str, **parameters: Any) -> Answer:
        """Ask with the token in a header."""
        return self.ask(
            f"{path}?{urllib.parse.urlencode(parameters)}", {"Authorization": f"Bearer {TOKEN}"}
        )

    def samples(self, *where: Any, split: int = 0, start: int = 0, count: int = 60) -> Any:
        """The samples that fulfil all conditions."""
        return self.get(
            "/api/samples", split=split, where=json.dumps(where), start=start, count=count
        ).json

    def positions(self, *where: Any, split: int = 0) -> list[int]:
        """Where the samples are that fulfil all conditions."""
        return [sample["position"] for sample in self.samples(*where, split=split)["samples"]]


Serve = Callable[..., Served]


@contextlib.contextmanager
def serving(
    splits: Mapping[str, DatasetIteratorIF], title: str = "test", idle_seconds: int = 5
) -> Iterator[Served]:
    """Serve until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(Browser(title, splits), TOKEN, idle_seconds)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join()


CLASSES = ("cat", "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>')


def labelled(n_samples: int) -> DatasetIteratorIF:
    """Pictures of 12 × 10 pixels in three classes."""
    images = [np.full((12, 10), number % 200, dtype=np.uint8) for number in range(n_samples)]
    labels = [number % 3 for number in range(n_samples)]
    tags = [f"tag {number}" for number in range(n_samples)]
    meta = DatasetMeta(
        dataset_name="labelled",
        target_kind="label",
        class_names=CLASSES,
        column_names=("image", "label", "tag"),
    )
    return InformedDatasetIterator(SequenceDatasetIterator([images, labels, tags]), meta)


class Samples(layer_laws.Samples):
    """Samples as they are given; an exception is raised."""

    def __init__(self, *samples: Any) -> None:
        super().__init__(samples)

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        if isinstance(sample, Exception):
            raise sample
        return sample
