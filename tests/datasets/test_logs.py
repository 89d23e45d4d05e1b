import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from zib.logs import (
    LogError,
    LoggedData,
    LogScan,
    columns,
    delimited,
    open_log,
    parquet,
    read,
    tables,
)


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 1_000
    reward = np.where(rng.random(n) < 0.1, rng.exponential(2.0, n), 0.0)
    return pd.DataFrame(
        {
            "variant": rng.choice(["b", "a", "c"], n),
            "spent": reward,
            "p": rng.uniform(0.1, 1.0, n),
            "age": rng.integers(18, 80, n),
            "risk": rng.choice(["LOW", "HIGH"], n),
            "day": pd.date_range("2024-01-01", periods=n, freq="h"),
            "customer": [f"c{i}" for i in rng.permutation(n)],
        }
    )


ROLES = {
    "arm": "variant",
    "reward": "spent",
    "propensity": "p",
    "context": ["age", "risk"],
    "time": "day",
    "unit": "customer",
    "cluster": "risk",
}


def check_is(log: LoggedData, frame: pd.DataFrame) -> None:
    assert log.arms == ("a", "b", "c")
    assert log.context_names == ("age", "risk=HIGH", "risk=LOW")
    np.testing.assert_array_equal(np.array(log.arms)[log.arm], frame["variant"])
    np.testing.assert_array_equal(log.reward, frame["spent"])
    np.testing.assert_array_equal(log.propensity, frame["p"])
    np.testing.assert_array_equal(log.context[:, 0], frame["age"])
    np.testing.assert_array_equal(log.context[:, 1], frame["risk"] == "HIGH")
    np.testing.assert_array_equal(log.context[:, 2], frame["risk"] == "LOW")
    seconds = (frame["day"] - pd.Timestamp("1970-01-01")).dt.total_seconds()
    np.testing.assert_array_equal(log.time, seconds)
    assert list(log.unit) == list(frame["customer"])
    same = log.cluster[0] == log.cluster
    np.testing.assert_array_equal(same, frame["risk"][0] == frame["risk"])


