"""Reads files of a static web server by range."""

from __future__ import annotations

import os
import re
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

from data_stack.exception import ResourceNotFoundError, StorageError, StorageUnavailableError
from data_stack.io.retriever.transfer import redact, shorten

_TIMEOUT_SECONDS: Final = 30.0
_MOST_REDIRECTS: Final = 5
_RETRIED: Final = (429, 500, 502, 503, 504)
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class WebFiles:
    """The files below a URL. Threads may share it; it pickles as the URL, and a forked process makes its own connections.

    Args:
        url: of the folder. A user and password in it are sent to its own host only, and never shown.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._sessions: dict[int, Any] = {}

    def __repr__(self) -> str:
        return shorten(self.url)

    def __reduce__(self) -> tuple[Any, ...]:
        return WebFiles, (self.url,)

    def read(self, file: str, start: int, stop: int) -> bytes:
        """Bytes from ``start`` to ``stop`` of a file; fewer only at its end.

        Raises:
            ResourceNotFoundError: there is no such file.
            StorageUnavailableError: the server does not answer.
            StorageError: it does not serve ranges, or answers something else.
        """
        url = f"{self.url}/{quote(file)}"
        try:
            return self._read(url, file, start, stop)
        except OSError as error:  # those of requests are, too
            if isinstance(error, StorageError):
                raise
            raise StorageUnavailableError(f"could not read {shorten(url)}: {redact(str(error), self.url):.300}") from None

    def _read(self, url: str, file: str, start: int, stop: int) -> bytes:
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        for _ in range(_MOST_REDIRECTS):
            with self._session().get(
                url, headers=headers, timeout=_TIMEOUT_SECONDS, stream=True, allow_redirects=False
            ) as answer:
                if answer.is_redirect:
                    target = urljoin(url, answer.headers["Location"])
                    if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                        raise StorageError(f"{shorten(url)} redirects away from https; load it from another server")
                    url = target
                    continue
                if answer.status_code == 404:
                    raise ResourceNotFoundError(file, repr(self))
                if answer.status_code == 416:
                    return b""
                return self._body(url, answer, start, stop)
        raise StorageError(f"{shorten(url)} redirects more than {_MOST_REDIRECTS} times")

    def _body(self, url: str, answer: Any, start: int, stop: int) -> bytes:
        if answer.status_code == 200:
            raise StorageError(
                f"{shorten(url)} is served whole: its server knows no ranges. Serve it by one that does, such as nginx, or "
                f"copy the folder to this machine and load that"
            )
        told = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if answer.status_code != 206 or told is None or int(told[1]) != start or int(told[2]) >= stop:
            raise StorageError(f"{shorten(url)} answers {answer.status_code} instead of bytes {start} to {stop}")
        data: bytes = answer.raw.read(stop - start + 1, decode_content=False)
        if len(data) != int(told[2]) + 1 - start:
            raise StorageUnavailableError(f"{shorten(url)}: the connection was cut after {len(data):,} bytes")
        return data

    def _session(self) -> Any:
        process = os.getpid()
        if process not in self._sessions:
            import requests
            from requests.adapters import HTTPAdapter
            from urllib3.util import Retry

            session = requests.Session()
            retries = Retry(3, backoff_factor=0.3, status_forcelist=_RETRIED, redirect=False, raise_on_status=False)
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=retries))
            self._sessions[process] = session
        return self._sessions[process]
