"""Files and tables as people have them: formats, encodings, numbers and times."""

import bz2
import datetime
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pytest

from zib.logs import LogError, LoggedData, LogScan, formats, guess_columns, open_log
from zib.logs.amounts import Numbers, looks_numeric
from zib.logs.dates import Times

ROLES: dict[str, Any] = {
    "arm": "variant", "reward": "revenue", "propensity": "p", "context": ["age", "region"],
    "time": "at", "unit": "customer",
}  # fmt: skip


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    n = 300
    return pd.DataFrame(
        {
            "customer": [f"k{i}" for i in range(n)],
            "variant": rng.choice(["Größe", "plain", "naïve, new"], n),
            "p": rng.choice([0.25, 0.5], n),
            "age": rng.integers(18, 80, n),
            "region": rng.choice(["north", "south"], n),
            "at": pd.date_range("2024-05-01", periods=n, freq="37min"),
            "revenue": np.where(rng.random(n) < 0.1, rng.exponential(900.0, n).round(2), 0.0),
        }
    )


def zstd(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


def zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("inside.csv", content)
    return out.getvalue()


def same(log: LoggedData | LogScan, frame: pd.DataFrame) -> None:
    """Compare a log with pandas' own reading."""
    if isinstance(log, LogScan):
        log = log.load()
    np.testing.assert_array_equal(np.array(log.arms, dtype=object)[log.arm], frame["variant"])
    np.testing.assert_array_equal(log.reward, frame["revenue"])
    np.testing.assert_array_equal(log.propensity, frame["p"])
    np.testing.assert_array_equal(log.context[:, 0], frame["age"])
    seconds = (frame["at"] - pd.Timestamp("1970-01-01")).dt.total_seconds()
    np.testing.assert_array_equal(log.time, seconds)
    assert log.unit is not None
    assert log.unit.tolist() == frame["customer"].tolist()


WRITERS: dict[str, Any] = {
    "l.csv.gz": lambda f, p: p.write_bytes(gzip.compress(f.to_csv(index=False).encode())),
    "l.csv.bz2": lambda f, p: p.write_bytes(bz2.compress(f.to_csv(index=False).encode())),
    "l.csv.xz": lambda f, p: p.write_bytes(lzma.compress(f.to_csv(index=False).encode())),
    "l.csv.zst": lambda f, p: p.write_bytes(zstd(f.to_csv(index=False).encode())),
    "l.zip": lambda f, p: p.write_bytes(zipped(f.to_csv(index=False).encode())),
    "packed.csv": lambda f, p: p.write_bytes(gzip.compress(f.to_csv(index=False).encode())),
    "bom.csv": lambda f, p: f.to_csv(p, index=False, encoding="utf-8-sig"),
    "utf16.txt": lambda f, p: f.to_csv(p, index=False, encoding="utf-16", sep="\t"),
    "utf16le.csv": lambda f, p: f.to_csv(p, index=False, encoding="utf-16-le"),
    "latin.csv": lambda f, p: f.to_csv(p, index=False, encoding="cp1252"),
    "european.csv": lambda f, p: f.to_csv(p, index=False, sep=";", decimal=",", encoding="cp1252"),
    "bars.txt": lambda f, p: f.to_csv(p, index=False, sep="|"),
    "windows.csv": lambda f, p: f.to_csv(p, index=False, lineterminator="\r\n"),
    "l.jsonl": lambda f, p: f.to_json(p, orient="records", lines=True, date_format="iso"),
    "l.ndjson.gz": lambda f, p: p.write_bytes(
        gzip.compress(f.to_json(orient="records", lines=True, date_format="iso").encode())
    ),
    "l.json": lambda f, p: f.to_json(p, orient="records", date_format="iso"),
    "l.feather": lambda f, p: f.to_feather(p),
    "l.arrow": lambda f, p: pa.feather.write_feather(f, p, compression="uncompressed"),
    "l.xlsx": lambda f, p: f.to_excel(p, index=False),
    "l.parquet": lambda f, p: f.to_parquet(p),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_log(name: str, frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](frame, path)
    same(LoggedData.read(path, **ROLES), frame)
    same(LogScan(path, **ROLES), frame)
    found = guess_columns(path)
    assert (found.arm, found.reward, found.propensity) == ("variant", "revenue", "p")
    assert (found.time, found.unit) == ("at", "customer")


def polars(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").from_pandas(frame)


def relation(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("duckdb").connect().from_df(frame)


FRAMES: dict[str, Any] = {
    "polars": polars,
    "lazy": lambda f: polars(f).lazy(),
    "arrow": pa.Table.from_pandas,
    "batch": pa.RecordBatch.from_pandas,
    "reader": lambda f: pa.Table.from_pandas(f).to_reader(max_chunksize=70),
    "views": lambda f: pa.table(polars(f)),  # text of a newer kind
    "dataset": lambda f: pa.dataset.dataset(pa.Table.from_pandas(f)),
    "duckdb": relation,
    "categories": lambda f: f.astype({"variant": "category", "region": "category"}),
}


LARGE = ("polars", "lazy", "views", "duckdb")  # libraries that are installed for slow tests only


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LARGE else ()) for n in FRAMES]
)
def test_tables_in_memory_are_read_through_arrow(name: str, frame: pd.DataFrame) -> None:
    make = FRAMES[name]
    same(LoggedData.from_frame(make(frame), **ROLES), frame)
    same(LogScan(make(frame), **ROLES), frame)
    assert guess_columns(make(frame)).arm == "variant"


def test_what_was_found_out_is_told(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    frame.assign(revenue=[f"{x:.2f} €".replace(".", ",") for x in frame["revenue"]]).to_csv(
        path, index=False, sep=";", decimal=",", encoding="cp1252"
    )
    wanted = (
        "l.csv has semicolons between columns",
        "column `variant` holds bytes that are not UTF-8; they are read as cp1252",
        "column `revenue` holds bytes that are not UTF-8; they are read as cp1252",
        "column `revenue`: decimal commas, such as '0,00 €'",
        "column `revenue`: the currency sign € is left out",
        "column `p`: decimal commas, such as '0,25'",
        "column `at`: times have no zone and are read as UTC",
    )
    log = LoggedData.read(path, **ROLES)
    assert sorted(log.notes) == sorted(wanted)
    assert sorted(LogScan(path, **ROLES).notes) == sorted(wanted)
    assert log.subset([0, 1]).notes == log.notes
    said = LoggedData.read(path, **ROLES, sep=";", decimal=",", encoding="cp1252")
    assert said.notes == (
        "column `revenue`: the currency sign € is left out",
        "column `at`: times have no zone and are read as UTC",
    )
    np.testing.assert_array_equal(said.reward, log.reward)


# ----------------------------------------------------------------------------- exports of services


def test_a_shop_of_orders(tmp_path: Path) -> None:
    path = tmp_path / "orders_export.csv"
    path.write_text(
        "Name,Email,Financial Status,Paid at,Currency,Total,Discount Code,Created at,Notes\n"
        '#1001,a@x.org,paid,2024-05-01 12:30:00 -0400,USD,"1,049.00",SPRING,'
        '2024-05-01 12:29:11 -0400,"ring the bell\nplease"\n'
        "#1002,b@x.org,voided,,USD,0.00,NONE,2024-05-02 01:00:00 -0400,\n"
    )
    roles = {"arm": "Discount Code", "reward": "Total", "time": "Created at", "unit": "Name"}
    log = LoggedData.read(path, **roles)
    assert log.reward.tolist() == [1049.0, 0.0]
    first = datetime.datetime(2024, 5, 1, 16, 29, 11, tzinfo=datetime.UTC)
    assert log.time is not None
    assert log.time[0] == first.timestamp()
    assert log.notes == ("column `Created at`: times are converted to UTC",)


SPENT = '"$1,204.50"'


def test_an_export_of_a_mailing(tmp_path: Path) -> None:
    path = tmp_path / "members.csv"
    path.write_text(
        '"Email Address","First Name","Campaign variant",Opens,"Opted in","Total spent",When\n'
        + "".join(
            f"m{i}@x.org,Zoë,{'AB'[i % 2]},{i % 3},yes,{SPENT if i == 3 else ''},"
            f'"May {i % 28 + 1:02d}, 2024 03:15 pm"\n'
            for i in range(40)
        )
    )
    with pytest.raises(LogError, match=r"`Total spent` \(blank in 97.5 % .*--missing-reward zero"):
        guess_columns(path)
    found = guess_columns(path, missing_reward="zero")
    assert found.reasons[1] == "reward: `Total spent`, by its name, 97.5 % zeros"
    log = LoggedData.read(
        path, arm="Campaign variant", reward="Total spent", missing_reward="zero",
        context=["Opens"], time="When",
    )  # fmt: skip
    assert (log.reward.sum(), np.count_nonzero(log.reward)) == (1204.5, 1)
    assert "column `Total spent`: 39 of 40 rows are blank and count as 0" in log.notes
    assert log.time is not None
    assert log.time[0] == datetime.datetime(2024, 5, 1, 15, 15, tzinfo=datetime.UTC).timestamp()
    with pytest.raises(LogError, match=r"row 1 is missing \(fill it in, or say --missing-reward"):
        LoggedData.read(path, arm="Campaign variant", reward="Total spent")


def test_an_export_of_analytics(tmp_path: Path) -> None:
    path = tmp_path / "data-export.csv"
    rows = [
        f"2024050{i % 9 + 1},{1714560000000000 + i * 10**6},{'control' if i % 2 else 'blue'},"
        f"{'' if i % 5 else '49.99'},{'true' if i % 5 == 0 else 'false'}"
        for i in range(40)
    ]
    path.write_text(
        "# ----------------------------------------\n# Shop, web\n# 20240501-20240531\n\n"
        "event_date,event_timestamp,variant,purchase_revenue,converted\n" + "\n".join(rows) + "\n"
    )
    log = LoggedData.read(
        path, arm="variant", reward="purchase_revenue", time="event_timestamp",
        missing_reward="zero",
    )  # fmt: skip
    assert log.time is not None
    assert log.time.tolist()[:2] == [1714560000.0, 1714560001.0]
    assert "column `event_timestamp`: numbers are microseconds since 1970" in " ".join(log.notes)
    assert "data-export.csv: 4 lines before the header are left out" in log.notes
    days = LoggedData.read(path, arm="variant", reward="converted", time="event_date")
    assert days.reward.tolist() == [float(i % 5 == 0) for i in range(40)]
    assert days.time is not None
    assert days.time[0] == datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC).timestamp()


def test_rows_of_a_warehouse_in_json(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    rows = [
        {"ts": "2024-05-01 12:00:00.123456 UTC", "user": {"id": 7, "plan": "a"}, "variant": "x",
         "revenue": "0"},
        {"ts": "2024-05-01 12:00:01 UTC", "user": {"id": 8, "plan": "b"}, "variant": "y"},
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    log = LoggedData.read(
        path, arm="variant", reward="revenue", context=["user.plan"], unit="user.id", time="ts",
        missing_reward="zero",
    )  # fmt: skip
    assert log.context_names == ("user.plan=a", "user.plan=b")
    assert log.time is not None
    assert log.time.tolist() == [1714564800.123456, 1714564801.0]


def test_keys_that_hold_numbers_and_text(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"v": "x", "r": 0}\n{"v": 2, "r": "$3.50", "u": {"n": 1}}\n\n{"v": "x"}\n')
    log = LoggedData.read(path, arm="v", reward="r", missing_reward="zero")
    assert (log.arms, log.reward.tolist()) == (("2", "x"), [0.0, 3.5, 0.0])


def test_a_workbook_from_europe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "Auswertung.xlsx"
    body = pd.DataFrame({"Gruppe": ["A", "B"] * 6, "Umsatz": ["1.234,50 €", "0"] * 6, "leer": None})
    with pd.ExcelWriter(path) as book:
        pd.DataFrame().to_excel(book, sheet_name="Deckblatt", index=False)
        body.to_excel(book, sheet_name="Mai", index=False, startrow=2)
        pd.DataFrame({"Gruppe": ["C"], "Umsatz": [1]}).to_excel(
            book, sheet_name="Juni", index=False
        )
    for engine in ("calamine", "openpyxl"):
        monkeypatch.setattr(formats, "_engine", lambda path, engine=engine: engine)
        log = LoggedData.read(path, arm="Gruppe", reward="Umsatz")
        assert log.reward.tolist() == [1234.5, 0.0] * 6
        assert "Auswertung.xlsx: sheet 'Mai' is read" in log.notes
        june = LoggedData.read(path, arm="Gruppe", reward="Umsatz", sheet="Juni")
        assert june.n_rows == 1
    with pytest.raises(LogError, match=r"has no sheet 'Juli'; it has Deckblatt, Mai, Juni"):
        LoggedData.read(path, arm="Gruppe", reward="Umsatz", sheet="Juli")


def test_without_a_reader_of_workbooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    path = tmp_path / "l.xlsx"
    pd.DataFrame({"arm": [1], "reward": [0]}).to_excel(path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LogError, match=r"l.xlsx needs a reader of Excel files: pip install"):
        LoggedData.read(path, arm="arm", reward="reward")


def test_an_odd_byte_in_an_unused_column_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    start = "arm,reward,note\n" + "a,0,ä\nb,1,plain\n" * 30_000
    path.write_bytes(start.encode() + b"a,2,\xff\x81\xe4\n")
    log = LoggedData.read(path, arm="arm", reward="reward")
    assert (log.n_rows, log.reward[-1]) == (60_001, 2.0)
    assert log.notes == ()
    assert guess_columns(path).arm == "arm"
    late = LoggedData.read(path, arm="note", reward="reward")
    assert "ÿ\x81ä" in late.arms


# ------------------------------------------------------------------------------ headers, separators


@pytest.mark.parametrize(
    "text",
    [
        "sep=;\narm;reward\na;1,5\nb;0\n",
        " arm , reward \na,1.5\nb,0\n",
        "\narm,reward\na,1.5\nb,0\n",
        'Report of May\n\n"arm","reward"\n"a","1.5"\n"b","0"\n',
        "arm\treward\na\t1.5\nb\t0\n",
        "arm,reward,,\na,1.5,,\nb,0,,\n",
        ",arm,reward,note,note\n0,a,1.5,x,y\n1,b,0,x,y\n",
        "arm,reward\ra,1.5\rb,0\r",
        "arm;reward;text\na;1,5;one, two\nb;0;three, four\n",
    ],
)
def test_headers_as_they_come(text: str, tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text(text, newline="")
    log = LoggedData.read(path, arm="arm", reward="reward")
    assert (log.arms, log.reward.tolist()) == (("a", "b"), [1.5, 0.0])


def test_columns_of_one_name_cannot_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("arm,reward,arm\na,1,b\n")
    with pytest.raises(LogError, match="l.csv has several columns named 'arm'"):
        LoggedData.read(path, arm="arm", reward="reward")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ";;"}, "`sep` must be one character, such as ';'; got ';;'"),
        ({"sep": 3}, "`sep` must be one character"),
        ({"sep": "a"}, "`sep` must be a character that is no part of words"),
        ({"decimal": ";"}, "`decimal` must be '.' or ','; got ';'"),
        ({"encoding": "klingon"}, "`encoding` must name an encoding of text, .*; got 'klingon'"),
        ({"encoding": "base64"}, "`encoding` must name an encoding of text"),
        ({"sheet": "May"}, "`sheet` must be left out for a text file; got 'May'"),
        ({"missing_reward": "none"}, "`missing_reward` must be"),
        ({"strip_labels": 1}, "`strip_labels` must be"),
        ({"encoding": "ascii"}, "l.csv cannot be read as CSV"),
        ({"encoding": "utf-16"}, "l.csv cannot be read as CSV"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("arm,reward\nä,1\nb,0\n")
    with pytest.raises(ValueError, match=message):
        open_log(path, arm="arm", reward="reward", **options)


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "l.zip", "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("b.csv", "y")
    with pytest.raises(LogError, match=r"l.zip must hold one file; it holds 2: a.csv, b.csv"):
        LoggedData.read(tmp_path / "l.zip", arm="arm", reward="reward")


# ------------------------------------------------------------------------------- numbers and times


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["$1,234.50", "$0", "-$3"], [1234.5, 0.0, -3.0]),
        (["1.234,50 €", "0,00 €", "12,5 €"], [1234.5, 0.0, 12.5]),
        (["€ 1.234.567", "7,25"], [1234567.0, 7.25]),
        (["CHF 1'234.50", "CHF 0.05"], [1234.5, 0.05]),
        (["1 234,50 kr", "2\u00a0345,00 kr", "9,00 kr"], [1234.5, 2345.0, 9.0]),
        (["R$ 10,90", "R$ 1.200,00"], [10.9, 1200.0]),
        (["(1,204.50)", "3.25-", "−4.0", "+5"], [-1204.5, -3.25, -4.0, 5.0]),
        (["12.5 %", "0", "100%"], [0.125, 0.0, 1.0]),
        (["1,234", "0"], [1234.0, 0.0]),
        (["0,125", "0"], [0.125, 0.0]),
        (["12,34,567.50", "5"], [1234567.5, 5.0]),
        (["1e3", " 2.5 ", "$0"], [1000.0, 2.5, 0.0]),
        (["TRUE", "false", "True"], [1.0, 0.0, 1.0]),
        (["Yes", "no", "NO "], [1.0, 0.0, 0.0]),
    ],
)
def test_numbers_as_people_write_them(texts: list[str], wanted: list[float]) -> None:
    values = pa.array([*texts, None])
    assert looks_numeric(values, yes_no=True)
    reader = Numbers("x", blank=0.0)
    assert reader.read(values, 0).tolist() == [*wanted, 0.0]
    again = reader.read(values, 0)  # what was found out holds for the next rows
    assert again.tolist() == [*wanted, 0.0]


