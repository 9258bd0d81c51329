"""fsspec's file system for SFTP servers, with checked host keys and pipelined requests.

fsspec's own class trusts any host key, and waits for each 32 KiB before it requests the next.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
from typing import Any
from urllib.parse import unquote

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

from data_stack.exception import ConfigError, StorageError

# Our errors say the same. Without a handler, Python would print a traceback for each lost
# connection.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class VerifiedSFTPFileSystem(SFTPFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files of an SFTP server whose host key is known.

    Durability is up to the server: SFTP version 3 has no request for syncing.

    Args:
        host: the name or address of the server.
        timeout_seconds: the limit of connecting, login included, and of each request.
        known_hosts: a file of host keys, in the format of OpenSSH, besides the user's and the
            system's.
        **ssh_kwargs: arguments of ``paramiko.SSHClient.connect``.

    Attributes:
        client: the connection.
        ftp: the channel for files.
    """

    client: paramiko.SSHClient
    ftp: paramiko.SFTPClient
    _timeout_seconds: float
    _known_hosts: str | os.PathLike[str] | None

    def __init__(
        self,
        host: str,
        timeout_seconds: float,
        known_hosts: str | os.PathLike[str] | None = None,
        **ssh_kwargs: Any,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._known_hosts = known_hosts
        limits = {
            "timeout": timeout_seconds,
            "banner_timeout": timeout_seconds,
            "channel_timeout": timeout_seconds,
            # Longer than the others: a timeout of the login would look like a refusal.
            "auth_timeout": 2 * timeout_seconds,
        }
        super().__init__(host, **{**limits, **ssh_kwargs})

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, Any]:
        options: dict[str, Any] = SFTPFileSystem._get_kwargs_from_urls(url)
        for name in ("username", "password"):
            if name in options:
                options[name] = unquote(options[name])
        return options

    @property
    def is_connected(self) -> bool:
        """Whether the connection still holds."""
        transport = self.client.get_transport()
        return transport is not None and bool(transport.is_active())

    def disconnect(self) -> None:
        """Close the connection, and end its thread."""
        self.client.close()

    def _connect(self) -> None:
        self.client = paramiko.SSHClient()
        self._load_host_keys()
        self.client.set_missing_host_key_policy(_Refusal())
        # paramiko has steps without a time limit, such as asking for the subsystem.
        watch = threading.Timer(self._timeout_seconds, self.client.close)
        watch.daemon = True
        watch.start()
        try:
            self.client.connect(self.host, **self.ssh_kwargs)
            self._send_without_delay()
            self.ftp = self.client.open_sftp()
            self.ftp.get_channel().settimeout(self._timeout_seconds)
        except BaseException:
            # An interruption too must not leave the thread of the client behind.
            self.client.close()
            raise
        finally:
            watch.cancel()

    def _load_host_keys(self) -> None:
        """Load the known host keys of the system and the user, and those of ``known_hosts``.

        Raises:
            ConfigError: the file ``known_hosts`` cannot be read.
        """
        for path in ("/etc/ssh/ssh_known_hosts", os.path.expanduser("~/.ssh/known_hosts")):
            with contextlib.suppress(OSError):
                self.client.load_system_host_keys(path)
        if self._known_hosts is None:
            return
        try:
            self.client.load_system_host_keys(os.fspath(self._known_hosts))
        except OSError as error:
            raise ConfigError(f"the file of known hosts cannot be read: {error.strerror}") from None

    def _send_without_delay(self) -> None:
        """Switch Nagle's algorithm off.

        With it, a request sent before the last answer would wait 40 ms for its acknowledgement.
        """
        # The transport may be a command instead of a socket.
        with contextlib.suppress(OSError, AttributeError):
            transport = self.client.get_transport()
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def info(self, path: str) -> dict[str, Any]:
        path = self._strip_protocol(path)
        # Of a link, the link itself is described.
        description = self._decode_stat(self.ftp.lstat(path))
        return {**description, "name": path}

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        with self.ftp.open(self._strip_protocol(path), "rb") as file:
            size = file.stat().st_size or 0
            start = start or 0
            stop = size if end is None else min(end, size)
            if start >= stop:
                return b""
            # readv() requests all pieces before the first one arrives.
            pieces = list(file.readv([(start, stop - start)]))
            return b"".join(pieces)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.set_pipelined(True)
            file.write(value[:-1])
            # The last write waits for the answers to all writes; closing would ignore their errors.
            file.set_pipelined(False)
            file.write(value[-1:])

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any
    ) -> Any:
        try:
            return super()._open(path, mode.replace("x", "wx"), block_size, **kwargs)
        except OSError:
            # Servers report an existing file as a general failure.
            if "x" in mode and self.exists(path):
                raise FileExistsError(errno.EEXIST, "the file exists", path) from None
            raise


class _Refusal(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko has no types
    """Refuses a server with an unknown host key."""

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        raise StorageError(
            f"the host key of the SFTP server {hostname} is not known "
            f"({key.get_name()} {key.fingerprint}); no login was sent. "
            "If its operator confirms this key, add it: "
            "`ssh-keyscan -p PORT HOST >> ~/.ssh/known_hosts`, "
            "or name a file that holds it (known_hosts=…)."
        )
