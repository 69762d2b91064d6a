"""Tars: unpacked as they come, for they cannot be read in another order than their own."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from streammem.connectors.report import Report
from streammem.errors import SourceError

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

_TEXTS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".json.partial")
_MOUTHFUL = 16 << 20
_PACKERS: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
"""By the first two bytes of what they write."""
_BROKEN = (
    *(tarfile.TarError, OSError, EOFError, ValueError, OverflowError, RecursionError),
    *(zlib.error, lzma.LZMAError, struct.error),
)


def unpacked(path: Path, folder: Path, limit: int, report: Report) -> dict[str, Path]:
    """Where in `folder` each text of a tar now lies, by its name; together they take no more than `limit` bytes.

    Files are numbered there: no name in a tar can do harm. Raises SourceError for what is no tar, and for want of room.
    """
    taken = _Taken(path, folder, limit, report)
    try:
        with _plain(path) as stream, tarfile.open(fileobj=cast("IO[bytes]", _Sips(stream)), mode="r:") as packed:
            for member in packed:
                taken.take(packed, member)
    except _BROKEN as error:
        if not taken.files:
            raise SourceError(f"{path}: not a readable tar file ({error})") from None
        report.cut_short(f"damaged after {len(taken.files)} files: {error}", path.name, path.name)
    return taken.files


def _plain(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        begins = stream.read(2)
    return cast("IO[bytes]", _PACKERS[begins](path)) if begins in _PACKERS else path.open("rb")


class _Sips:
    """A stream of which nobody takes much at once: the headers of a tar may claim any length."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek = stream.seek
        self.tell = stream.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MOUTHFUL:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        return self._stream.read(size)


class _Taken:
    """The texts taken out so far. Of two files of one name the later one counts, as it does to tar."""

    def __init__(self, path: Path, folder: Path, limit: int, report: Report) -> None:
        self.files: dict[str, Path] = {}
        self._path = path
        self._folder = folder
        self._left = limit
        self._report = report
        self._count = 0

    def take(self, packed: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if member.isdir() or not member.name.lower().removesuffix(".gz").endswith(_TEXTS):
            return
        if member.islnk() and member.linkname in self.files:
            self.files[member.name] = self.files[member.linkname]  # one file under two names
        elif not member.isreg():
            self._report.skipped["link" if member.islnk() or member.issym() else "not-a-file"] += 1
        elif member.size > self._left:
            self._report.reject("too-large", f"unpacks to {member.size} bytes", member.name)
        else:
            self._left -= member.size
            self._copy(packed, member)

    def _copy(self, packed: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._count += 1
        target = self.files[member.name] = self._folder / str(self._count)
        with cast("IO[bytes]", packed.extractfile(member)) as source, target.open("wb", buffering=0) as kept:
            while piece := source.read(1 << 20):
                self._write(kept, piece)

    def _write(self, kept: IO[bytes], piece: bytes) -> None:
        try:
            left = memoryview(piece)
            while left:
                left = left[kept.write(left) :]
        except OSError as error:
            where = f"{self._folder.parent} ({error.strerror}; TMPDIR names another place)"
            raise SourceError(f"{self._path}: it cannot be unpacked in {where}") from None