@pytest.mark.parametrize(
    "text",
    ["SKU12", "2024-05-01", "1.2.3", "12:30", "5 apples", "1,23,4", "$", "--3", "1.5.", "A-1"],
)
def test_other_text_is_no_number(text: str) -> None:
    assert not looks_numeric(pa.array([text, "1"]))
    with pytest.raises(LogError, match="column `x` must hold numbers; row 2 holds"):
        Numbers("x").read(pa.array(["1", text]), 0)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            ["1.5"],
            ["1,5"],
            "must hold numbers with the decimal mark '.'; row 3 holds '1,5' .*--dec",
        ),
        (["1,5"], ["2.25"], "must hold numbers with the decimal mark ','; row 3 holds '2.25'"),
        (["$1", "€2"], [], "must hold one currency; other rows are in \\$ and row 2 holds '€2'"),
        (["$1"], ["3", "2 €"], "must hold one currency; other rows are in \\$ and row 4 holds"),
        (["1.234,50", "1,234.50"], [], "one decimal mark; row 2 holds .* and row 1 "),
        (["5"], ["5%"], "must have a per cent sign in all rows or in none; row 3 holds '5%'"),
        (["5%"], ["5"], "must have a per cent sign in all rows or in none; row 3 holds '5'"),
    ],
)
def test_one_column_is_written_in_one_way(first: Any, second: Any, message: str) -> None:
    reader = Numbers("x")

    def read() -> None:
        reader.read(pa.array(first), 0)
        reader.read(pa.array(second), 2)

    with pytest.raises(LogError, match=message):
        read()


