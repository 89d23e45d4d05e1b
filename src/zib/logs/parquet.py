"""Parquet files: one, a folder of them (also partitioned by its subfolders), here or by URL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from zib.logs.tables import (
    BATCH,
    PARQUET_ENDS,
    LogError,
    Table,
    first_line,
    is_url,
    refusing,
    usual,
)

_NOTHING = "__HIVE_DEFAULT_PARTITION__"


class _File(NamedTuple):
    """One file: how many rows each of its row groups has, and the values of its folders."""

    path: str
    groups: tuple[int, ...]
    parts: dict[str, str]

    @property
    def rows(self) -> int:
        return sum(self.groups)


class ParquetTable(Table):
    """One Parquet file, or all those of a folder in the order of their names.

    Subfolders such as ``day=2024-05-01`` are columns. Rows have numbers, so that parts of the table
    can be read apart (`rows`), on other machines too.
    """

    def __init__(self, source: str | Path) -> None:
        self._url = str(source) if is_url(source) else None
        self._root = ""
        files, base = self._find(source)
        self._files: list[_File] = []
        own: tuple[str, ...] = ()
        for path in files:
            with self._open(path) as parquet:
                names = tuple(parquet.schema_arrow.names)
                meta = parquet.metadata
                groups = tuple(meta.row_group(i).num_rows for i in range(meta.num_row_groups))
            parts = _partition(path[len(base) :])
            if not self._files:
                own, labels = names, tuple(parts)
            elif set(names) != set(own) or tuple(parts) != labels:
                raise LogError(f"{_name(path)} has other columns than {_name(files[0])}")
            self._files.append(_File(path, groups, parts))
        self._labels = tuple(label for label in labels if label not in own)
        self._name_columns((*own, *self._labels))
        self._whole = {
            label: all(re.fullmatch(r"-?\d{1,18}", file.parts[label]) for file in self._files)
            for label in self._labels
        }

    @property
    def n_rows(self) -> int:
        """Number of rows, from what the files say about themselves."""
        return sum(file.rows for file in self._files)

    def _find(self, source: str | Path) -> tuple[list[str], str]:
        """Return the paths of all files, and the folder they are in."""
        from pyarrow.fs import FileSelector, FileType

        fs, root = self._system(source)
        self.name = _name(root) or root
        try:
            info = fs.get_file_info(root)
            if info.type == FileType.NotFound:
                raise LogError(f"there is no file {source}")
            if info.type == FileType.File:
                return [root], root.rpartition("/")[0]
            found = [
                file.path
                for file in fs.get_file_info(FileSelector(root, recursive=True))
                if file.type == FileType.File
                and file.path.lower().endswith(PARQUET_ENDS)
                and not _name(file.path).startswith((".", "_"))
            ]
        except OSError as error:
            raise LogError(f"{source} cannot be reached: {first_line(error)}") from None
        if not found:
            raise LogError(f"the folder {source} has no Parquet files")
        return sorted(found, key=lambda path: path.split("/")), info.path

    def _system(self, source: str | Path | None = None) -> tuple[Any, str]:
        """Return the file system and the path in it; connections are not kept, so tables travel."""
        from pyarrow import fs

        if self._url is None:
            return fs.LocalFileSystem(), str(source)
        return file_system(self._url)

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Return times and sizes of the files, by which a change is noticed."""
        fs, _ = self._system()
        info = fs.get_file_info([file.path for file in self._files])
        return tuple((int(i.mtime_ns or 0), int(i.size or 0)) for i in info)

    def _open(self, path: str) -> Any:
        import pyarrow.parquet as pq

        with refusing(_name(path), "Parquet"):
            # pre-buffering would keep the whole file in memory
            return pq.ParquetFile(self._system()[0].open_input_file(path), pre_buffer=False)

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        yield from self.rows(columns, 0, self.n_rows, size)

    def rows(
        self, columns: Sequence[str], start: int, stop: int, size: int = BATCH
    ) -> Iterator[Any]:
        """Yield the rows from number `start` to before `stop`."""
        before = 0
        for file in self._files:
            ends = before + np.cumsum([0, *file.groups])
            before = int(ends[-1])
            if ends[-1] <= start or ends[0] >= stop:
                continue
            groups = [i for i in range(len(file.groups)) if ends[i + 1] > start and ends[i] < stop]
            if groups:
                skip = max(start - int(ends[groups[0]]), 0)
                take = min(stop, int(ends[-1])) - max(start, int(ends[groups[0]]))
                yield from self._read(file, columns, groups, skip, take, size)

    def _read(
        self,
        file: _File,
        columns: Sequence[str],
        groups: list[int],
        skip: int,
        take: int,
        size: int,
    ) -> Iterator[Any]:
        own = [name for name in columns if name not in self._labels] or [self.columns[0]]
        with self._open(file.path) as parquet, refusing(_name(file.path), "Parquet"):
            for batch in parquet.iter_batches(batch_size=size, row_groups=groups, columns=own):
                rows = batch.slice(skip, take)
                skip, take = max(skip - batch.num_rows, 0), take - rows.num_rows
                if rows.num_rows:
                    yield self._with_labels(usual(rows), file, columns)
                if take == 0:
                    return

    def _with_labels(self, batch: Any, file: _File, columns: Sequence[str]) -> Any:
        """Add the columns that the folders stand for."""
        import pyarrow as pa

        if not any(name in self._labels for name in columns):
            return batch
        return pa.record_batch(
            [
                self._label(file.parts[name], name, batch.num_rows)
                if name in self._labels
                else batch.column(name)
                for name in columns
            ],
            names=list(columns),
        )

    def _label(self, text: str, name: str, size: int) -> Any:
        import pyarrow as pa

        if text == _NOTHING:
            return pa.nulls(size, pa.string())
        value = pa.scalar(int(text) if self._whole[name] else text)
        return pa.repeat(value, size)


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _partition(path: str) -> dict[str, str]:
    """Return what the folders of a path say: ``{"day": "1"}`` for ``day=1/part.parquet``."""
    found = {}
    for folder in path.split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if equals and name:
            found[unquote(name)] = unquote(value)
    return found


def file_system(url: str) -> tuple[Any, str]:
    """Return Arrow's file system for a URL, or fsspec's, and the path in it."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        pass
    except OSError as error:
        raise LogError(f"{url} cannot be reached: {first_line(error)}") from None
    else:
        return system, path
    try:
        import fsspec  # type: ignore[import-untyped]

        found, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise LogError(
            f"{url} cannot be reached: {first_line(error)} (other file systems than Arrow's need "
            "the package fsspec and one for the kind of URL)"
        ) from None
    return fs.PyFileSystem(fs.FSSpecHandler(found)), path
