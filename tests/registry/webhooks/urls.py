"""URLs that must never be contacted, each with its trick. `{port}` is the trap's, `~` the scheme with its slashes."""

from __future__ import annotations

SCHEME = "http" + "://"
NAMES = ("localhost", "localhost.", "LOCALHOST", "ip6-localhost", "LocalHost")
NUMBERS = (
    *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0x7f.0.0.1", "017700000001", "0"),
    *("0.0.0.0", "127.255.255.254", "127.0.0.1.", "3232235521", "0xc0a80001", "1", "0x0", "00"),  # noqa: S104
)
V6 = (
    *(
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "0:0:0:0:0:ffff:127.0.0.1",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
    ),
    *("64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::1", "fe80::1", "fc00::1", "fd00::1"),
    *("fec0::1", "ff02::1", "2001:db8::1", "100::1", "3fff::1", "5f00::1", "0000:0000:0000:0000:0000:0000:0000:0001"),
)
PRIVATE = (
    *("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254", "100.64.0.1"),
    *("192.0.0.1", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1"),
    "255.255.255.255",
)
TRICKS = (
    *("~127。0。0。1:{port}/", "~good.example@127.0.0.1:{port}/", "~a:b@127.0.0.1:{port}/"),
    *("~127.0.0.1:{port}#@good.example/", "~127.0.0.1:{port}\\@good.example/", "~@127.0.0.1:{port}/"),
    *(
        "~127.0.0.1:{port}/\r\nHost: x",
        "ht\ntp://127.0.0.1:{port}/",
        "~127.0.0.1\t:{port}/",
        "\x00~x/",
    ),
    *(
        " ~127.0.0.1:{port}/",
        "~127.0.0.1:{port}/\x7f",
        "~①②⑦.0.0.1:{port}/",
        "~0177.0.0.1:{port}/",
    ),
    *("~%31%32%37.0.0.1:{port}/", "http:127.0.0.1:{port}/", "~/127.0.0.1:{port}/", "//127.0.0.1:{port}/"),
    *("gopher://127.0.0.1:{port}/", "file:///etc/passwd", "ftp://127.0.0.1:{port}/", "javascript:alert(1)", "data:,x"),
    *(
        "~[fe80::1%25lo]:{port}/",
        "~[::1%25lo]:{port}/",
        "~[::1]:{port}:80/",
        "~[127.0.0.1]:{port}/",
    ),
    *(
        "~..:{port}/",
        "~.:{port}/",
        "~:{port}/",
        "~a..b:{port}/",
        "~127.0.0.1:{port}@x/",
        "",
    ),
    *(
        "~127.0.0.1:+{port}/",
        "~127.0.0.1:{port} /",
        "HTTP:{slashes}127.0.0.1:{port}/",
        "~1２7.0.0.1:{port}/",
    ),
)


def all_urls(port: int) -> list[str]:
    """Every one of them."""
    hosts = (*NAMES, *NUMBERS, *PRIVATE, *(f"[{address}]" for address in V6))
    return [f"{SCHEME}{host}:{port}/hook" for host in hosts] + [
        trick.replace("{port}", str(port)).replace("~", SCHEME).replace("{slashes}", "//") for trick in TRICKS
    ]
