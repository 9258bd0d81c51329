"""Ten thousand hostile identifiers: none leaves a store, is taken for another, is lost, or raises what is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_processes import FaultProcesses
from fault_size import Figures
from fault_stores import S3Stores
from hostile_identifiers import lay_out_canaries
from mongodb_server import MongoDBServer
from sizes import FULL, sized

TOKEN = "CANARY-8b2f"


@pytest.mark.parametrize("kind", ["file", "mongodb", *(["memory", "cached", "s3"] if FULL else [])])
def test_hostile_identifiers_are_refused_or_kept_apart(
    processes: FaultProcesses, request: pytest.FixtureRequest, tmp_path: Path, figures: Figures, kind: str
) -> None:
    lay_out_canaries(tmp_path, TOKEN.encode())
    url = f"file://{tmp_path}/in/store"
    if kind == "memory":
        url = "memory://"
    elif kind == "cached":
        (tmp_path / "in/local").mkdir()
        url += f"?cache={tmp_path}/in/local"
    elif kind == "mongodb":
        server: MongoDBServer = request.getfixturevalue("quick_mongodb")
        url = server.uri("hostile")
    elif kind == "s3":
        url = S3Stores(request.getfixturevalue("s3_server")).new()["url"]

    outcome = processes.run("fault_dataset:try_identifiers", url, str(tmp_path), TOKEN, sized(300, 10_000), timeout_seconds=900)

    assert outcome.error is None, outcome
    counts, bad = outcome.value
    figures.counts.update(counts)
    assert bad == []
    assert counts["refused"] > sized(150, 6_000)
    assert counts["accepted"] > 10
