"""Compiled code is read only where nobody else can write; damaged files cost one warning."""

from __future__ import annotations

import errno
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numba
import pytest

from zib.core import cache, files, sources
from zib.theory.bernoulli import hoeffding_radius_scalar

needs_users = pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners here")
compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def test_the_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    assert cache._problem(tmp_path / "a" / "b") is None
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@needs_users
@pytest.mark.parametrize("mode", [0o770, 0o720, 0o777, 0o702])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert cache._problem(tmp_path) == "other users can write to it"


@needs_users
def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert cache._problem(tmp_path) == "it belongs to another user"


@needs_users
def test_a_folder_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    tmp_path.chmod(0o777)
    assert "other users can rename it" in (cache._problem(tmp_path / "cache") or "")
    tmp_path.chmod(0o1777)  # sticky, as /tmp is: only owners rename
    assert cache._problem(tmp_path / "cache") is None


@needs_users
def test_a_refused_folder_costs_one_warning(tmp_path: Path, monkeypatch: Any) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ZIB_CACHE", "1")
    with pytest.warns(RuntimeWarning, match="other users can write to it.*only you can") as caught:
        assert cache._choose_folder() is None
    assert len(caught) == 1


@needs_users
def test_what_others_could_have_written_about_our_sources_is_not_believed(tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    memory.write_text('{"x": ["a", []]}')
    assert sources._remembered(memory) == {"x": ["a", []]}
    for text in ("[1]", '{"x": 1}', '{"x": [1, 2]}', "{"):
        memory.write_text(text)
        assert sources._remembered(memory) == {}
    memory.write_text('{"x": ["a", []]}')
    tmp_path.chmod(0o777)
    assert sources._remembered(memory) == {}


# ------------------------------------------------------------------------------------ damaged files


class Planted:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: Any) -> Path:
    """A cache folder in which one function was kept."""
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    monkeypatch.setattr(cache, "_told", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()
    return tmp_path


def run() -> float:
    return float(cache.cached_ufunc(hoeffding_radius_scalar)(100.0, 3.0))


def files_of(folder: Path) -> list[Path]:
    found = list(folder.rglob("*.nbc"))
    assert found
    return found


@compiled
@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "planted"])
def test_a_damaged_file_costs_one_warning_and_is_made_again(
    kept: Path, tmp_path: Path, damage: str
) -> None:
    mark = tmp_path / "mark"
    for file in files_of(kept):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        made = {
            "cut": bytes(content[: len(content) // 2]),
            "empty": b"",
            "flipped": bytes(content),
            "planted": pickle.dumps(Planted(mark)),
        }
        file.write_bytes(made[damage])
    with pytest.warns(RuntimeWarning, match="cannot use its cache of compiled code") as caught:
        assert run() == hoeffding_radius_scalar(100.0, 3.0)
    assert len(caught) == 1
    assert not mark.exists()
    written = {file: file.stat().st_mtime_ns for file in files_of(kept)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run() == hoeffding_radius_scalar(100.0, 3.0)
    assert written == {file: file.stat().st_mtime_ns for file in files_of(kept)}  # read


@compiled
def test_a_full_disk_costs_one_warning(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    monkeypatch.setattr(cache, "_told", False)

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_atomically", full)
    with pytest.warns(RuntimeWarning, match="No space left") as caught:
        found = [run(), run()]
    assert found == [hoeffding_radius_scalar(100.0, 3.0)] * 2
    assert len(caught) == 1


def test_what_two_processes_keep_at_the_same_time_does_not_mix(tmp_path: Path) -> None:
    one, other = (cache._SealedFiles(str(tmp_path), "play", pickle.dumps) for _ in range(2))
    one.save(("spec", 1), "code of the first")
    other.save(("spec", 2), "code of the second")
    assert (one.load(("spec", 2)), other.load(("spec", 1)), one.load(("spec", 3))) == (
        "code of the second",
        "code of the first",
        None,
    )
    one.path_of(("spec", 2)).replace(one.path_of(("spec", 1)))  # as if their names were the same
    assert one.load(("spec", 1)) is None


@compiled
def test_folders_inside_are_made_for_their_owner_only(kept: Path) -> None:
    for file in files_of(kept):
        assert file.parent.stat().st_mode & 0o777 == 0o700


# ------------------------------------------------------------------------------------ atomic writes


def test_an_existing_file_keeps_its_mode_and_a_link_its_target(tmp_path: Path) -> None:
    file, link = tmp_path / "real.json", tmp_path / "link.json"
    file.write_text("old")
    file.chmod(0o664)
    link.symlink_to(file)
    files.write_atomically(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o664
    files.write_atomically(tmp_path / "other", b"x")
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "other", "real.json"]


def test_the_folder_is_synced_after_the_new_name_is_there(tmp_path: Path, monkeypatch: Any) -> None:
    synced = []
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, (tmp_path / "a").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    files.write_atomically(tmp_path / "a", "text")
    assert synced[-1] == (tmp_path.stat().st_ino, True)
    assert len(synced) == 2


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "a").write_text("old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomically(tmp_path / "a", "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "old")]
