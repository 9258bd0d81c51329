"""Commands on a MongoDB with users."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymongo
from command_runs import Run


def test_the_doctor_finds_a_store_of_a_reader_usable(command: Run, mongodb_auth_uri: str) -> None:
    parts = urlsplit(mongodb_auth_uri)
    database = parts.path.strip("/")
    address = parts.netloc.rpartition("@")[2]
    with pymongo.MongoClient[Any](mongodb_auth_uri) as client:
        roles = [{"role": "read", "db": database}]
        client[database].command("createUser", "reader", pwd="canary", roles=roles)

    outcome = command(
        "--json", "--storage", f"mongodb://reader:canary@{address}/{database}", "doctor"
    )

    store = outcome.json["store"]
    assert (store["usable"], store["writable"]) == (True, False)
    assert "lacks the right" in store["not_writable"]
    assert "canary" not in outcome.out


def test_all_commands_work_on_mongodb(
    command: Run, filled_store: Path, tmp_path: Path, mongodb_auth_uri: str
) -> None:
    password: Any = re.search(r"://[^:]+:([^@]+)@", mongodb_auth_uri)
    storage = ("--storage", mongodb_auth_uri)

    outcomes = {
        "copy": command("copy", str(filled_store), mongodb_auth_uri, "--debug"),
        "list": command("list", *storage),
        "info": command("info", "digits", *storage),
        "prepare": command("prepare", "digits", *storage),
        "verify": command("verify", *storage),
        "du": command("du", *storage),
        "gc": command("gc", "--grace-hours", "0", *storage),
        "doctor": command("doctor", *storage),
        "copy back": command("copy", mongodb_auth_uri, str(tmp_path / "back")),
        "verify back": command("verify", "--storage", str(tmp_path / "back")),
    }

    for name, outcome in outcomes.items():
        assert outcome.code == 0, name
        assert password[1] not in outcome.out + outcome.err
    assert "digits was ready" in outcomes["prepare"].out
