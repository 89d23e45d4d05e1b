"""Files with bytes that nobody wrote: refused in one sentence, never a crash or a stall."""

from __future__ import annotations

import bz2
import gzip
import lzma
import resource
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

import zib
from tests.fuzz import child, seeds
from zib import mab
from zib.core.entry import interpreted
from zib.env import GaussianMAB
from zib.logs import LogError, LoggedData, guess_columns

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


def _logs(folder: Path) -> dict[str, bytes]:
    """Return a small log in every format that is read, as the bytes of a file with that ending."""
    rng = np.random.default_rng(4)
    n = 60
    frame = pd.DataFrame(
        {
            "variant": rng.choice(["Größe", "b"], n),
            "revenue": np.where(rng.random(n) < 0.3, rng.exponential(900.0, n).round(2), 0.0),
            "at": pd.date_range("2024-05-01", periods=n, freq="h"),
        }
    )
    text = frame.to_csv(index=False).encode()
    european = frame.to_csv(index=False, sep=";", decimal=",").encode("cp1252")
    lines = frame.to_json(orient="records", lines=True, date_format="iso").encode()
    out = {
        "l.csv": text, "e.csv": european, "l.csv.gz": gzip.compress(text, mtime=0),
        "l.csv.bz2": bz2.compress(text), "l.csv.xz": lzma.compress(text),
        "l.csv.zst": pa.compress(text, codec="zstd", asbytes=True),
        "u.csv": text.decode().encode("utf-16"), "l.jsonl": lines,
        "l.json": frame.to_json(orient="records").encode(),
    }  # fmt: skip
    with zipfile.ZipFile(folder / "l.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("l.csv", text)
    frame.to_feather(folder / "l.feather")
    frame.to_parquet(folder / "l.parquet")
    frame.to_excel(folder / "l.xlsx", index=False)
    for name in ("l.zip", "l.feather", "l.parquet", "l.xlsx"):
        out[name] = (folder / name).read_bytes()
    return out


def damaged_logs(folder: Path) -> Iterator[Damaged]:
    rng = np.random.default_rng(seeds.seed())
    logs = _logs(folder)
    names = list(logs)
    while True:
        name = names[int(rng.integers(len(names)))]
        harm = damaged(logs[name], rng)
        yield Damaged(f"{name}: {harm.how}", harm.content)


def reads_or_refuses(folder: Path) -> Any:
    """Return a check: a damaged log is read or refused in one sentence."""

    def check(case: Damaged) -> None:
        path = folder / case.how.split(":")[0]
        path.write_bytes(case.content)
        for read in (
            lambda: LoggedData.read(path, arm="variant", reward="revenue", time="at"),
            lambda: guess_columns(path),
        ):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    read()
            except LogError as error:
                if "\n" in str(error) or len(str(error)) > 1000:
                    raise AssertionError("a message of more than a sentence") from error

    return check


def test_damaged_logs_are_read_or_refused(tmp_path: Path) -> None:
    cases = damaged_logs(tmp_path)
    done = child.run(cases, reads_or_refuses(tmp_path), LIMIT, seeds.seconds(1.0))
    assert done > 10
