"""Whereto a webhook may go: the form of its URL, and the table of addresses that are never contacted.

Used when a URL is accepted and again at every attempt. `ipaddress`'s own `is_private` and `is_global` are each wrong
for several ranges (NAT64, 6to4, carrier-grade NAT, ...), hence the table.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from typing import Final

import httpx2

from registry.errors import InvalidField
from registry.settings import Settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]

DNS_S: Final = 5.0
MAX_URL: Final = 2048
_HOST: Final = re.compile(r"[a-z0-9_.-]{1,253}|[0-9a-f:.]{2,45}")
_REFUSED: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10"),
        "ff00::/8",
    )
)
# C's resolver reads `127.1`, `0x7f.1` and `2130706433` as addresses; what ends in a number has to be a plain one.
_NUMBER: Final = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)\.?$")
_QUAD: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_AUTHORITY: Final = re.compile(r"[A-Za-z]+://([^/?#]+)")
_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""All that has been given out of IPv6: translated and mapped forms of other addresses lie outside."""
_lookups = ThreadPoolExecutor(max_workers=8, thread_name_prefix="webhook-dns")


_SENTENCES: Final = {
    "url_malformed": "This cannot be called: a URL has no spaces, backslashes or fragment; 2048 characters at most.",
    "url_scheme": "The URL's scheme has to be https.",
    "url_userinfo": "The URL must not contain a user name or password; the signature authenticates each delivery.",
    "url_port": "The URL's port is not one that webhooks may use: 443 or 8443.",
    "dns_timeout": "The URL's host was not found in time.",
    "address_refused": "The URL leads to an address that is not on the public internet.",
}


class RefusedTarget(InvalidField):
    """Not to be contacted. `reason` is a fixed code, for the delivery log; neither it nor the message has the URL."""

    def __init__(self, reason: str, *, param: str | None = None) -> None:
        super().__init__(_SENTENCES[reason], param=param)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that passed. `host` is ASCII: a name or an address without brackets. `path` has the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and, unless it is the scheme's own, port, as in the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"https": 443, "http": 80}[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What this installation's operator allows beyond https to public addresses."""

    http: bool = False
    ports: frozenset[int] = frozenset({443, 8443})
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> TargetRules:
        """The rules of these settings, whose texts were checked at start."""
        own = {443, 8443} | ({80} if settings.webhook_allow_http else set())
        networks = tuple(ipaddress.ip_network(network) for network in settings.webhook_networks)
        return cls(settings.webhook_allow_http, frozenset(own | set(settings.webhook_extra_ports)), networks)

    def parse(self, url: str) -> Target:
        """The parts of a URL. Raises RefusedTarget for a form that is not taken; nothing is looked up."""
        # Parsers strip control characters and read backslashes differently: such a URL means two things.
        if len(url) > MAX_URL or any(char <= " " or char in "\x7f\\" for char in url):
            raise RefusedTarget("url_malformed")
        try:
            parsed = httpx2.URL(url)
            host, port = parsed.raw_host.decode("ascii"), parsed.port
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise RefusedTarget("url_malformed") from None
        if parsed.scheme != "https" and not (parsed.scheme == "http" and self.http):
            raise RefusedTarget("url_scheme")
        authority = _AUTHORITY.match(url)
        if parsed.userinfo or authority is None or "@" in authority[1]:
            raise RefusedTarget("url_userinfo")
        if parsed.fragment or "#" in url or not _HOST.fullmatch(host) or ".." in host or host.startswith("."):
            raise RefusedTarget("url_malformed")
        if _NUMBER.search(host) and not _QUAD.fullmatch(host):
            raise RefusedTarget("url_malformed")
        port = port if port is not None else {"https": 443, "http": 80}[parsed.scheme]
        if port not in self.ports:
            raise RefusedTarget("url_port")
        return Target(parsed.scheme, host, port, parsed.raw_path.decode("ascii"))

    def check_addresses(self, addresses: Sequence[str]) -> None:
        """Raise RefusedTarget unless every one of them may be contacted: a mixed set is refused whole."""
        if not addresses or not all(self._allows(address) for address in addresses):
            raise RefusedTarget("address_refused")

    def _allows(self, text: str) -> bool:
        try:
            address: Address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        if any(address in network for network in self.networks):
            return True
        if not address.is_global or address.is_multicast or any(address in network for network in _REFUSED):
            return False
        if address.version == 6 and address not in _UNICAST:
            return False
        return not _is_ours(address)


def check_at_intake(rules: TargetRules, url: str, *, param: str, resolve: Resolve | None = None) -> None:
    """Refuse what would never be contacted. A name that does not resolve yet is accepted: every attempt looks again.

    Raises RefusedTarget.
    """
    try:
        target = rules.parse(url)
        addresses = _lookups.submit(resolve or look_up, target.host, target.port).result(DNS_S)
        rules.check_addresses(addresses)
    except RefusedTarget as refused:
        raise RefusedTarget(refused.reason, param=param) from None
    except (OSError, Late, UnicodeError):
        return


def look_up(host: str, port: int) -> Sequence[str]:
    """Every address that the system's resolver has, in its order; numbers in any of C's spellings count as names."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _is_ours(address: Address) -> bool:
    """Whether the address is one of this machine's: the kernel would leave from it. No packet is sent."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return str(probe.getsockname()[0]) == str(address)
    except OSError:
        return False
