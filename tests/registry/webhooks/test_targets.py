"""Whereto a webhook may go."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from registry.errors import InvalidField
from registry.settings import Settings
from registry.webhooks import targets
from registry.webhooks.targets import RefusedTarget, TargetRules, check_at_intake
from tests.registry.webhooks.urls import NUMBERS, PRIVATE, V6, all_urls

URLS = all_urls(443)
PUBLIC = TargetRules()


def test_there_are_enough_forms() -> None:
    assert len(set(URLS)) >= 60


@pytest.mark.parametrize("url", URLS, ids=ascii)
def test_every_bad_form_is_refused_when_it_is_registered(url: str) -> None:
    lenient = TargetRules(http=True, ports=frozenset({443}))
    with pytest.raises(InvalidField) as caught:
        check_at_intake(lenient, url, param="url", resolve=resolve_strictly)
    assert caught.value.param == "url"
    assert not url or url not in caught.value.message


def resolve_strictly(host: str, port: int) -> Sequence[str]:
    """The system's resolver; a name that it does not know fails the test instead of passing the check."""
    try:
        return targets.look_up(host, port)
    except OSError:
        return ["127.0.0.1"] if "localhost" in host.lower() else pytest.fail(f"{host} was looked up")


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example/x?job=1&b=%20",
        "https://hooks.example:8443/",
        "https://hooks.example",
        "https://exämple.example/ü",
        "https:" + "//8.8.8.8/x",
        "https://[2606:4700::1111]/x",
    ],
)
def test_plain_public_urls_pass(url: str) -> None:
    check_at_intake(PUBLIC, url, param="url", resolve=lambda host, port: ["8.8.8.8"])


def test_the_parts_are_what_will_be_called() -> None:
    target = PUBLIC.parse("https://EXÄMPLE.example:8443/a%2Fb?x=ü")
    assert (target.host, target.port, target.path) == ("xn--exmple-cua.example", 8443, "/a%2Fb?x=%C3%BC")
    assert target.authority == "xn--exmple-cua.example:8443"
    assert PUBLIC.parse("https://[2606:4700::1]/").authority == "[2606:4700::1]"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://hooks.example/", "url_scheme"),
        ("https://hooks.example:22/", "url_port"),
        ("https://hooks.example:0/", "url_port"),
        ("https://u:p@hooks.example/", "url_userinfo"),
        ("https://hooks.example/#x", "url_malformed"),
        ("https://hooks.example/" + "x" * 2048, "url_malformed"),
        ("https://hooks.example/\ud800", "url_malformed"),
        ("https://\ud800.example/", "url_malformed"),
        ("https://hooks.example:99999999999999999999/", "url_port"),
        ("https://" + "a" * 254 + "/", "url_malformed"),
    ],
)
def test_a_refusal_has_its_reason(url: str, reason: str) -> None:
    with pytest.raises(RefusedTarget) as caught:
        PUBLIC.parse(url)
    assert caught.value.reason == reason


@pytest.mark.parametrize("address", [*PRIVATE, *V6, *(n for n in NUMBERS if n.count(".") == 3 and not n.endswith("."))])
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    with pytest.raises(RefusedTarget):
        PUBLIC.check_addresses([address])


@pytest.mark.parametrize("good", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_one_bad_address_refuses_the_whole_set(good: str) -> None:
    PUBLIC.check_addresses([good])
    for bad in ("127.0.0.1", "fe80::1%eth0", "nonsense"):
        with pytest.raises(RefusedTarget):
            PUBLIC.check_addresses([good, bad])
    with pytest.raises(RefusedTarget):
        PUBLIC.check_addresses([])


def test_this_machines_own_public_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ours:
        def __enter__(self) -> Ours:
            return self

        def __exit__(self, *_: object) -> None: ...
        def connect(self, address: tuple[str, int]) -> None: ...
        def getsockname(self) -> tuple[str, int]:
            return ("8.8.8.8", 1)

    monkeypatch.setattr(socket, "socket", lambda *_: Ours())
    PUBLIC.check_addresses(["1.1.1.1"])
    with pytest.raises(RefusedTarget):
        PUBLIC.check_addresses(["8.8.8.8"])


def test_an_operators_networks_and_ports_open_and_nothing_beside_them() -> None:
    rules = TargetRules.of(
        Settings(webhook_allow_networks="10.1.0.0/16, fd00::/8", webhook_ports="9000", webhook_allow_http=True)
    )
    inner = "10.1.2.3"
    rules.check_addresses([inner, "fd00::5"])
    assert rules.parse(f"http://{inner}:9000/").port == 9000
    assert rules.parse(f"http://{inner}/").port == 80
    for address in ("10.2.0.1", "127.0.0.1"):
        with pytest.raises(RefusedTarget):
            rules.check_addresses([address])


@pytest.mark.parametrize("value", [{"webhook_allow_networks": "10.0.0.0/40"}, {"webhook_ports": "80;90"}])
def test_settings_that_make_no_sense_stop_the_process(value: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Settings(**value)  # type: ignore[arg-type]


def test_a_name_that_does_not_resolve_yet_is_accepted() -> None:
    def nobody(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    check_at_intake(PUBLIC, "https://soon.example/", param="url", resolve=nobody)


def test_a_resolver_that_hangs_holds_a_registration_for_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(targets, "DNS_S", 0.2)
    begun = time.monotonic()
    check_at_intake(
        PUBLIC, "https://slow.example/", param="url", resolve=lambda host, port: [str(release.wait(10))] and ["8.8.8.8"]
    )
    release.set()
    assert time.monotonic() - begun < 2


def test_the_table_covers_what_the_standard_library_calls_private() -> None:
    for network in ("10.0.0.0/8", "fc00::/7", "127.0.0.0/8", "169.254.0.0/16", "fe80::/10"):
        first = ipaddress.ip_network(network)[1]
        with pytest.raises(RefusedTarget):
            PUBLIC.check_addresses([str(first)])
