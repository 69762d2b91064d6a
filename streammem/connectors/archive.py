"""A zip, a tar, a folder or a single file as a list of files that are safe to read.

Paths that leave the archive, links, and files that unpack out of all proportion are refused; a file damaged in the
middle gives what stands before the damage.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from streammem.connectors import tars
from streammem.connectors.report import Report
from streammem.errors import SourceError

CHUNK = 1 << 20
SMALL = 16 << 20
"""Below this size a high ratio harms nobody."""
RATIO_LIMIT = 200
"""Real exports pack 5 to 30 times; a file of blanks 1,000 times."""

_DRIVE = re.compile(r"[A-Za-z]:")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ENCRYPTED = 1

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

    def taken(self, named: Sequence[Entry], report: Report, others: str) -> list[Entry]:
        """The files to be read of those that are `named` like it: bombs are rejected. `others` is why the rest is not.

        Tells the report how much there will be to read.
        """
        for entry in named:
            if entry.swollen:
                report.reject("too-large", f"unpacks to {entry.size} bytes", self.origin(entry))
        if passed_over := len(self.entries) - len(named):
            report.skipped[others] += passed_over
        fit = [entry for entry in named if not entry.swollen]
        report.entries_total += len(fit)
        report.bytes_total += sum(entry.size for entry in fit)
        return fit


@contextmanager
def opened(path: Path, report: Report, *, single: bool = False) -> Iterator[Archive]:
    """Open a zip, a tar, a folder or, where that will do, a `single` file. Raises SourceError, naming the path."""
    if _is_folder(path):
        yield Archive(path.name, _sorted(_files_below(path, path, report)))
    elif is_tar(path):
        with TemporaryDirectory(prefix="streammem-") as folder:
            yield Archive(path.name, _sorted(_files_of_tar(path, Path(folder), report)))
    elif single and not _is_zip(path):
        yield Archive(path.name, tuple(_file(path, path.parent, report)), is_file=True)
    else:
        with _open_zip(path) as unpacked:
            yield Archive(path.name, _sorted(_files_in(unpacked, report)))


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder and no file. Raises SourceError for anything else: a pipe would never end."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            path.open("rb").close()
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file or folder (expected an export: a .zip file or a folder)") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise SourceError(f"{path}: neither a file nor a folder (a pipe is read from a file that it was written to)")
    return stat.S_ISDIR(mode)


def is_tar(path: Path) -> bool:
    """Whether a file calls itself a tar."""
    return path.name.lower().endswith(tars.ENDINGS)


def _is_zip(path: Path) -> bool:
    """Whether a file is a zip, or begins as one and was cut short."""
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"PK\x03\x04" or zipfile.is_zipfile(path)
    except OSError:
        return False


@contextmanager
def settled(path: Path) -> Iterator[Path]:
    """The path, of a tar a folder with its texts: for who looks at it many times. Raises SourceError."""
    if not (path.is_file() and is_tar(path)):
        yield path
        return
    with TemporaryDirectory(prefix="streammem-") as folder:
        kept, seen = Path(folder) / "kept", Path(folder) / "seen"
        kept.mkdir()
        for name, file in tars.unpacked(path, kept, _fair_share(path), Report()).items():
            with suppress(OSError):  # a name that is too long, or a file's and a folder's
                if _is_safe(name):
                    (seen / name).parent.mkdir(parents=True, exist_ok=True)
                    (seen / name).hardlink_to(file)
        yield seen


def _fair_share(path: Path) -> int:
    return max(SMALL, path.stat().st_size * RATIO_LIMIT)


def chunks(entry: Entry) -> Iterator[bytes]:
    """The content of a file, piece by piece, all of it that can be read. Ends with EOFError where it is damaged."""
    piece = bytearray()
    damage: Exception | None = None
    try:
        with _opened(entry) as stream:
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
    limit = max(SMALL, entry.size * RATIO_LIMIT)
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


def _opened(entry: Entry) -> IO[bytes]:
    """The file in UTF-8, where it says that it is in UTF-16: Windows writes so what a command prints into a file."""
    stream = entry.open()
    try:
        begins = stream.peek(2)[:2]  # type: ignore[attr-defined]
    except BaseException:
        stream.close()
        raise
    if begins not in _UTF16:
        return stream
    return cast("IO[bytes]", io.BufferedReader(_FromUtf16(stream)))


class _FromUtf16(io.RawIOBase):
    """What a stream of UTF-16 says, in UTF-8 and without its mark."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            piece = self._stream.read1(CHUNK)  # type: ignore[attr-defined]
            self._held = self._decoder.decode(piece, final=not piece).encode("utf-8", "replace")
            if not piece:
                break
        given, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)

    def close(self) -> None:
        self._stream.close()
        super().close()


def lines(entry: Entry, limit: int) -> Iterator[bytes]:
    """The lines of a file, unpacked. One longer than `limit` bytes comes cut, its rest is passed over.

    Ends with EOFError where the file is damaged.
    """
    try:
        with _opened(unpacked(entry)) as stream:
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
            found = zipfile.ZipFile(path, metadata_encoding="utf-8")
        except UnicodeDecodeError:
            found = zipfile.ZipFile(path)
    except _BROKEN_READ as error:
        raise SourceError(f"{path}: not a readable zip file ({error}); expected a whole .zip or a folder") from None
    if (files := [info for info in found.infolist() if info.file_size]) and all(map(_is_encrypted, files)):
        found.close()
        raise SourceError(f"{path}: is encrypted; unpack it with its password and give the folder")
    return found


def _is_encrypted(info: zipfile.ZipInfo) -> bool:
    return bool(info.flag_bits & _ENCRYPTED)


def _files_in(unpacked: zipfile.ZipFile, report: Report) -> Iterator[Entry]:
    begun: set[int] = set()
    for info in unpacked.infolist():
        name = unicodedata.normalize("NFC", info.filename.replace("\\", "/"))
        if not _is_safe(name):
            report.skipped["unsafe-path"] += 1
        elif stat.S_ISLNK(info.external_attr >> 16):
            report.skipped["link"] += 1
        elif info.header_offset in begun:
            report.skipped["overlapping"] += 1  # a bomb: one file under many names
        elif not name.endswith("/"):
            begun.add(info.header_offset)
            yield Entry(name, info.file_size, _opener(unpacked, info), info.compress_size)


def _opener(unpacked: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: unpacked.open(info)


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return not (name.startswith("/") or ".." in parts or _DRIVE.match(name) or "\x00" in name)


def _files_of_tar(path: Path, folder: Path, report: Report) -> Iterator[Entry]:
    for name, file in tars.unpacked(path, folder, _fair_share(path), report).items():
        if _is_safe(name):
            yield _entry(unicodedata.normalize("NFC", name.removeprefix("./")), file)
        else:
            report.skipped["unsafe-path"] += 1


def _entry(name: str, file: Path) -> Entry:
    return Entry(name, file.stat().st_size, lambda: file.open("rb"))


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
