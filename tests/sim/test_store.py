"""The store: whole files or none, damage noticed, claims, housekeeping."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from zib import InvalidParameterError
from zib.sim import Store
from zib.sim.store import as_store, default_folder

KEY = "ab" + 62 * "0"
ARRAYS = {"regret": np.arange(6.0).reshape(2, 3), "pulls": np.array([[1, 2]], dtype=np.int64)}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_what_is_put_comes_back(store):
    assert store.get(KEY) is None
    assert KEY not in store
    store.put(KEY, ARRAYS, {"policy": "ä"})
    assert KEY in store
    found = Store(store.folder).get(KEY)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    assert store.about(KEY)["policy"] == "ä"
    assert "written" in store.about(KEY)


@pytest.mark.parametrize("content", [b"", b"some text" * 100])
def test_bytes(store, content):
    assert store.get_bytes(KEY) is None
    store.put_bytes(KEY, content, {})
    assert store.get_bytes(KEY) == content


def test_any_damaged_byte_and_any_cut_is_noticed(store):
    store.put(KEY, ARRAYS, {})
    path = store.path_of(KEY)
    whole = path.read_bytes()
    damaged = [whole[:n] for n in range(0, len(whole), 7)]
    for at in range(0, len(whole), 5):
        damaged.append(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
    for content in damaged:
        path.write_bytes(content)
        with pytest.warns(RuntimeWarning, match="is damaged .* computed again") as caught:
            assert store.get(KEY) is None
        assert str(path) in str(caught[0].message)
        assert not path.exists()
    path.write_bytes(whole)
    assert store.get(KEY) is not None


def test_a_block_is_a_plain_npz_file(store):
    """Anybody can read it: NumPy, and the checksum with any archive tool."""
    store.put(KEY, ARRAYS, {"policy": "a"})
    path = store.path_of(KEY)
    with np.load(path, allow_pickle=False) as data:
        assert np.array_equal(data["regret"], ARRAYS["regret"])
        assert json.loads(str(data["meta"]))["key"] == KEY
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        checksum = archive.comment.decode()
    assert checksum == hashlib.sha256(path.read_bytes()[: -len(checksum)]).hexdigest()


def test_a_file_under_a_wrong_name_is_not_believed(store):
    store.put(KEY, ARRAYS, {})
    other = "ab" + 62 * "1"
    store.path_of(KEY).rename(store.path_of(other))
    with pytest.warns(RuntimeWarning, match="belongs to another key"):
        assert store.get(other) is None


def test_unreadable_file_counts_as_absent(store, monkeypatch):
    store.put(KEY, ARRAYS, {})

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.warns(RuntimeWarning, match="cannot be read .Permission denied"):
        assert store.get(KEY) is None


def _hold(folder, ready, stop):
    claim = Store(folder).claim(KEY)
    assert claim is not None
    ready.set()
    stop.wait(60)
    os._exit(0)  # without giving the claim up, as a killed process would


def test_a_claim_is_for_one_and_ends_with_its_process(store):
    with store.claim(KEY) as claim:
        assert claim is not None
        assert Store(store.folder).claim(KEY) is None
    again = store.claim(KEY)
    assert again is not None
    again.release()
    again.release()  # twice does no harm
    assert not list(store.folder.rglob("*.lock"))

    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    child = context.Process(target=_hold, args=(store.folder, ready, stop))
    child.start()
    try:
        assert ready.wait(60)
        assert store.claim(KEY) is None
    finally:
        stop.set()
        child.join(60)
    claim = store.claim(KEY)
    assert claim is not None
    claim.release()


def test_claims_are_granted_where_locks_do_not_work(store, monkeypatch):
    import filelock

    def refuse(self, **options):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    assert store.claim(KEY) is not None


def test_info_clear_and_files_of_others(store):
    assert store.info()[1:] == (0, 0, 0)
    for i in range(3):
        store.put(f"{i}{i}" + 62 * "a", ARRAYS, {})
    left = store.folder / "00" / f".{KEY}.npz.x8z"
    left.write_bytes(b"half")
    note = store.folder / "00" / "notes.txt"
    note.write_text("mine")
    mine = store.folder / "00" / "results.npz"
    mine.write_bytes(b"mine too")
    old = store.folder / "00" / f"{KEY}.zib"  # as earlier versions wrote it
    old.write_bytes(b"old")
    claim = store.claim(KEY)
    info = store.info()
    assert info.files == 3
    assert info.size == sum(p.stat().st_size for p in store.folder.rglob("*aa.npz"))
    assert info.leftovers == 3  # one half-written, one claimed, one old
    claim.release()
    store.clear()
    assert {p for p in store.folder.rglob("*") if p.is_file()} == {note, mine}
    assert store.info().files == 0
    assert Store(store.folder / "nowhere").clear().files == 0


def test_old_half_written_files_are_swept(store):
    store.put(KEY, ARRAYS, {})
    old, young = (store.folder / "ab" / f".{KEY}.npz.{x}" for x in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, time.time() - 2 * 3600))
    Store(store.folder).put("ac" + KEY[2:], ARRAYS, {})
    assert not old.exists()
    assert young.exists()
    assert KEY in store


def test_where_a_store_is(tmp_path, monkeypatch):
    monkeypatch.delenv("ZIB_STORE", raising=False)
    assert Store().folder == default_folder()
    monkeypatch.setenv("ZIB_STORE", str(tmp_path / "elsewhere"))
    assert Store().folder == tmp_path / "elsewhere"
    assert as_store(True).folder == tmp_path / "elsewhere"
    assert as_store(None) is as_store(False) is None
    store = Store(tmp_path)
    assert as_store(store) is store
    assert as_store(str(tmp_path)).folder == as_store(tmp_path).folder == tmp_path
    with pytest.raises(InvalidParameterError, match="`store` must be True, False, a folder"):
        as_store(3)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidParameterError, match="is a file"):
        Store(tmp_path / "file")


def _write(folder, n):
    warnings.simplefilter("error")
    store = Store(folder)
    for _ in range(n):
        for i in range(5):
            store.put(f"{i}{i}" + 62 * "a", {"x": np.full(20_000, float(i))}, {})


@pytest.mark.slow
def test_writers_and_readers_at_once_see_whole_files_only(store):
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_write, args=(store.folder, 8)) for _ in range(2)]
    for child in children:
        child.start()
    reads = 0
    while any(child.is_alive() for child in children):
        for i in range(5):
            found = store.get(f"{i}{i}" + 62 * "a")  # a warning would be an error
            if found is not None:
                reads += 1
                assert (found["x"] == i).all()
    assert [child.exitcode for child in children] == [0, 0]
    assert reads > 0
    assert store.info()[1:] == (5, store.info().size, 0)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no groups here")
def test_a_store_is_private_unless_a_group_shares_it(tmp_path, monkeypatch) -> None:
    before = os.umask(0o077)
    try:
        for shared, folders, files in ((False, 0o700, 0o600), (True, 0o2770, 0o660)):
            store = Store(tmp_path / str(shared), shared=shared)
            store.put("ab12", {"x": np.arange(3.0)}, {})
            path = store.path_of("ab12")
            for folder in (store.folder, path.parent):
                assert folder.stat().st_mode & 0o7777 == folders
            assert path.stat().st_mode & 0o7777 == files
            with store.claim("ab13") as claim:
                assert claim is not None
    finally:
        os.umask(before)
    monkeypatch.setenv("ZIB_STORE_SHARED", "1")
    assert Store(tmp_path).shared


@pytest.mark.skipif(getattr(os, "getuid", lambda: 1)() != 0, reason="only root can be two users")
def test_two_users_of_a_group_share_a_store() -> None:
    group, folder = 54321, Path(tempfile.mkdtemp())
    folder.chmod(0o2770)
    os.chown(folder, 0, group)
    store = Store(folder, shared=True)
    store.put("ab12", {"x": np.arange(3.0)}, {})

    def as_member(groups: list[int]) -> int:
        child = os.fork()
        if child == 0:
            try:
                os.setgroups(groups)
                os.setgid(65534)
                os.setuid(65534)
                found = store.get("ab12")
                store.put("ab34", {"x": np.arange(4.0)}, {})
                store.put("ab12", {"x": np.arange(3.0)}, {})  # replaced by another user
                os._exit(0 if found is not None else 2)
            except BaseException:
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    try:
        assert as_member([]) == 1
        assert as_member([group]) == 0
        assert store.get("ab34")["x"].size == 4
    finally:
        shutil.rmtree(folder)