def test_frames_and_files_give_the_same_log(frame: pd.DataFrame, tmp_path: Path) -> None:
    check_is(LoggedData.from_frame(frame, **ROLES), frame)
    check_is(LoggedData.from_frame(pa.Table.from_pandas(frame), **ROLES), frame)
    parquet, csv, packed = tmp_path / "l.parquet", tmp_path / "l.csv", tmp_path / "l.csv.gz"
    frame.to_parquet(parquet)
    frame.to_csv(csv, index=False)
    packed.write_bytes(gzip.compress(csv.read_bytes()))
    frame.to_csv(tmp_path / "l.tsv", index=False, sep="\t")
    for path in (parquet, csv, packed, tmp_path / "l.tsv"):
        check_is(LoggedData.read(path, **ROLES), frame)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_log_that_fits_into_memory_is_read_once(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path = tmp_path / f"log.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    readings = []
    kind = {"csv": delimited.CSVTable, "parquet": parquet.ParquetTable}[ending]
    plain = kind.batches

    def counted(self, columns, size=tables.BATCH):
        readings.append(tuple(columns))
        return plain(self, columns, size)

    monkeypatch.setattr(kind, "batches", counted)
    log = open_log(path, **ROLES)
    assert isinstance(log, LoggedData)
    check_is(log, frame)
    assert len(readings) == 1
    scan = open_log(path, **ROLES, in_memory=999)
    assert isinstance(scan, LogScan)
    assert len(readings) == 2
    check_is(scan.load(), frame)
    whole = open_log(path, **ROLES, in_memory=1_000)
    np.testing.assert_array_equal(whole.unit, log.unit)


def test_a_folder_of_parquet_files_is_one_log(frame: pd.DataFrame, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    frame[:400].to_parquet(folder / "part-0.parquet")
    frame[400:].to_parquet(folder / "part-1.parquet")
    check_is(LoggedData.read(folder, **ROLES), frame)
    frame[["p"]].to_parquet(folder / "part-2.parquet")
    with pytest.raises(LogError, match=r"part-2.parquet has other columns than part-0.parquet"):
        LogScan(folder, **ROLES)


@pytest.mark.parametrize("size", [1, 7, 999, 1_000, 5_000])
def test_batches_do_not_change_the_rows(frame: pd.DataFrame, tmp_path: Path, size: int) -> None:
    path = tmp_path / "l.parquet"
    frame = frame[: 150 * size]
    frame.to_parquet(path, row_group_size=130)
    whole = LoggedData.from_frame(frame, **ROLES)
    for log in (whole, LogScan(path, **ROLES)):
        batches = list(log.batches(size))
        assert all(len(batch.arm) <= size for batch in batches)
        starts = np.cumsum([0] + [len(batch.arm) for batch in batches])
        assert [batch.start for batch in batches] == starts[:-1].tolist()
        for name in ("arm", "reward", "propensity", "context", "time"):
            joined = np.concatenate([getattr(batch, name) for batch in batches])
            np.testing.assert_array_equal(joined, getattr(whole, name))


def test_labels() -> None:
    assert LoggedData.from_arrays([2, 10, 1], [0, 1, 0]).arms == (1, 2, 10)
    assert LoggedData.from_arrays([2.0, 10.0], [0, 1]).arms == (2, 10)
    assert LoggedData.from_arrays([0.5, 0.25], [0, 1]).arms == (0.25, 0.5)
    assert LoggedData.from_arrays(["10", "9"], [0, 1]).arms == (9, 10)  # all text, all numbers
    assert LoggedData.from_arrays(["a", "10"], [0, 1]).arms == ("10", "a")
    assert LoggedData.from_arrays(["a", "b"], [0, 1], arms=["c", "b", "a"]).arm.tolist() == [2, 1]
    assert LoggedData.from_arrays([True, False], [0, 1]).arms == (False, True)


def test_numbers_in_csv_are_arms_on_every_pass(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("arm,reward\n2,0\n10,3.5\n2,-1e3\n")
    scan = LogScan(path, arm="arm", reward="reward")
    for _ in range(2):
        batch = next(scan.batches())
        assert (scan.arms, batch.arm.tolist()) == ((2, 10), [0, 1, 0])
        assert batch.reward.tolist() == [0.0, 3.5, -1000.0]


def test_arrays_are_read_only_and_subsets_keep_arms(frame: pd.DataFrame) -> None:
    log = LoggedData.from_frame(frame, **ROLES)
    with pytest.raises(ValueError, match="read-only"):
        log.reward[0] = 1.0
    part = log.subset(log.arm == 1)
    assert part.arms == log.arms
    assert set(part.arm) == {1}
    assert list(part.unit) == list(frame["customer"][frame["variant"] == "b"])
    np.testing.assert_array_equal(part.cluster, log.cluster[log.arm == 1])
    assert part.subset([0, 2]).n_rows == 2
    changed = log.with_propensity(np.full(log.n_rows, 0.5))
    assert set(changed.propensity) == {0.5}
    pd.testing.assert_series_equal(log.to_frame()["reward"], frame["spent"], check_names=False)


BAD_FRAMES = {
    "missing column": (
        {},
        {"arm": "arms"},
        r"the frame has no column 'arms' \(asked for as `arm`\); did you mean 'arm'\? It has: arm",
    ),
    "text in a number column": (
        {"reward": ["0", "abc", "2"]},
        {},
        r"column `reward` must hold numbers; row 2 holds 'abc'",
    ),
    "mixed objects": (
        {"reward": pd.Series([0, "abc", 2.5], dtype=object)},
        {},
        r"column `reward` must hold numbers; row 2 holds 'abc'",
    ),
    "missing reward": (
        {"reward": [0.0, 1.0, np.nan]},
        {},
        r"column `reward` must hold a number in every row; row 3 is missing",
    ),
    "infinite reward": (
        {"reward": [0.0, np.inf, 1.0]},
        {},
        r"column `reward` must hold finite numbers; row 2 holds inf",
    ),
    "negative propensity": (
        {"propensity": [0.5, -0.1, 0.5]},
        {"propensity": "propensity"},
        r"column `propensity` must lie in \(0, 1\]; row 2 holds -0.1",
    ),
    "propensity zero for a taken action": (
        {"propensity": [0.5, 0.5, 0.0]},
        {"propensity": "propensity"},
        r"row 3 holds 0.0 \(the arm of that row was played, so it had a chance\)",
    ),
    "propensity above one": (
        {"propensity": [1.5, 0.5, 0.5]},
        {"propensity": "propensity"},
        r"column `propensity` must lie in \(0, 1\]; row 1 holds 1.5",
    ),
    "missing arm": (
        {"arm": ["a", None, "b"]},
        {},
        r"column `arm` must hold a label in every row; row 2 is missing",
    ),
    "missing cluster": (
        {"user": [1.0, np.nan, 2.0]},
        {"cluster": "user"},
        r"column `user` must name a cluster in every row; row 2 is missing",
    ),
    "arms as clusters": (
        {},
        {"cluster": "arm"},
        r"column `arm` is used twice; a cluster may only be a column of the context or the time",
    ),
    "missing context": (
        {"age": [1.0, np.nan, 2.0]},
        {"context": ["age"]},
        r"column `age` must hold a number in every row; row 2 is missing",
    ),
    "bad time": (
        {"day": ["2024-01-01", "soon", "2024-01-02"]},
        {"time": "day"},
        r"column `day` must hold numbers or dates such as",
    ),
    "one column for two roles": (
        {},
        {"context": ["reward"]},
        r"column `reward` is used twice; each column has one role",
    ),
    "an arm that is not listed": (
        {},
        {"arms": ["a", "c"]},
        r"column `arm` holds 'b', which is not among `arms`",
    ),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_bad_input_is_one_sentence(case: str) -> None:
    columns, roles, message = BAD_FRAMES[case]
    frame = pd.DataFrame({"arm": ["a", "b", "a"], "reward": [0.0, 1.0, 0.0]} | columns)
    with pytest.raises(LogError, match=message):
        LoggedData.from_frame(frame, **({"arm": "arm", "reward": "reward"} | roles))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "BATCH", 1_000)
    monkeypatch.setattr(delimited, "BLOCK", 1 << 13)


@pytest.mark.usefixtures("small_batches")
def test_row_numbers_count_over_batches(tmp_path: Path) -> None:
    n = 6_000
    reward = np.zeros(n)
    reward[-2] = np.nan
    path = tmp_path / "l.parquet"
    pd.DataFrame({"arm": np.arange(n) % 3, "reward": reward}).to_parquet(path)
    with pytest.raises(LogError, match=f"row {n - 1} is missing"):
        LogScan(path, arm="arm", reward="reward")
    path = tmp_path / "l.csv"
    pd.DataFrame({"arm": np.arange(n) % 3, "reward": reward}).to_csv(path, index=False)
    with pytest.raises(LogError, match=f"row {n - 1} is missing"):
        LogScan(path, arm="arm", reward="reward")


@pytest.mark.usefixtures("small_batches")
def test_a_number_column_of_a_csv_that_turns_to_text_is_an_error(tmp_path: Path) -> None:
    n = 3_000
    age = np.full(n, "30", dtype=object)
    age[n - 1] = "old"
    path = tmp_path / "l.csv"
    pd.DataFrame({"arm": 0, "reward": 1.0, "age": age}).to_csv(path, index=False)
    with pytest.raises(LogError, match=f"column `age` must hold numbers; row {n} holds 'old'"):
        LogScan(path, arm="arm", reward="reward", context=["age"])


@pytest.mark.parametrize("kind", ["int8", "uint16", "int64", "uint64"])
def test_numbers_name_the_same_clusters_with_and_without_a_dictionary(kind: str) -> None:
    values = pa.array([3, 7, 3, 0, 127], getattr(pa, kind)())
    found = columns.hashes("user", values, 0, "cluster")
    again = columns.hashes("user", values.dictionary_encode(), 0, "cluster")
    np.testing.assert_array_equal(found, again)
    assert np.unique(found).size == 4


@pytest.mark.usefixtures("small_batches")
def test_repeated_units_are_found_across_batches(tmp_path: Path) -> None:
    n = 6_000
    unit = np.arange(n)[::-1].copy()
    path = tmp_path / "l.parquet"
    frame = pd.DataFrame({"arm": 0, "reward": 1.0, "unit": unit})
    frame.to_parquet(path)
    assert LogScan(path, arm="arm", reward="reward", unit="unit").n_rows == n
    frame.loc[n - 5, "unit"] = unit[2]
    frame.to_parquet(path)
    message = f"rows 3 and {n - 4} both hold {unit[2]}.*--cluster unit"
    with pytest.warns(UserWarning, match=message):
        scan = LogScan(path, arm="arm", reward="reward", unit="unit")
    assert scan.repeated == "unit"
    clusters = np.concatenate([batch.cluster for batch in scan.batches()])
    assert np.unique(clusters).size == n - 1


def test_damaged_files(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "l.parquet"
    frame.to_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LogError, match="l.parquet cannot be read as Parquet; it may be cut off"):
        LoggedData.read(path, **ROLES)
    path = tmp_path / "l.csv"
    path.write_text("arm,reward\na,1\nb\n")
    with pytest.raises(LogError, match="l.csv cannot be read as CSV; .*Expected 2 columns, got 1"):
        LoggedData.read(path, arm="arm", reward="reward")
    path.write_text("arm,reward\n")
    with pytest.raises(LogError, match="l.csv has no rows"):
        LoggedData.read(path, arm="arm", reward="reward")
    path.write_text("")
    with pytest.raises(LogError, match="l.csv cannot be read as CSV"):
        LoggedData.read(path, arm="arm", reward="reward")
    with pytest.raises(LogError, match="there is no file"):
        LoggedData.read(tmp_path / "none.csv", arm="arm", reward="reward")
    (tmp_path / "l.sas").write_text("")
    with pytest.raises(LogError, match=r"`path` must end with one of .csv"):
        LoggedData.read(tmp_path / "l.sas", arm="arm", reward="reward")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(frame.to_csv(index=False).encode())[:-2_000])
    with pytest.raises(LogError, match="cut.csv.gz cannot be read as CSV"):
        LoggedData.read(cut, **ROLES)


def test_a_file_that_changes_is_noticed(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "l.parquet"
    frame.to_parquet(path)
    scan = LogScan(path, **ROLES)
    frame[:10].to_parquet(path)
    with pytest.raises(LogError, match="has changed since it was checked"):
        next(scan.batches())


def test_memory_of_a_scan_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peak memory over two passes, for 0.1 and 0.8 million rows (NumPy's part, as traced)."""
    monkeypatch.setattr(read, "BATCH", 40_000)
    import tracemalloc

    peaks = []
    for n in (100_000, 800_000):
        path = tmp_path / f"{n}.parquet"
        pd.DataFrame({"arm": np.arange(n) % 5, "reward": np.zeros(n), "x": np.ones(n)}).to_parquet(
            path
        )
        tracemalloc.start()
        scan = LogScan(path, arm="arm", reward="reward", context=["x"])
        assert sum(batch.arm.size for batch in scan.batches(40_000)) == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
