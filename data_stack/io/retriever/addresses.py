"""How far away an address on the network is: a server may send us on to none that is nearer than itself."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import Final

__all__ = ["LINK_LOCAL", "LOOPBACK", "PRIVATE", "PUBLIC", "address_scope", "host_scope"]

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
LINK_LOCAL, LOOPBACK, PRIVATE, PUBLIC = range(4)


def address_scope(address: str) -> int:
    """How far away an address is: link-local and other oddities, this machine, a private network, the world."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        teredo = ip.teredo
        if ip.ipv4_mapped or ip.sixtofour or teredo:
            ip = ip.ipv4_mapped or ip.sixtofour or (teredo or (ip, ip))[1]
        elif ip in _NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip.is_loopback:
        return LOOPBACK
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return LINK_LOCAL
    return PUBLIC if ip.is_global else PRIVATE


def host_scope(host: str) -> int:
    """The same for a host as a URL names it; a name is taken for the world, except for those of this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return LOOPBACK
    with contextlib.suppress(ValueError):
        return address_scope(host)
    with contextlib.suppress(OSError):  # 2130706433 and 0x7f.1 are addresses too
        return address_scope(socket.inet_ntoa(socket.inet_aton(host)))
    return PUBLIC
