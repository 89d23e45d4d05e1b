"""Reverse proxies as `deploy/` sets them up, on free ports and with certificates for the moment."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest

from tests.live.service.running import free_port

DEPLOY = Path(__file__).parents[3] / "deploy"
NAME = "bandits.example.com"


def certificate(folder: Path) -> Path:
    """Make a certificate and its key in a folder, for the name that the files have."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    known_as = [x509.DNSName(NAME), x509.IPAddress(ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(known_as), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "fullchain.pem").write_bytes(made.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "privkey.pem").write_bytes(private)
    return folder / "fullchain.pem"


def program(name: str) -> str:
    """Return the path of a proxy, or skip the test."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        pytest.skip(f"this needs {name}: apt install {name}")
    return found


@contextlib.contextmanager
def nginx(folder: Path, ports: Sequence[int], *, tls: bool = True) -> Iterator[str]:
    """Run nginx with `deploy/nginx.conf` in front of services; yield its address."""
    port, plain = free_port(), free_port()
    certificate(folder)
    text = (DEPLOY / "nginx.conf").read_text()
    servers = "".join(f"server 127.0.0.1:{each} max_fails=0;" for each in ports)
    for old, new in (
        (r"server 127\.0\.0\.1:8080[^;]*;", servers),
        (r"listen 443 ssl http2;", f"listen 127.0.0.1:{port}{' ssl http2' if tls else ''};"),
        (r"listen 80;", f"listen 127.0.0.1:{plain};"),
        (r"listen \[::\]:[^;]*;", ""),
        (f"/etc/letsencrypt/live/{NAME}", str(folder)),
        (r"\$host;", "127.0.0.1;" if not tls else "$host;"),
    ):
        text, done = re.subn(old, new, text)
        assert done, old
    paths = "".join(
        f"{name}_temp_path {folder};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = (
        f"daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {paths}\n{text}\n}}\n"
    )
    path = folder / "whole.conf"
    path.write_text(whole)
    command = [program("nginx"), "-c", str(path), "-p", str(folder)]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    assert "warn" not in tested.stderr, tested.stderr
    with running(command, folder / "nginx.log", port):
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"


@contextlib.contextmanager
def caddy(folder: Path, ports: Sequence[int]) -> Iterator[str]:
    """Run Caddy with `deploy/Caddyfile` in front of services, without TLS; yield its address."""
    port = free_port()
    text = (DEPLOY / "Caddyfile").read_text()
    upstreams = " ".join(f"127.0.0.1:{each}" for each in ports)
    text = text.replace(f"\n{NAME} {{", f"\nhttp://127.0.0.1:{port} {{")
    text = text.replace("reverse_proxy 127.0.0.1:8080", f"reverse_proxy {upstreams}")
    path = folder / "Caddyfile"
    path.write_text("{\n\tadmin off\n}\n" + text)
    command = [program("caddy"), "run", "--config", str(path), "--adapter", "caddyfile"]
    with running(command, folder / "caddy.log", port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def running(command: list[str], log: Path, port: int) -> Iterator[None]:
    """Run a proxy until the block ends."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20.0
        while True:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5.0)
                break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20.0)