@pytest.mark.parametrize("blank", ["", " ", "-", "n/a", "(not set)", "None", "NaN"])
def test_what_stands_for_no_number_is_missing(blank: str) -> None:
    values = pa.array(["$1.50", blank, "2.5"])
    assert looks_numeric(values)
    assert Numbers("x", blank=0.0).read(values, 0).tolist() == [1.5, 0.0, 2.5]
    with pytest.raises(LogError, match="row 2 is missing"):
        Numbers("x").read(values, 0)


def test_a_mark_that_may_be_either_follows_the_file() -> None:
    point, comma = Numbers("x"), Numbers("x", comma_likely=True)
    assert point.read(pa.array(["1.234", "7"]), 0).tolist() == [1.234, 7.0]
    assert comma.read(pa.array(["1.234", "7"]), 0).tolist() == [1234.0, 7.0]
    assert comma.notes == [
        "column `x`: '1.234' is read with the decimal mark ',' (say --decimal '.' if that is wrong)"
    ]
    assert Numbers("x", decimal=",").read(pa.array(["1,234"]), 0).tolist() == [1.234]
    # an unmistakable value in the same rows decides
    assert Numbers("x", comma_likely=True).read(pa.array(["1.234", "0.5"]), 0).tolist() == [
        1.234, 0.5
    ]  # fmt: skip


