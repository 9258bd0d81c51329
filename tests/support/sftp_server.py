"""A real SFTP server on loopback for tests: paramiko's, in a process of its own, over a folder."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import paramiko
from process_harness import ServerProcess

USER = "test-user"
PASSWORD = "test-password-canary/%"  # of a server that lives as long as a test


class SFTPServer(ServerProcess):
    """A server of the files below ``folder``, as absolute paths.

    Attributes:
        folder: what it serves.
        port: on 127.0.0.1.
        known_hosts: a file with its host key, in ``folder``'s parent.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(__file__, str(folder))
        self.folder, self.port = folder, int(self.said[0])
        self.known_hosts = folder.parent / f"known_hosts_{self.port}"
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {' '.join(self.said[1:])}\n")

    def options(self) -> dict[str, Any]:
        """What FsspecStorageConnector takes besides ``sftp://127.0.0.1/folder``."""
        return {
            "port": self.port,
            "username": USER,
            "password": PASSWORD,
            "known_hosts": self.known_hosts,
            "look_for_keys": False,
            "allow_agent": False,
        }


class _Login(paramiko.ServerInterface):  # type: ignore[misc]  # paramiko has no types
    def check_auth_password(self, username: str, password: str) -> int:
        return int(
            paramiko.AUTH_SUCCESSFUL
            if (username, password) == (USER, PASSWORD)
            else paramiko.AUTH_FAILED
        )

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return int(paramiko.OPEN_SUCCEEDED)


class _Handle(paramiko.SFTPHandle):  # type: ignore[misc]  # likewise
    def stat(self) -> Any:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))


class _Folder(paramiko.SFTPServerInterface):  # type: ignore[misc]  # likewise
    root = Path("/")

    def _real(self, path: str) -> str:
        return str(self.root / self.canonicalize(path).lstrip("/"))

    def list_folder(self, path: str) -> Any:
        def scan(folder: str) -> Any:
            with os.scandir(folder) as entries:
                return [
                    paramiko.SFTPAttributes.from_stat(entry.stat(follow_symlinks=False), entry.name)
                    for entry in entries
                ]

        return self._try(scan, path)

    def stat(self, path: str) -> Any:
        return self._try(lambda real: paramiko.SFTPAttributes.from_stat(os.stat(real)), path)

    def lstat(self, path: str) -> Any:
        return self._try(lambda real: paramiko.SFTPAttributes.from_stat(os.lstat(real)), path)

    def open(self, path: str, flags: int, attr: Any) -> Any:
        def open_file(real: str) -> Any:
            handle = _Handle(flags)
            file = os.fdopen(
                os.open(real, flags, 0o644),
                "wb" if flags & (os.O_WRONLY | os.O_RDWR) else "rb",
                buffering=0,
            )
            handle.readfile = handle.writefile = file
            return handle

        return self._try(open_file, path)

    def remove(self, path: str) -> Any:
        return self._try(os.remove, path)

    def rename(self, oldpath: str, newpath: str) -> Any:
        if os.path.lexists(self._real(newpath)):  # as in version 3 of the protocol
            return paramiko.SFTP_FAILURE
        return self._try(os.rename, oldpath, newpath)

    def posix_rename(self, oldpath: str, newpath: str) -> Any:
        return self._try(os.replace, oldpath, newpath)

    def mkdir(self, path: str, attr: Any) -> Any:
        return self._try(os.mkdir, path)

    def rmdir(self, path: str) -> Any:
        return self._try(os.rmdir, path)

    def _try(self, work: Any, *paths: str) -> Any:
        try:
            found = work(*(self._real(path) for path in paths))
        except OSError as error:
            return int(paramiko.SFTPServer.convert_errno(error.errno or 0))
        return paramiko.SFTP_OK if found is None else found


def _serve(client: socket.socket, key: paramiko.PKey) -> None:
    transport = paramiko.Transport(client)
    transport.add_server_key(key)
    transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Folder)
    with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
        transport.start_server(server=_Login())


def _main(folder: str) -> None:
    _Folder.root = Path(folder)
    key = paramiko.ECDSAKey.generate()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_serve, args=(client, key), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(listener.getsockname()[1], key.get_name(), key.get_base64(), flush=True)
    sys.stdin.read()  # until our parent closes it, or is gone
    os._exit(0)


if __name__ == "__main__":
    import logging

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    _main(sys.argv[1])
