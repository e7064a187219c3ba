"""What is to be said of the address of a Ray cluster before anything goes there.

What belongs here: whether it is reachable by strangers. What does not: Ray (ray_pool.py).
"""

from __future__ import annotations

import ipaddress
import socket


def warning_of(address: str) -> str | None:
    """What is wrong with an address (host:port) that is neither loopback nor private; None where it is either.

    A host name is looked up; one that is not known says nothing.
    """
    host = address.rpartition(":")[0].strip("[]")
    if not (public := [ip for ip in _ips_of(host) if not (ip.is_loopback or ip.is_private)]):
        return None
    return (
        f"WARNING: the Ray cluster at {address} has the public address {public[0]}: anyone who reaches its ports can "
        "run any code on its machines. Keep it in a private network, and set RAY_AUTH_MODE=token (docs/ray.md)"
    )


def _ips_of(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return []
    return [ipaddress.ip_address(str(place[0]).partition("%")[0]) for *_, place in found]
