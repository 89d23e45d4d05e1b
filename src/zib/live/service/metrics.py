"""Numbers for Prometheus.

What happens is counted by each worker; `prometheus_client` adds the workers up by files in the
folder that PROMETHEUS_MULTIPROC_DIR names (`server` sets it where there are several). What the
database knows is asked for when the numbers are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)
from prometheus_client.core import GaugeMetricFamily, Metric

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.5, 1.0, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
KIND = "text/plain; version=0.0.4; charset=utf-8"


class Known(NamedTuple):
    """What the database knows of a bandit."""

    bandit: str
    pending: int
    parked: int
    dead: int
    version: int
    age: float | None


class Seen:
    """Counts the answers of one route of one bandit."""

    def __init__(self, metrics: Metrics, route: str) -> None:
        self._requests = metrics.requests
        self._route = route
        self._by_status: dict[int, Any] = {}
        self._seconds = metrics.seconds
        self._observe: Any = None

    def answered(self, status: int, seconds: float) -> None:
        """Count an answer."""
        count = self._by_status.get(status)
        if count is None:
            count = self._by_status[status] = self._requests.labels(self._route, str(status)).inc
            self._observe = self._seconds.labels(self._route).observe
        count()
        self._observe(seconds)


class Metrics:
    """What one process counts."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        here: Any = {"registry": self._registry}
        self.requests = Counter(
            "zib_requests", "Answers, by route and status.", ["route", "status"], **here
        )
        self.seconds = Histogram(
            "zib_request_seconds", "From the head of a request to its answer.", ["route"],
            buckets=SECONDS, **here,
        )  # fmt: skip
        self.batches = Histogram(
            "zib_batch_requests", "Requests that were handed to the database together.",
            buckets=SIZES, **here,
        )  # fmt: skip
        self.decisions = Counter(
            "zib_decisions", "Decisions answered, repeated ones included.", ["bandit"], **here
        )
        self.receipts = Counter(
            "zib_receipts", "Events, revisions and cancellations, by what became of them.",
            ["bandit", "status"], **here,
        )  # fmt: skip
        self.rate_refused = Counter(
            "zib_rate_refused", "Requests refused because a caller asked too often.", **here
        )

    def text(self, known: Iterable[Known], waiting: int, *, up: bool) -> bytes:
        """Return everything in the format of Prometheus; `up`: whether the database answers."""
        if os.environ.get(FOLDER):
            counted = CollectorRegistry()
            multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        else:
            counted = self._registry
        now = CollectorRegistry()
        now.register(_Now(list(known), waiting, up))
        return generate_latest(counted) + generate_latest(now)


class _Now:
    """What is known now, as Prometheus takes it."""

    def __init__(self, known: list[Known], waiting: int, up: bool) -> None:
        self._known = known
        self._up = up
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers."""
        yield GaugeMetricFamily(
            "zib_waiting_requests", "Requests of this worker without an answer.", self._waiting
        )
        yield GaugeMetricFamily("zib_database_up", "Whether the database answers.", int(self._up))
        for name, words, field in (
            ("zib_pending_decisions", "Decisions whose reward may still come.", "pending"),
            ("zib_parked_events", "Events whose decision is not known.", "parked"),
            ("zib_dead_letters", "Parked events that wait longer than they should.", "dead"),
            ("zib_model_version", "Number of the latest model version.", "version"),
            ("zib_model_age_seconds", "Since the latest model version was made.", "age"),
        ):
            family = GaugeMetricFamily(name, words, labels=["bandit"])
            for one in self._known:
                value = getattr(one, field)
                if value is not None:
                    family.add_metric([one.bandit], value)
            yield family
