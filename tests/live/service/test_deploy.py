"""The files in `deploy/` are what their programs take, and do what the page about them says."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import zib
from tests.live.service.proxies import DEPLOY, caddy, nginx, program
from tests.live.service.scene import Service
from zib.core.entry import interpreted
from zib.live import Client
from zib.live.service.config import Limits
from zib.live.service.config import Server as ServerTable

ROOT = DEPLOY.parent


def directives(name: str) -> dict[str, str]:
    """Return the settings of a systemd unit; of those given twice the last."""
    lines = (DEPLOY / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]\w*=", line))


def test_the_unit_gives_the_service_time_to_stop_and_lets_it_compile() -> None:
    unit = directives("zib.service")
    assert float(unit["TimeoutStopSec"]) > ServerTable().stop_within + 5.0
    assert int(unit["LimitNOFILE"]) > Limits().connections
    assert unit["Restart"] == "always"
    assert "MemoryDenyWriteExecute" not in unit
    assert unit["ExecStart"].split()[1:] == ["serve", "/etc/zib/live.toml"]


def test_the_container_is_made_of_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    (extras,) = re.findall(r"install .*'\.\[(.+)\]'", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(known["optional-dependencies"])
    assert "zib" in known["scripts"]
    (check,) = re.findall(r'"(import urllib.request.+)"\]', text)
    compile(check, "HEALTHCHECK", "exec")
    assert re.search(r"^USER zib$", text, re.MULTILINE)


def test_proxies_allow_bodies_as_large_as_the_service_does() -> None:
    assert Limits().body == 1_000_000
    assert "max_size 1MB" in (DEPLOY / "Caddyfile").read_text()
    assert "client_max_body_size 1m;" in (DEPLOY / "nginx.conf").read_text()


def test_what_the_page_says_is_shown_by_tests_that_there_are() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "deploy.md").read_text()))
    files = (ROOT / "tests").rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert len(named) > 20
    assert named <= there, named - there


@pytest.mark.slow
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("this needs systemd-analyze: apt install systemd")
    unit = tmp_path / "zib.service"
    text = (DEPLOY / "zib.service").read_text()
    unit.write_text(text.replace("/opt/zib/bin/zib", shutil.which("true") or "/bin/true"))
    ran = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "zib.service" not in ran.stderr, ran.stderr  # unknown or misspelt settings
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-300:]  # exposure of at most 3 of 10


@pytest.mark.slow
def test_caddy_takes_its_file_as_it_is() -> None:
    command = [program("caddy"), "validate", "--adapter", "caddyfile", "--config"]
    ran = subprocess.run([*command, str(DEPLOY / "Caddyfile")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    command = [program("caddy"), "fmt", str(DEPLOY / "Caddyfile")]
    formatted = subprocess.run(command, capture_output=True, text=True)
    assert formatted.stdout == (DEPLOY / "Caddyfile").read_text()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    bandits = {"shop": {"arms": ("A", "B"), "policy": zib.mab.NormalTS()}}
    path = tmp_path_factory.mktemp("deploy") / "live.db"
    with interpreted(), Service(path, tokens=True, bandits=bandits) as running:
        yield running


def passes_on(proxy: httpx.Client, address: str, service: Service) -> None:
    """Check decisions, limits and the live page through a proxy."""
    token = service.tokens["admin"]
    with Client(address, "shop", token=token, http=proxy) as client:
        decision = client.decide()
        assert client.event(f"e-{decision.id}", decision.id, 2.0).status == "applied"
        assert client.export(Path(service.config.database).with_name("log.csv")).stat().st_size
    allowed = {"Authorization": f"Bearer {token}"}
    page = proxy.get(f"{address}/bandits/shop", headers=allowed)
    assert page.status_code == 200
    assert page.headers["strict-transport-security"]
    large = proxy.post(f"{address}/v1/shop/decide", content=b"x" * 1_200_000, headers=allowed)
    assert large.status_code == 413
    # the page is live: the first event comes at once, not when a buffer is full
    began = time.monotonic()
    with proxy.stream("GET", f"{address}/bandits/shop/live", headers=allowed) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data:"):
                break
    assert time.monotonic() - began < 8.0


@pytest.mark.slow
def test_nginx_passes_everything_on_by_tls(service: Service, tmp_path: Path) -> None:
    with nginx(tmp_path, [urlsplit(service.url).port or 0]) as address:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "fullchain.pem"))
        with httpx.Client(verify=trusted, timeout=30.0) as proxy:
            passes_on(proxy, address, service)
            # who logs in by TLS gets a cookie that is sent by TLS only
            sent = {"token": service.tokens["read"]}
            entered = proxy.post(f"{address}/login", data=sent)
            assert "secure" in entered.headers["set-cookie"].lower()


@pytest.mark.slow
def test_caddy_passes_everything_on(service: Service, tmp_path: Path) -> None:
    with (
        caddy(tmp_path, [urlsplit(service.url).port or 0]) as address,
        httpx.Client(timeout=30.0) as proxy,
    ):
        passes_on(proxy, address, service)