NOON = 1714564800.0  # 2024-05-01 12:00 UTC


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01T12:00:00", "2024-05-01 12:00", "2024-05-01T12:00:00Z",
        "2024-05-01T14:00:00+02:00", "2024-05-01 08:00:00 -0400", "2024-05-01 12:00:00.000000 UTC",
        "2024-05-01T12:00:00.000000000Z", "01.05.2024 12:00", "5/13/2024 12:00",
        "13/05/2024 12:00:00", "May 1, 2024 12:00 PM", "01-May-2024 12:00", "2024/05/01 12:00",
        "1714564800", "1714564800000", "1714564800000000",
    ],
)  # fmt: skip
def test_times_as_people_write_them(text: str) -> None:
    seconds = Times("at", day_first="." in text).read(pa.array([text, text]), 0)
    wanted = NOON + 12 * 86_400 if "13" in text.replace("00000000Z", "") else NOON
    if text.isdigit():
        wanted = NOON
    assert seconds.tolist() == [wanted, wanted]


def test_a_date_that_may_be_either_follows_the_file() -> None:
    text = pa.array(["03/04/2024"])
    american, european = Times("at"), Times("at", day_first=True)
    days = [int(reader.read(text, 0)[0] // 86_400) for reader in (american, european)]
    start = np.datetime64("1970-01-01")
    assert [str(start + day) for day in days] == ["2024-03-04", "2024-04-03"]
    assert "'03/04/2024' is read with the month first" in american.notes[-1]
    with pytest.raises(LogError, match=r"row 8 holds '13/04/2024'"):
        american.read(pa.array(["03/04/2024", "13/04/2024"]), 6)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["2024-05-01", "2024-05-01T12:00:00Z"], "with a zone in all rows or in none; row 2 holds"),
        (["2024-05-01", "soon"], r"must hold numbers or dates .*; row 2 holds 'soon'"),
        (["20240501", "20241301"], None),
        (["soon"], "row 1 holds 'soon'"),
        (["2024-05-01", None], "must hold a time in every row; row 2 is missing"),
    ],
)
def test_bad_times_are_named(texts: list[str | None], message: str | None) -> None:
    if message is None:  # a number that is no day stays a number
        assert Times("at").read(pa.array(texts), 0).tolist() == [20240501.0, 20241301.0]
        return
    with pytest.raises(LogError, match=message):
        Times("at").read(pa.array(texts), 0)


