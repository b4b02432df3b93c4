"""Bounded reading of user files: no more bytes are read than the limits allow, whatever the file is."""

import gzip
import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import pyarrow as pa
from annotated_types import Ge, Le

from mezzotint.traces.error import TraceError

FREE_BYTES = 1 << 26
"""Unpacked bytes up to which no ratio is suspicious."""

RATIO = 200
"""Unpacked over packed bytes above which a file counts as a decompression bomb; tables of text reach 5 to 50."""

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ZIP = b"PK\x03\x04"
PARQUET = b"PAR1"
OTHERS = (
    (rb"BZh\d", "bzip2", "unpack it with bunzip2"),
    (rb"\xfd7zXZ", "xz", "unpack it with unxz"),
    (rb"7z\xbc\xaf", "7-Zip", "unpack it"),
    (rb"SQLite format 3\0", "an SQLite database", "export the table as CSV (sqlite3 -header -csv)"),
    (rb"ORC[\x00-\x1f\x80-\xff]", "ORC", "write it as Parquet"),
    (rb"Obj\x01", "Avro", "write it as Parquet"),
    (rb"\xd0\xcf\x11\xe0", "a workbook of old Excel", "save the sheet as CSV UTF-8"),
    (rb"%PDF-", "PDF", "export the table as CSV"),
)
"""Starts of files of kinds that are not read, as regular expressions, what they are, and what to do with them."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the size of a source; a larger one counts as a mistake or an attack.

    Args:
        max_prompt_bytes: bytes of the longest text in a cell, in UTF-8; published traces have some thousands.
        max_bytes: bytes of the file once unpacked. None allows 64 MiB, or 200 times the bytes on disk if that is more.
    """

    max_prompt_bytes: Annotated[int, Ge(1), Le(1 << 40)] = 1 << 20
    max_bytes: Annotated[int, Ge(1), Le(1 << 50)] | None = None

    def check(self, unpacked: int, packed: int, where: str) -> None:
        """Raise TraceError if `unpacked` bytes, from `packed` bytes on disk, are more than allowed."""
        if self.max_bytes is not None:
            if unpacked > self.max_bytes:
                raise TraceError(
                    f"{where}: found more than {self.max_bytes:,} bytes of content, expected at most that;"
                    " raise --max-bytes, or name another file"
                )
        elif unpacked > max(FREE_BYTES, RATIO * packed):
            raise TraceError(
                f"{where}: found over {unpacked:,} bytes packed into {packed:,}, expected at most {RATIO} times as"
                " many; if you trust the file, allow its size with --max-bytes"
            )


def regular_file(path: Path) -> os.stat_result:
    """Return the state of a regular file.

    Raises:
        TraceError: there is no such file, it is a folder, a pipe or a device, its links form a cycle, or permission is
            lacking.
    """
    try:
        state = os.stat(path)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file; check the path") from error
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(state.st_mode):
        shards = "; `mezzotint trace import huggingface` reads all of a folder's tables" if _has_tables(path) else ""
        raise TraceError(f"{path}: is a folder, expected a file; name the file inside it{shards}")
    if not stat.S_ISREG(state.st_mode):
        raise TraceError(f"{path}: is a pipe or a device, expected a file; save its content to one first")
    return state


def _has_tables(folder: Path) -> bool:
    """Return True if a folder holds several tables, as a data set in shards does."""
    return len([file for file in folder.iterdir() if file.suffix in (".parquet", ".csv", ".jsonl")]) > 1


def unreadable(path: Path, error: Exception) -> TraceError:
    """Return the error for a file that the system does not open or read."""
    reason = getattr(error, "strerror", None) or str(error)
    return TraceError(f"{path}: cannot be read ({reason}), expected a file; check the path and its permissions")


@contextmanager
def unchanged(path: Path) -> Iterator[os.stat_result]:
    """Yield the state of a file, and check that it is the same when the block ends.

    Raises:
        TraceError: see `regular_file`; or size or modification time changed during the block. This error replaces the
            block's own, since half a row at the end of a file being written is no fault of the row.
    """
    before = regular_file(path)
    found: TraceError | None = None
    try:
        yield before
    except TraceError as error:
        found = error
    after = regular_file(path)
    if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
        raise TraceError(
            f"{path}: found {after.st_size:,} bytes at the end of reading, expected the {before.st_size:,} from its"
            " start; wait until the file is finished, then import it again"
        ) from found
    if found is not None:
        raise found


