"""Over TLS the connection goes to the checked address, and the certificate is for the name."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from registry.webhooks.schedule import Answer
from tests.receiver import rules_for
from workers.egress import Egress


def test_a_certificate_that_nobody_vouches_for_is_refused(post: Callable[..., Answer], tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            try:
                context.wrap_socket(connection, server_side=True)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    answer = post(f"https://hooks.example:{port}/", rules_for(port), lambda host, port: ["127.0.0.1"])
    assert (answer.code, answer.reason) == (None, "tls_failed")


def test_over_tls_the_name_is_checked_though_the_address_is_connected_to(tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    names: list[str | None] = []
    server.sni_callback = lambda connection, name, context: names.append(name)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            try:
                with server.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(65536)
                    secure.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            except OSError:
                continue

    threading.Thread(target=serve, daemon=True).start()
    trusting = ssl.create_default_context(cafile=certificate)
    egress = Egress(rules_for(port), resolve=lambda host, port: ["127.0.0.1"], tls=trusting)
    try:
        assert egress.post(f"https://hooks.example:{port}/", {}, b"{}").code == 204
        assert egress.post(f"https://other.example:{port}/", {}, b"{}").reason == "tls_failed"
    finally:
        egress.close()
        listener.close()
    assert names == ["hooks.example", "other.example"]


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A key and a certificate for hooks.example."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hooks.example")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("hooks.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    key_file, certificate_file = folder / "key.pem", folder / "certificate.pem"
    pem = serialization.Encoding.PEM
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    certificate_file.write_bytes(certificate.public_bytes(pem))
    return key_file, certificate_file
