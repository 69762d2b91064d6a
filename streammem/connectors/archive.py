"""A zip, a tar, a folder or a single file as a list of files that are safe to read.

Nothing is extracted. Paths that leave the archive, links, and files that unpack out of all proportion are refused;
a file damaged in the middle gives what stands before the damage.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from streammem.connectors.report import Report
from streammem.errors import SourceError

CHUNK = 1 << 20
SMALL = 16 << 20
"""Below this size a high ratio harms nobody."""
RATIO_LIMIT = 200
"""Real exports pack 5 to 30 times; a file of blanks 1,000 times."""
SIZE_LIMIT = 8 << 30

_DRIVE = re.compile(r"[A-Za-z]:")
_TARS = (".tar", ".tar.gz", ".tgz")
_TEXTS = (".json", ".jsonl", ".ndjson", ".csv")

_BROKEN_READ = (
    *(OSError, EOFError, ValueError, RuntimeError, NotImplementedError, OverflowError),
    *(zlib.error, lzma.LZMAError, struct.error, zipfile.BadZipFile),
)
"""What zipfile and the disk raise on damage, on a password and on an unknown compression."""


@dataclass(frozen=True)
class Entry:
    """One file. `name` is its path inside the archive, NFC, with forward slashes."""

    name: str
    size: int
    open: Callable[[], IO[bytes]] = field(repr=False, compare=False)
    packed: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.name.split("/"))

    @property
    def swollen(self) -> bool:
        """Whether it unpacks to more than any honest file would."""
        if self.size > SIZE_LIMIT:
            return True
        return self.packed is not None and self.size > max(SMALL, self.packed * RATIO_LIMIT)


@dataclass(frozen=True)
class Archive:
    """The files of an export, sorted by name."""

    label: str
    entries: tuple[Entry, ...]
    is_file: bool = False

    def origin(self, entry: Entry) -> str:
        """Where the records of a file come from, for people: `export.zip!ops/2024-01-02.json`."""
        return entry.name if self.is_file else f"{self.label}!{entry.name}"


@contextmanager
def opened(path: Path, report: Report, *, single: bool = False) -> Iterator[Archive]:
    """Open a zip, a tar, a folder or, where that will do, a `single` file. Raises SourceError, naming the path."""
    if path.is_dir():
        yield Archive(path.name, _sorted(_files_below(path, path, report)))
    elif not path.exists():
        raise SourceError(f"{path}: no such file or folder (expected an export: a .zip file or a folder)")
    elif path.name.lower().endswith(_TARS):
        with TemporaryDirectory(prefix="streammem-") as folder:
            _unpack_tar(path, Path(folder), report)
            yield Archive(path.name, _sorted(_files_below(Path(folder), Path(folder), report)))
    elif single and not zipfile.is_zipfile(path):
        yield Archive(path.name, tuple(_file(path, path.parent, report)), is_file=True)
    else:
        with _open_zip(path) as unpacked:
            yield Archive(path.name, _sorted(_files_in(unpacked, report)))


def _unpack_tar(path: Path, folder: Path, report: Report) -> None:
    """Unpack the texts of a tar, which cannot be read in another order than its own, for as long as they are read."""
    try:
        with tarfile.open(path) as packed:
            for member in packed:
                if member.isfile() and member.name.lower().endswith(_TEXTS):
                    _unpack(packed, member, folder, report)
    except (*_BROKEN_READ, tarfile.TarError) as error:
        if not any(folder.iterdir()):
            raise SourceError(f"{path}: not a readable tar file ({error})") from None
        report.skipped["behind-damage"] += 1


def _unpack(packed: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, report: Report) -> None:
    if member.size > SIZE_LIMIT:
        report.reject("too-large", f"unpacks to {member.size} bytes", member.name)
        return
    try:
        packed.extract(member, folder, filter="data")
    except tarfile.FilterError:
        report.skipped["unsafe-path"] += 1


def chunks(entry: Entry) -> Iterator[bytes]:
    """The content of a file, piece by piece, all of it that can be read. Ends with EOFError where it is damaged."""
    piece = bytearray()
    damage: Exception | None = None
    try:
        with entry.open() as stream:
            while some := stream.read1(CHUNK):  # type: ignore[attr-defined]
                piece += some
                if len(piece) >= CHUNK:
                    yield bytes(piece)
                    piece.clear()
    except _BROKEN_READ as error:
        damage = error
    if piece:
        yield bytes(piece)
    if damage is not None:
        raise EOFError(f"{entry.name}: {damage}") from damage


def unpacked(entry: Entry) -> Entry:
    """The file itself, or what a `.gz` file unpacks to (no more than an honest one would)."""
    if not entry.name.lower().endswith(".gz"):
        return entry
    limit = min(SIZE_LIMIT, max(SMALL, entry.size * RATIO_LIMIT))
    return Entry(entry.name[:-3], limit, lambda: _bounded(entry, limit), None)


def _bounded(entry: Entry, limit: int) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(_Bounded(entry.open(), limit)))


class _Bounded(io.RawIOBase):
    """A stream that breaks off where it grows out of all proportion."""

    def __init__(self, packed: IO[bytes], left: int) -> None:
        self._packed, self._stream, self._left = packed, gzip.GzipFile(fileobj=packed), left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read1(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise EOFError("unpacks to more than any honest file would")
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        """Close the packed file too, which a GzipFile leaves open."""
        self._stream.close()
        self._packed.close()
        super().close()


def lines(entry: Entry, limit: int) -> Iterator[bytes]:
    """The lines of a file, unpacked. One longer than `limit` bytes comes cut, its rest is passed over.

    Ends with EOFError where the file is damaged.
    """
    try:
        with unpacked(entry).open() as stream:
            while raw := stream.readline(limit):
                yield raw
                while len(raw) == limit and not raw.endswith(b"\n"):
                    raw = stream.readline(limit)
    except _BROKEN_READ as error:
        raise EOFError(f"{entry.name}: {error}") from error


def _sorted(entries: Iterator[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        try:
            # Re-zipping by hand often loses the UTF-8 flag; names are then read as cp437 and no channel matches.
            return zipfile.ZipFile(path, metadata_encoding="utf-8")
        except UnicodeDecodeError:
            return zipfile.ZipFile(path)
    except _BROKEN_READ as error:
        raise SourceError(f"{path}: not a readable zip file ({error}); expected a whole .zip or a folder") from None


def _files_in(unpacked: zipfile.ZipFile, report: Report) -> Iterator[Entry]:
    for info in unpacked.infolist():
        name = unicodedata.normalize("NFC", info.filename.replace("\\", "/"))
        if not _is_safe(name):
            report.skipped["unsafe-path"] += 1
        elif not info.is_dir():
            yield Entry(name, info.file_size, _opener(unpacked, info), info.compress_size)


def _opener(unpacked: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: unpacked.open(info)


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return not (name.startswith("/") or ".." in parts or _DRIVE.match(name) or "\x00" in name)


def _files_below(folder: Path, root: Path, report: Report) -> Iterator[Entry]:
    try:
        children = sorted(folder.iterdir())
    except OSError:
        report.skipped["unreadable-folder"] += 1
        return
    for child in children:
        if child.is_symlink():
            report.skipped["link"] += 1  # it may lead out of the export, or round in circles
        elif child.is_dir():
            yield from _files_below(child, root, report)
        else:
            yield from _file(child, root, report)


def _file(child: Path, root: Path, report: Report) -> Iterator[Entry]:
    try:
        status = child.stat()
    except OSError:
        report.skipped["unreadable-file"] += 1
        return
    if not stat.S_ISREG(status.st_mode):
        report.skipped["not-a-file"] += 1
        return
    name = unicodedata.normalize("NFC", str(PurePosixPath(child.relative_to(root))))
    yield Entry(name, status.st_size, lambda: child.open("rb"))