# ------------------------------------------------------------------------------------------- doubts


def test_labels_that_look_alike_are_flagged(tmp_path: Path) -> None:
    frame = pd.DataFrame({"arm": ["C", "C ", "d", "D"], "reward": [0.0, 1.0, 0.0, 2.0]})
    with pytest.warns(UserWarning, match=r"look alike .*'C' and 'C '; 'D' and 'd'; .*--strip-lab"):
        log = LoggedData.from_frame(frame, arm="arm", reward="reward")
    assert len(log.arms) == 4
    clean = LoggedData.from_frame(frame[:2], arm="arm", reward="reward", strip_labels=True)
    assert clean.arms == ("C",)


def test_a_row_of_totals_is_flagged() -> None:
    frame = pd.DataFrame({"arm": ["a", "b", "Grand Total"], "reward": [0.0, 1.0, 1.0]})
    with pytest.warns(UserWarning, match="holds 'Grand Total', as if a row of totals"):
        LoggedData.from_frame(frame, arm="arm", reward="reward")


def test_lists_are_no_labels() -> None:
    frame = pd.DataFrame({"arm": [["a"], ["b"]], "reward": [0.0, 1.0], "who": ["u", "v"]})
    for roles in ({"arm": "arm"}, {"arm": "who", "unit": "arm"}, {"arm": "who", "cluster": "arm"}):
        with pytest.raises(LogError, match=r"column `arm` must hold one .* in every row; it holds"):
            LoggedData.from_frame(frame, reward="reward", **roles)


