"""Folders of Parquet files, by path and by URL, whole and in parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zib.core.validate import InvalidParameterError
from zib.logs import LogScan, guess_columns, open_log
from zib.logs.parquet import ParquetTable
from zib.logs.tables import open_table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Days in folders, several files and row groups in each; the second day comes by itself."""
    rng = np.random.default_rng(0)
    at = tmp_path / "log"
    number = 0
    for day in ("2024-05-02", "2024-05-01"):
        for hour in (2, 10):
            inner = at / f"day={day}" / f"hour={hour}"
            inner.mkdir(parents=True)
            n = int(rng.integers(50, 120))
            table = pa.table(
                {
                    "row": np.arange(number, number + n),
                    "arm": rng.choice(["a", "b"], n),
                    "paid": np.where(rng.random(n) < 0.3, rng.gamma(2.0, 3.0, n), 0.0),
                }
            )
            number += n
            pq.write_table(table, inner / "part.parquet", row_group_size=30)
    (at / "_SUCCESS").write_text("")
    (at / "day=2024-05-01" / ".hidden.parquet").write_text("no Parquet at all")
    return at


def whole(table, columns=None) -> pd.DataFrame:
    return pa.Table.from_batches(list(table.batches(columns or table.columns, 37))).to_pandas()


def test_folders_are_columns(folder):
    table = open_table(folder)
    assert table.columns == ("row", "arm", "paid", "day", "hour")
    frame = whole(table)
    assert len(frame) == table.n_rows
    assert frame.day.tolist() == sorted(frame.day)
    assert set(frame.hour) == {2, 10}
    wanted = pd.read_parquet(folder).sort_values("row")  # pyarrow's own reading of the folders
    found = frame.sort_values("row")
    np.testing.assert_array_equal(found.paid, wanted.paid)
    assert found.day.astype(str).tolist() == wanted.day.astype(str).tolist()
    assert found.hour.tolist() == wanted.hour.astype(int).tolist()
    assert whole(table, ["hour"]).hour.tolist() == frame.hour.tolist()
    log = open_log(folder, arm="hour", reward="paid", context=["day"])
    assert log.arms == (2, 10)


def test_any_rows_can_be_read_by_themselves(folder):
    table = ParquetTable(folder)
    frame = whole(table)
    rng = np.random.default_rng(1)
    for _ in range(40):
        start, stop = sorted(rng.integers(0, table.n_rows + 1, 2).tolist())
        found = list(table.rows(("row", "day"), start, stop, int(rng.integers(1, 60))))
        rows = [row for batch in found for row in batch.column("row").to_pylist()]
        assert rows == frame.row[start:stop].tolist()
    scan = LogScan(folder, arm="arm", reward="paid")
    assert scan.seekable
    part = np.concatenate([batch.reward for batch in scan.rows(55, 171)])
    np.testing.assert_array_equal(part, frame.paid[55:171])


def test_urls_are_read_like_paths(folder):
    fsspec = pytest.importorskip("fsspec")
    here = whole(open_table(folder))
    assert whole(open_table(folder.as_uri())).equals(here)
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/zib-test", recursive=True)
    try:
        assert whole(open_table("memory://zib-test")).equals(here)
        roles = guess_columns("memory://zib-test", arm="arm").roles
        scan = LogScan("memory://zib-test", **roles)
        (first,) = memory.glob("/zib-test/day=2024-05-01/hour=10/*.parquet")
        memory.rm(first)
        with pytest.raises(InvalidParameterError, match=r"cannot be|has changed"):
            list(scan.batches())
    finally:
        memory.rm("/zib-test", recursive=True)


def test_what_is_not_there_is_said(folder):
    for url in ("file:///nowhere/at/all", "memory://nowhere-at-all"):
        with pytest.raises(InvalidParameterError, match=f"there is no file {url}"):
            open_table(url)
    with pytest.raises(InvalidParameterError, match="`sep` must be left out"):
        open_table(folder.as_uri(), sep=";")
    with pytest.raises(InvalidParameterError, match=r"quux://x cannot be reached: .* fsspec"):
        open_table("quux://x")
    odd = folder / "day=2024-05-01" / "hour=2" / "part.parquet"
    pq.write_table(pa.table({"row": [1]}), odd)
    with pytest.raises(InvalidParameterError, match="has other columns than"):
        open_table(folder)
