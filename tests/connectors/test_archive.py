"""Zips, tars, folders and files as people hand them over, and as those do who mean harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streammem.connectors import CONNECTORS, Report, recognise, tars
from streammem.connectors.archive import opened
from streammem.errors import SourceError
from tests.connectors.sources import content, drawn, zipped

ROW = {"id": "m1", "channel": "ops", "user": "ada", "ts": "2024-01-01T00:00:00Z", "text": "hello é"}
REALM = {
    "zerver_realm": [{"string_id": "acme"}],
    "zerver_stream": [{"id": 3, "name": "ops", "invite_only": False}],
    "zerver_recipient": [{"id": 9, "type": 2, "type_id": 3}],
}
SAID = {"zerver_message": [{"id": 1, "sender": 1, "recipient": 9, "content": "hello", "date_sent": 1700000000.5}]}
FILES = {
    "mattermost-bulk": (
        "import.jsonl",
        {"type": "post", "post": {"team": "t", "channel": "c", "user": "a", "message": "hi é", "create_at": 1}},
    ),
    "discord-dce": (
        "d.json",
        {
            "guild": {"id": "1"},
            "channel": {"id": "2"},
            "messages": [{"id": "3", "timestamp": "2024-01-01T00:00:00Z", "content": "hi é"}],
        },
    ),
    "rocketchat-mongo": (
        "rocketchat_message.json",
        {"_id": "m", "rid": "r", "msg": "hi é", "ts": {"$date": 1704067200000}, "u": {"_id": "u"}},
    ),
    "matrix-element": (
        "m.json",
        {
            "messages": [
                {
                    "type": "m.room.message",
                    "event_id": "$1",
                    "room_id": "!r:s",
                    "sender": "@a:s",
                    "origin_server_ts": 1700000000000,
                    "content": {"msgtype": "m.text", "body": "hi é"},
                }
            ]
        },
    ),
    "gitter": ("g.json", [{"id": "1", "text": "hi é", "sent": "2024-01-01T00:00:00Z", "fromUser": {"id": "u"}}]),
    "jsonl": ("messages.jsonl", {**ROW, "text": "hi é"}),
    "csv": ("messages.csv", "id,channel,user,ts,text\n1,c,ada,2024-01-01T00:00:00Z,hi é\n"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_windows_wrote_reads_as_any_other(tmp_path: Path, name: str, encoding: str, packed: bool) -> None:
    file, value = FILES[name]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) + "\n"
    raw = ("\ufeff" * (encoding == "utf-16-be") + text.replace("\n", "\r\n")).encode(encoding)
    path = tmp_path / (file + ".gz" * packed)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    assert drawn(name, path).texts == ["hi é"]
    assert recognise(path) == name


# -------------------------------------------------------------------------------------------------------- zips


def files_in(path: Path) -> tuple[list[str], dict[str, int]]:
    report = Report()
    with opened(path, report) as archive:
        return [entry.name for entry in archive.entries], dict(report.skipped)


def test_a_link_in_a_zip_is_no_file(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("passwd.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(link, "/etc/passwd")
        packed.writestr("a.json", "[]")
    assert files_in(tmp_path / "a.zip") == (["a.json"], {"link": 1})


def test_a_folder_that_windows_put_into_a_zip_is_no_file(tmp_path: Path) -> None:
    assert files_in(zipped(tmp_path / "a.zip", {"a\\": "", "a\\b.json": "[]"})) == (["a/b.json"], {})


def test_one_file_under_many_names_is_read_once(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a.json": "[]"})
    raw = path.read_bytes()
    begins, ends = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    directory, end = raw[begins:ends], bytearray(raw[ends:])
    end[8:10] = end[10:12] = (50).to_bytes(2, "little")
    end[12:16] = (50 * len(directory)).to_bytes(4, "little")
    path.write_bytes(raw[:begins] + 50 * directory + end)
    assert files_in(path) == (["a.json"], {"overlapping": 49})


def test_two_files_of_one_name_are_both_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed.writestr("messages.csv", "id,channel,ts,text\n1,c,2024-01-01,one\n")
        packed.writestr("messages.csv", "id,channel,ts,text\n2,c,2024-01-01,two\n")
    assert sorted(drawn("csv", tmp_path / "a.zip").texts) == ["one", "two"]


@pytest.mark.parametrize("name", [name for name in FILES if name != "jsonl"])
def test_an_encrypted_or_cut_zip_is_refused_with_the_cause(tmp_path: Path, name: str) -> None:
    file, value = FILES[name]
    raw = bytearray(zipped(tmp_path / "a.zip", {file: value}).read_bytes())
    (tmp_path / "cut.zip").write_bytes(raw[: len(raw) // 2])
    raw[6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(raw)
    with pytest.raises(SourceError, match="encrypted"):
        drawn(name, tmp_path / "locked.zip")
    with pytest.raises(SourceError, match="not a readable zip file"):
        drawn(name, tmp_path / "cut.zip")
    assert recognise(tmp_path / "locked.zip") is None


def test_a_file_that_is_damaged_from_its_beginning_is_counted_as_lost(tmp_path: Path) -> None:
    file, value = FILES["discord-dce"]
    path = zipped(tmp_path / "a.zip", {file: value, "z.json": value})
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"z.json") + 8] ^= 0xFF
    path.write_bytes(raw)
    read = drawn("discord-dce", path)
    assert read.texts == ["hi é"]
    assert read.report.rejected == {"truncated-file": 1}


# -------------------------------------------------------------------------------------------------------- tars


def packed_tar(path: Path, fill: Callable[[tarfile.TarFile], None], mode: Any = "w:gz") -> Path:
    with tarfile.open(path, mode) as packed:
        fill(packed)
    return path


def add(packed: tarfile.TarFile, name: str, value: Any = b"", **more: Any) -> None:
    info = tarfile.TarInfo(name)
    raw = content(value)
    info.size = len(raw)
    for key, stated in more.items():
        setattr(info, key, stated)
    packed.addfile(info, io.BytesIO(raw))


def add_export(packed: tarfile.TarFile) -> None:
    add(packed, "z/realm.json", REALM)
    add(packed, "z/messages-000001.json", SAID)


@pytest.mark.parametrize(("ending", "mode"), [(".tar", "w"), (".tgz", "w:gz"), (".tar.xz", "w:xz"), (".tbz2", "w:bz2")])
def test_a_tar_packed_in_any_way_is_read_and_recognised(tmp_path: Path, ending: str, mode: str) -> None:
    path = packed_tar(tmp_path / f"export{ending}", add_export, mode)
    assert drawn("zulip-export", path).texts == ["hello"]
    assert recognise(path) == "zulip-export"


def test_a_tar_is_unpacked_once_to_be_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, unpacked = list[Path](), tars.unpacked
    monkeypatch.setattr(tars, "unpacked", lambda path, *more: calls.append(path) or unpacked(path, *more))
    path = packed_tar(tmp_path / "a.tar", lambda packed: add(packed, "cat.json", {}), "w")
    assert recognise(path) is None
    assert calls == [path]


def test_names_that_no_disk_would_take_cost_no_other_file(tmp_path: Path) -> None:
    def fill(packed: tarfile.TarFile) -> None:
        add(packed, "a.json")
        add(packed, "a.json/b.json")
        add(packed, "n" * 300 + ".json")
        add_export(packed)

    path = packed_tar(tmp_path / "a.tar.gz", fill)
    assert drawn("zulip-export", path).texts == ["hello"]
    assert recognise(path) == "zulip-export"


def test_a_file_that_a_tar_holds_under_two_names_is_read_and_links_and_devices_are_not(tmp_path: Path) -> None:
    def fill(packed: tarfile.TarFile) -> None:
        add(packed, "z/realm.json", REALM)
        add(packed, "z/saved.json", SAID)
        add(packed, "z/messages-000001.json", type=tarfile.LNKTYPE, linkname="z/saved.json")
        add(packed, "z/messages-000002.json", type=tarfile.LNKTYPE, linkname="/etc/passwd")
        add(packed, "z/messages-000003.json", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add(packed, "z/messages-000004.json", type=tarfile.CHRTYPE, devmajor=1, devminor=5)
        add(packed, "/etc/evil.json", {})

    read = drawn("zulip-export", packed_tar(tmp_path / "a.tar.gz", fill))
    assert read.texts == ["hello"]
    assert read.report.skipped == {"link": 2, "not-a-file": 1, "unsafe-path": 1, "not-a-table-file": 1}


def test_of_two_files_of_one_name_in_a_tar_the_later_one_counts(tmp_path: Path) -> None:
    def fill(packed: tarfile.TarFile) -> None:
        add(packed, "z/messages-000001.json", {"zerver_message": []})
        add_export(packed)

    assert drawn("zulip-export", packed_tar(tmp_path / "a.tar", fill, "w")).texts == ["hello"]


def test_a_tar_that_unpacks_out_of_all_proportion_fills_no_disk(tmp_path: Path) -> None:
    def fill(packed: tarfile.TarFile) -> None:
        add_export(packed)
        for name in ("a.json", "b.json"):
            add(packed, f"z/{name}", b" " * (10 << 20))

    read = drawn("zulip-export", packed_tar(tmp_path / "a.tar.gz", fill))
    assert read.texts == ["hello"]
    assert read.report.rejected == {"too-large": 1}  # together they are


def test_a_header_of_a_tar_that_claims_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("long").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"%011o\0" % (4 << 30)
    header[156:157] = tarfile.GNUTYPE_LONGNAME
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(header)
    with pytest.raises(SourceError, match="claims 4294967296 bytes"):
        drawn("zulip-export", tmp_path / "a.tar")


def test_a_tar_that_breaks_off_gives_what_stands_before_and_says_so(tmp_path: Path) -> None:
    def fill(packed: tarfile.TarFile) -> None:
        add_export(packed)
        add(packed, "z/messages-000002.json", os.urandom(100_000))

    path = packed_tar(tmp_path / "a.tar.gz", fill)
    path.write_bytes(path.read_bytes()[:-50_000])
    read = drawn("zulip-export", path)
    assert read.texts == ["hello"]
    assert any(refusal.origin == "a.tar.gz" for refusal in read.report.refusals)


def test_want_of_room_for_a_tar_is_no_damage_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tars._Taken, "_copy", lambda self, *_: self._write(type("Full", (), {"write": full})(), b"x"))
    with pytest.raises(SourceError, match="No space left on device"):
        drawn("zulip-export", packed_tar(tmp_path / "a.tar.gz", add_export))


# ------------------------------------------------------------------------------------------------- other paths


@pytest.mark.parametrize("name", CONNECTORS)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert recognise(tmp_path / "pipe.json") is None
    with pytest.raises(SourceError, match=r"pipe\.json"):
        drawn(name, tmp_path / "pipe.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_is_not_ours_to_read_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    (tmp_path / "a.json").chmod(0)
    with pytest.raises(SourceError, match="Permission denied"):
        drawn("gitter", tmp_path / "a.json")


def test_a_name_that_is_no_path_is_refused_in_one_line() -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        drawn("gitter", Path("a" * 5000))


@pytest.mark.parametrize("name", ["discord-dce", "matrix-element", "gitter", "jsonl"])
def test_a_file_that_vanishes_while_it_is_read_is_counted_as_lost(tmp_path: Path, name: str) -> None:
    file, value = FILES[name]
    folder = tmp_path / "export"
    folder.mkdir()
    for index in range(2):
        (folder / (file if name == "jsonl" else f"{index}-{file}")).write_bytes(content(value) + b"\n")
    report = Report()
    events = CONNECTORS[name].read(folder, report)
    next(events)
    for path in folder.iterdir():
        path.unlink()
    list(events)
    assert report.read == report.accepted + report.duplicates + report.superseded + report.rejected.total()
