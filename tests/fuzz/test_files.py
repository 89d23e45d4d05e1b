"""Files with bytes that nobody wrote: refused in one sentence, never a crash or a stall."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import zib
from tests.fuzz import child, seeds
from zib import mab
from zib.core.entry import interpreted
from zib.env import GaussianMAB

LIMIT = 20.0


class Damaged(NamedTuple):
    """What was done to a file, and its bytes."""

    how: str
    content: bytes

    def __str__(self) -> str:
        return self.how


def damaged(content: bytes, rng: np.random.Generator) -> Damaged:
    """Return a file with one to four places damaged."""
    new = bytearray(content)
    done = []
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(new) + 1))
        size = int(rng.choice([1, 1, 2, 8, 100]))
        how = str(rng.choice(["flipped", "cut", "inserted", "repeated", "cut off", "ended"]))
        if how == "flipped":
            for i in range(at, min(at + size, len(new))):
                new[i] ^= 1 << int(rng.integers(8))
        elif how == "cut":
            del new[at : at + size]
        elif how == "inserted":
            new[at:at] = rng.bytes(size)
        elif how == "repeated":
            new[at:at] = new[at : at + size]
        elif how == "cut off":
            del new[at:]
        else:
            new += b"\0\0"  # as files of results ended that had no checksum
        done.append(f"{how} at {at}, {size} bytes")
    return Damaged("; ".join(done), bytes(new))


def damages(content: bytes) -> Iterator[Damaged]:
    rng = np.random.default_rng(seeds.seed())
    return (damaged(content, rng) for _ in range(10**9))


def _used() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def refuses(kind: Any, path: Path, good: bytes) -> Any:
    """Return a check: a damaged file is refused, unless it reads as the good one does."""

    def check(case: Damaged) -> None:
        path.write_bytes(case.content)
        before = _used()
        try:
            found = kind.load(path)
        except zib.SavedStateError as error:
            if len(str(error)) > 1000:
                raise AssertionError(f"a message of {len(str(error))} letters") from error
        else:
            if case.content != good and isinstance(found, zib.Bandit):
                assert found.dumps().encode() == good, "a damaged file was taken for a good one"
        assert _used() - before < 2**28, "a small file took much memory"

    return check


def test_damaged_bandits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bandit.json"
    with interpreted():
        bandit = zib.Bandit(mab.ZIUCB(horizon=100, sigma=1.0), n_arms=3, seed=1)
        bandit.update_many([0, 1, 2, 0], [0.0, 1.0, 2.5, 0.0])
        bandit.save(path)
        good = path.read_bytes()
        done = child.run(damages(good), refuses(zib.Bandit, path, good), LIMIT, seeds.seconds(1.0))
    assert done > 50


def test_damaged_results_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.npz"
    environment = GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.35], sigma=0.5)
    results = zib.simulate(
        mab.ZIUCB(horizon=100, sigma=1.0), environment, horizon=20, replications=2, seed=1
    )
    results.save(path)
    good = path.read_bytes()
    done = child.run(damages(good), refuses(type(results), path, good), LIMIT, seeds.seconds(1.0))
    assert done > 50