@contextmanager
def open_bounded(path: Path, limits: Limits) -> Iterator[BinaryIO]:
    """Open a text file, plain or packed (see `open_unpacked`), without the byte order mark of UTF-8.

    Raises:
        TraceError: the file is UTF-16, or Parquet, or changes (see `unchanged`). Reading raises it if the file is
            truncated, damaged, or larger than allowed.
    """
    with open_unpacked(path, limits) as stream:
        head = stream.peek(4)[:4]
        if head == PARQUET:
            raise TraceError(
                f"{path}: is Parquet, expected text; `trace import table` reads tables of requests in Parquet, and"
                " `trace import diffusiondb` DiffusionDB's"
            )
        if head[:2] in UTF16:
            raise TraceError(f"{path}: is UTF-16, expected UTF-8 text; convert it, for example with iconv")
        if head[:3] == b"\xef\xbb\xbf":
            stream.read(3)
        yield stream


@contextmanager
def open_unpacked(path: Path, limits: Limits) -> Iterator[io.BufferedReader]:
    """Open a file, unpacked if its content is gzip, zstd, or zip with one member.

    Raises:
        TraceError: the file cannot be opened, or changes (see `unchanged`). Reading raises it if the file is
            truncated, damaged, or larger than allowed.
    """
    with unchanged(path) as state:
        try:
            with path.open("rb") as raw:
                yield io.BufferedReader(_Bounded(raw, path, limits, state.st_size), 1 << 16)
        except OSError as error:
            raise unreadable(path, error) from error


def _member(raw: BinaryIO, path: Path) -> BinaryIO:
    """Open the one member of a zip file."""
    try:
        archive = zipfile.ZipFile(raw)
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        names = [name for name in names if not name.startswith("__MACOSX/")]
        if "[Content_Types].xml" in names:
            raise TraceError(f"{path}: is an Excel workbook, expected a table; save the sheet as CSV UTF-8")
        if len(names) != 1:
            raise TraceError(f"{path}: found {len(names)} files in the zip, expected one; unpack it and name one")
        return archive.open(names[0])  # type: ignore[return-value]
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:  # the latter two: encrypted, odd packing
        raise TraceError(f"{path}: cannot be unpacked ({error}), expected a whole zip file; fetch it again") from error


class _Bounded(io.RawIOBase):
    """A file's content, unpacked if packed, with a bound on the bytes returned."""

    def __init__(self, raw: BinaryIO, path: Path, limits: Limits, packed: int) -> None:
        self._path, self._limits, self._packed, self._unpacked = path, limits, packed, 0
        start = raw.peek(16)  # type: ignore[attr-defined]
        for mark, kind, remedy in OTHERS:
            if re.match(mark, start):
                raise TraceError(f"{path}: is {kind}, expected text, Parquet or Arrow; {remedy}")
        head = start[:4]
        self._content: Any = raw
        self._kind = ""
        if head[:2] == GZIP:
            self._kind, self._content = "gzip", gzip.GzipFile(fileobj=raw)
        elif head == ZSTD:
            self._kind, self._content = "zstd", pa.CompressedInputStream(pa.PythonFile(raw), "zstd")
        elif head == ZIP:
            self._kind, self._content = "zip", _member(raw, path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._kind:
            # otherwise a file that grows as fast as it is read would have no end
            buffer = memoryview(buffer)[: self._packed - self._unpacked]
        try:
            count = int(self._content.readinto(buffer))
        except (EOFError, zlib.error, zipfile.BadZipFile, OSError) as error:
            if not self._kind:
                raise
            raise TraceError(
                f"{self._path}: cannot be unpacked ({error}), expected a whole {self._kind} file; fetch it again"
            ) from error
        self._unpacked += count
        self._limits.check(self._unpacked, self._packed, str(self._path))
        return count
