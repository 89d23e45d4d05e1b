"""A cluster made for a run is closed to everybody else on the machine."""

from __future__ import annotations

import contextlib
import socket
import warnings
from typing import Any

import pytest

from zib.core.cluster import local_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Any:
    warnings.simplefilter("ignore", ResourceWarning)  # of Dask's own
    with local_cluster(1) as made:
        yield made


def answer(port: int, path: str) -> bytes:
    """Return the first line that a port says to a browser; nothing if it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        try:
            return connection.recv(200).split(b"\r\n")[0]
        except OSError:
            return b""


def test_it_speaks_tls_on_the_loopback_interface_only(cluster: Any) -> None:
    addresses = [cluster.scheduler_address, *cluster.scheduler_info["workers"]]
    assert len(addresses) == 2
    for address in addresses:
        assert address.startswith("tls://127.0.0.1:")


def test_a_client_without_the_key_is_refused(cluster: Any) -> None:
    import distributed

    plain = cluster.scheduler_address.replace("tls://", "tcp://")
    with pytest.raises(OSError, match=r"tcp://|[Tt]imed out|refused"):
        distributed.Client(plain, timeout=3, set_as_default=False)
    stranger = distributed.Security.temporary()
    with pytest.raises(OSError, match="TLS certificate does not match"):
        distributed.Client(
            cluster.scheduler_address, security=stranger, timeout=3, set_as_default=False
        )


def test_whatever_listens_says_nothing(cluster: Any) -> None:
    import psutil

    me, ports = psutil.Process(), set()
    for process in (me, *me.children(recursive=True)):
        # one that other tests have started may end meanwhile
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            found = process.net_connections(kind="inet")
            ports |= {each.laddr for each in found if each.status == "LISTEN"}
    assert len(ports) >= 3
    for host, port in ports:
        assert host == "127.0.0.1"
        for path in ("/", "/health", "/metrics", "/info/main/workers.html", "/json/counts.json"):
            assert answer(port, path) in (b"", b"HTTP/1.1 404 Not Found"), path