def test_a_file_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("a,1.5\nb,0\n")
    with pytest.raises(LogError, match=r"has no column 'arm' .*\. Is the first line a header\?"):
        LoggedData.read(path, arm="arm", reward="reward")


def test_late_columns_are_flagged_as_context() -> None:
    rng = np.random.default_rng(2)
    n = 2_000
    arm = rng.integers(0, 3, n)
    click = rng.random(n) < 0.2
    paid = click & (rng.random(n) < 0.3)
    frame = pd.DataFrame(
        {
            "arm": arm,
            "reward": np.where(paid, 10.0, 0.0),
            "age": rng.normal(size=n),
            "items": np.where(paid, 2, 0),
            "clicked": click.astype(int),
            "subject": np.array(["hello", "hi", "dear"])[arm],
            "user_id": rng.permutation(n),
            "conversion_time": np.where(paid, 3.5, np.nan),
        }
    )

    def doubts(*context: str) -> list[str]:
        with pytest.warns(UserWarning, match="leave it out of the context") as caught:
            LoggedData.from_frame(frame, arm="arm", reward="reward", context=context)
        return [str(warning.message) for warning in caught]

    assert "`items` tells exactly whether the reward is 0" in doubts("age", "items")[0]
    assert "`clicked` is not 0 wherever the reward is not 0" in doubts("clicked")[0]
    assert "`subject` follows from the arm" in doubts("subject")[0]
    assert "`user_id` looks like an id" in doubts("user_id")[0]
    with pytest.raises(LogError, match="`conversion_time` is filled only where the reward is not"):
        LoggedData.from_frame(frame, arm="arm", reward="reward", context=["conversion_time"])
    LoggedData.from_frame(frame, arm="arm", reward="reward", context=["age"])  # no warning


