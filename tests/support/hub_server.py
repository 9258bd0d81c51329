"""A server that answers as the Hugging Face Hub documents its API:
https://huggingface.co/docs/hub/api.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow.parquet as pq
from web_server import Answer, Seen, WebServer

_LFS_BYTES = 1000


@dataclass
class Repo:
    """A dataset: the files of each commit, and the commits that branches and tags name.

    Attributes:
        commits: of each commit its files by path.
        refs: commits by name of branch or tag.
        card: metadata of the README.
        error: what ``X-Error-Code`` and the status say instead of an answer.
        token: who has it may read.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)
    error: tuple[int, str] | None = None
    token: str | None = None

    def commit(self, files: Mapping[str, bytes], ref: str = "main") -> str:
        """Add a commit, and have a branch name it."""
        sha = hashlib.sha1(
            repr((ref, sorted(files.items()))).encode(), usedforsecurity=False
        ).hexdigest()
        self.commits[sha], self.refs[ref] = dict(files), sha
        return sha


class HubServer(WebServer):
    """The Hub on loopback; files of a thousand bytes and more are in its large file storage, at
    another path.

    Attributes:
        repos: by owner and name.
        requests: paths that were asked for, in order.
        sent: bytes of files that were sent.
        tokens: the headers ``Authorization`` by path, of the last request.
        faults: answers that come first, ``(status, headers, body)``, by beginnings of paths.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.requests: list[str] = []
        self.tokens: dict[str, str | None] = {}
        self.sent = 0
        self.faults: dict[str, list[tuple[int, dict[str, str], bytes]]] = {}
        super().__init__(host="127.0.0.1")
        self.url = self.origin

    def answer(self, seen: Seen) -> Answer:
        status, headers, body = self._answer(seen.path, seen.headers)
        announced = None if "Content-Length" in headers else -1
        return Answer(body, status=status, headers=headers, announced=announced, is_last=False)

    def _answer(self, target: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        path = unquote(parts.path)
        self.requests.append(path)
        self.tokens[path] = headers.get("authorization")
        for start, answers in self.faults.items():
            if path.startswith(start) and answers:
                return answers.pop(0)
        if path == "/api/datasets":
            word = parse_qs(parts.query)["search"][0]
            limit = int(parse_qs(parts.query)["limit"][0])
            found = [_listed(name, repo) for name, repo in self.repos.items() if word in name][
                :limit
            ]
            return 200, {}, json.dumps(found).encode()
        if match := re.fullmatch(r"/cdn/(.*)", path):
            files = [
                file
                for repo in self.repos.values()
                for each in repo.commits.values()
                for file in each.values()
            ]
            data = next(file for file in files if hashlib.sha256(file).hexdigest() == match[1])
            return self._part(data, '"of the content network"', headers)
        # Names of revisions are quoted: refs%2Fconvert%2Fparquet.
        match = re.fullmatch(
            r"/(api/)?datasets/([^/]+/[^/]+)/(revision|resolve|refs)(?:/([^/]+)(?:/(.*))?)?",
            parts.path,
        )
        repo = self.repos.get(match[2]) if match else None
        if (
            match is None
            or repo is None
            or (repo.token and self.tokens[path] != f"Bearer {repo.token}")
        ):
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if repo.error is not None:
            return repo.error[0], {"X-Error-Code": repo.error[1]}, b"{}"
        if match[3] == "refs":
            converts = [
                {"name": "parquet", "ref": name, "targetCommit": sha}
                for name, sha in repo.refs.items()
                if "convert" in name
            ]
            return 200, {}, json.dumps({"branches": [], "tags": [], "converts": converts}).encode()
        sha, file = repo.refs.get(unquote(match[4]), match[4]), unquote(match[5] or "")
        if sha not in repo.commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if match[3] == "revision":
            siblings = [_sibling(name, data) for name, data in repo.commits[sha].items()]
            return (
                200,
                {},
                json.dumps({**_listed(match[2], repo), "sha": sha, "siblings": siblings}).encode(),
            )
        if file not in repo.commits[sha]:
            return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
        data = repo.commits[sha][file]
        if len(data) < _LFS_BYTES:
            return self._part(data, f'"{_blob(data)}"', headers)
        digest = hashlib.sha256(data).hexdigest()
        return (
            302,
            {
                "Location": f"http://localhost:{self.port}/cdn/{digest}?Signature=hidden",
                "X-Linked-Etag": f'"{digest}"',
            },
            b"",
        )

    def _part(
        self, data: bytes, etag: str, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        start, stop = map(int, headers["range"].removeprefix("bytes=").split("-"))
        part = data[start : stop + 1]
        self.sent += len(part)
        return (
            206,
            {"ETag": etag, "Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}"},
            part,
        )


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _listed(name: str, repo: Repo) -> dict[str, Any]:
    return {
        "id": name,
        "cardData": repo.card or None,
        "description": f"About {name}.",
        "mainSize": 1234,
        "tags": [],
    }


def _sibling(name: str, data: bytes) -> dict[str, Any]:
    lfs = (
        {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        if len(data) >= _LFS_BYTES
        else None
    )
    return {
        "rfilename": name,
        "size": len(data),
        "blobId": _blob(data),
        **({"lfs": lfs} if lfs else {}),
    }


def parquet_of(
    rows: dict[str, Any], features: Any = None, row_group_size: int | None = None
) -> bytes:
    """A Parquet file of such rows, as ``datasets`` writes it."""
    import datasets  # takes a second

    file = io.BytesIO()
    table = datasets.Dataset.from_dict(rows, features).data.table
    pq.write_table(
        table, file, row_group_size=row_group_size, compression="none", use_dictionary=False
    )
    return file.getvalue()
