"""The way out leads to checked addresses only."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from registry.webhooks.schedule import Answer
from registry.webhooks.targets import RefusedTarget, TargetRules
from tests.receiver import Receiver, rules_for, status
from tests.registry.webhooks.urls import all_urls
from tests.workers.egress_rig import Trap
from workers.egress import Egress, _guard


@pytest.fixture
def trap() -> Iterator[Trap]:
    made = Trap()
    yield made
    made.close()


def test_no_bad_url_reaches_the_trap(trap: Trap) -> None:
    """Row 49: http and the trap's port are allowed, so that only the address can be the reason."""
    egress = Egress(TargetRules(http=True, ports=frozenset({trap.port})))
    urls = [*all_urls(trap.port), f"http://{socket.gethostname()}:{trap.port}/"]
    try:
        answers = [egress.post(url, {}, b"{}") for url in urls]
    finally:
        egress.close()
    assert len(urls) >= 60
    assert {answer.code for answer in answers} == {None}
    assert {answer.reason for answer in answers} <= {
        *("url_malformed", "url_scheme", "url_userinfo", "url_port", "address_refused", "dns_failed")
    }
    with socket.create_connection(("127.0.0.1", trap.port), timeout=2):
        pass
    deadline = time.monotonic() + 2
    while trap.caught == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert trap.caught == 1  # the one above: the trap does catch


def test_the_one_look_up_decides(post: Callable[..., Answer], trap: Trap) -> None:
    """Row 50: a name that is good at the check and bad a moment later is asked for only once."""
    asked: list[str] = []

    def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    with Receiver() as receiver:
        answer = post(f"http://rebind.example:{receiver.port}/", receiver.rules, rebinding)
        assert (answer.code, answer.reason) == (None, "connect_failed")  # nobody listens there, and .1 was not tried
        assert asked == ["rebind.example"]
        assert receiver.received == []


def test_a_mixed_set_of_addresses_is_refused_whole(post: Callable[..., Answer], trap: Trap) -> None:
    rules = TargetRules(http=True, ports=frozenset({trap.port}))
    answer = post(f"http://mixed.example:{trap.port}/", rules, lambda host, port: ["8.8.8.8", "127.0.0.1"])
    assert answer.reason == "address_refused"
    assert trap.caught == 0


def test_a_check_that_passed_before_is_made_again_at_every_attempt(trap: Trap) -> None:
    with Receiver() as receiver:
        known = ["127.0.0.1"]
        egress = Egress(receiver.rules, resolve=lambda host, port: known)
        assert egress.post(f"http://moves.example:{receiver.port}/", {}, b"{}").code == 200
        known[0] = "10.0.0.1"
        assert egress.post(f"http://moves.example:{receiver.port}/", {}, b"{}").reason == "address_refused"
        egress.close()
        assert len(receiver.received) == 1


def test_the_receiver_sees_its_name_and_what_was_signed(post: Callable[..., Answer]) -> None:
    with Receiver() as receiver:
        url = f"http://hooks.example:{receiver.port}/a%2Fb?x=%20y&z"
        answer = post(url, receiver.rules, lambda host, port: ["127.0.0.1"], **{"webhook-id": "evt_1"})
        (received,) = receiver.received
    assert answer.code == 200
    assert received.path == "/a%2Fb?x=%20y&z"
    assert received.headers["host"] == f"hooks.example:{receiver.port}"
    assert (received.headers["webhook-id"], received.body) == ("evt_1", b"{}")
    assert "accept-encoding" not in received.headers
    assert "cookie" not in received.headers


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(post: Callable[..., Answer], trap: Trap, code: int) -> None:
    target = f"http://127.0.0.1:{trap.port}/"
    answers = status(code, Location=target, Refresh=f"0; url={target}", Alt_Svc=f'h2="127.0.0.1:{trap.port}"')
    with Receiver(answers) as receiver:
        answer = post(receiver.url, rules_for(receiver.port, trap.port))
    assert (answer.code, answer.accepted) == (code, False)
    assert trap.caught == 0


def test_proxies_of_the_environment_are_not_used(
    post: Callable[..., Answer], trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{trap.port}")
    with Receiver() as receiver:
        assert post(receiver.url, receiver.rules).code == 200
    assert trap.caught == 0


def test_no_socket_is_made_to_an_address_that_was_not_checked() -> None:
    """An address in the URL meets no resolver: this is the last fence."""
    make = _guard(["127.0.0.2"])
    with pytest.raises(RefusedTarget):
        make((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80)))
    make((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.2", 80))).close()