def test_rows_that_occur_twice_are_counted() -> None:
    rng = np.random.default_rng(1)
    n = 500
    frame = pd.DataFrame(
        {
            "id": [f"u{i}" for i in range(n)],
            "arm": rng.integers(0, 2, n),
            "spend": rng.integers(0, 2, n),
        }
    )
    assert guess_columns(frame).doubts == ()
    assert guess_columns(frame[["arm", "spend"]]).doubts == ()  # equal by chance
    twice = pd.concat([frame, frame[:7]])
    found = guess_columns(twice)
    assert found.doubts[0].startswith("7 of 507 rows equal an earlier row in every column")
    assert "7 of 507 rows repeat a value" in found.reasons[-1]


def test_amounts_in_several_currencies_are_doubted() -> None:
    frame = pd.DataFrame({"arm": ["a", "b"] * 9, "spend": [0.0, 2.0] * 9, "Currency": ["USD"] * 18})
    assert guess_columns(frame).doubts == ()
    frame.loc[3, "Currency"] = "EUR"
    (doubt,) = guess_columns(frame).doubts
    assert doubt.startswith("column `Currency` names several currencies (USD, EUR)")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("propensity", [0.5, 1.4], r"holds 1.4 in row 2, outside \(0, 1\]"),
        ("propensity", [50.0, 25.0], r"holds 50 in row 1, outside \(0, 1\] \(per cent\?"),
        ("pscore", [0.5, 0.0], "holds 0 in row 2"),
        ("prob", [0.5, np.nan], "is missing in 100 of 200 rows"),
        ("action_prob", [1.0, 1.0], "is 1 in every row"),
        ("p", [0.5, 0.0] + [0.25] * 30, "holds 0 in row 2"),
        ("propensity", ["low", "high"], "holds 'low'"),
    ],
)
def test_a_bad_propensity_is_an_error(name: str, values: list[Any], message: str) -> None:
    column = (values * 200)[:200]
    frame = pd.DataFrame({"arm": ["a", "b"] * 100, "reward": [0.0, 1.0] * 100, name: column})
    with pytest.raises(LogError, match=rf"column `{name}` of the frame is called .*{message}"):
        guess_columns(frame)
    assert guess_columns(frame, propensity="").propensity is None


def test_a_letter_may_stand_for_anything() -> None:
    frame = pd.DataFrame({"arm": ["a", "b"] * 100, "reward": [0.0, 1.0] * 100, "p": [3, 7] * 100})
    found = guess_columns(frame)
    assert found.propensity is None
    assert "propensity: none, since `p` holds 3 in row 1, outside (0, 1]" in found.reasons
