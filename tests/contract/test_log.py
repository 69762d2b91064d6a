"""What the flows rely on in a log: keys once, order, durability of what was acknowledged."""

import asyncio
import os
import sqlite3

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from streammem.backends.memory import MemoryLog
from streammem.backends.sqlite import SqliteLog, SqliteStructure
from streammem.core import positions
from streammem.errors import MemoryFormatError, SettingsError, TransientError
from streammem.records import ChannelEvent, ChannelRef, MembershipEvent, MessageEvent, ReactionEvent, UserEvent
from tests.strategies import histories, keyed


def said(number: int) -> tuple[str, MessageEvent]:
    return f"key-{number}", MessageEvent(workspace="W", channel=ChannelRef(id="C"), id=str(number), text="ok ☃")


async def test_a_new_log_is_empty(log):
    assert await log.end() == {}
    assert await log.read({}, 10) == []


async def test_appending_nothing_changes_nothing(log):
    done = await log.append([])
    assert (done.accepted, done.duplicates, done.position) == (0, 0, {})


def spread(count: int) -> list[tuple[str, MessageEvent]]:
    """Messages of several channels: in a log with partitions they lie in more than one."""
    return [
        (f"key-{n}", MessageEvent(workspace="W", channel=ChannelRef(id=f"C{n % 7}"), id=str(n), text="ok ☃"))
        for n in range(count)
    ]


async def whole(log, limit, after=None):
    """All that lies after a position, read on from where each read ended."""
    entries, position = [], dict(after or {})
    while read := await log.read(position, limit):
        assert len(read) <= limit
        entries += read
        position = positions.joined(position, positions.after(read))
    return entries


async def test_every_appended_entry_is_read_once(log):
    await log.append(spread(20))
    await log.append(spread(40)[20:])
    for limit in (3, 100):
        read = await whole(log, limit)
        assert sorted((e.key, e.event.id) for e in read) == sorted((key, event.id) for key, event in spread(40))
        assert {e.key: e.event for e in read} == dict(spread(40))


async def test_a_partition_is_read_in_the_order_in_which_it_was_appended(log):
    appended = spread(60)[::-1]
    await log.append(appended[:25])
    await log.append(appended[25:])
    read = await whole(log, 7)
    order = [key for key, _ in appended]
    for partition in {e.partition for e in read}:
        here = [e for e in read if e.partition == partition]
        assert [order.index(e.key) for e in here] == sorted(order.index(e.key) for e in here)
        assert [e.position for e in here] == sorted({e.position for e in here})


async def test_positions_count_from_one_in_each_partition(log):
    await log.append(spread(30))
    read = await whole(log, 100)
    for partition, last in (await log.end()).items():
        assert [e.position for e in read if e.partition == partition] == list(range(1, last + 1))


async def test_reading_after_any_position_gives_exactly_the_rest(log):
    await log.append(spread(30))
    read = await whole(log, 100)
    for cut in (0, 29, 11, 12, 3, 30):
        after = positions.after(read[:cut])
        rest = await whole(log, 4, after)
        assert sorted(e.key for e in rest) == sorted(e.key for e in read[cut:])


async def test_an_append_says_where_its_entries_end(log):
    first = await log.append(spread(10))
    assert (first.accepted, first.duplicates, first.position) == (10, 0, await log.end())
    second = await log.append(spread(12)[10:])
    assert second.accepted == 2
    assert positions.covers(await log.end(), second.position)
    assert {e.key for e in await whole(log, 50, first.position)} == {"key-10", "key-11"}
    new = [e for e in await whole(log, 50, first.position) if e.partition in second.position]
    assert positions.after(new) == second.position


async def test_of_a_key_that_is_repeated_within_an_append_the_first_is_stored(log):
    others = [(key, event) for (key, _), (_, event) in zip(spread(5), spread(5)[::-1], strict=True)]
    done = await log.append([*spread(5), *others])
    assert (done.accepted, done.duplicates) == (5, 5)
    read = await whole(log, 50)
    assert len(read) == 5
    assert {e.key: e.event for e in read} == dict(spread(5))


async def test_a_key_that_is_appended_again_is_read_as_the_same_event(log):
    await log.append(spread(5))
    done = await log.append(spread(7))
    assert done.accepted + done.duplicates == 7
    assert {e.key: e.event for e in await whole(log, 50)} == dict(spread(7))


async def test_a_position_beyond_the_end_waits_there(log):
    await log.append(spread(3))
    beyond = dict.fromkeys(range(3), 50)
    assert await log.read(beyond, 5) == []
    await log.append(spread(6)[3:])
    assert await log.read(beyond, 5) == []
    assert await log.read({}, 0) == []
    assert len(await whole(log, 50)) == 6


async def test_what_is_appended_after_the_end_was_read_is_read_then(log):
    position = {}
    for n in range(6):
        assert await log.read(position, 10) == []
        await log.append(spread(6)[n : n + 1])
        (entry,) = await log.read(position, 10)
        assert entry.key == f"key-{n}"
        position = positions.joined(position, positions.after([entry]))


async def test_every_kind_of_event_comes_back_as_it_went_in(log):
    facts = [
        ("user", UserEvent(workspace="W", id="U1", name="Ann ☃")),
        ("channel", ChannelEvent(workspace="W", id="C1", type="private")),
        ("membership", MembershipEvent(workspace="W", channel="C1", user="U1")),
        ("reaction", ReactionEvent(workspace="W", channel="C1", message="1", name="ok", user="U1")),
        ("delete", MessageEvent(workspace="W", op="delete", channel=ChannelRef(id="C1"), id="1", version="2")),
    ]
    await log.append(facts)
    assert {e.key: e.event for e in await whole(log, 2)} == dict(facts)


async def test_what_is_not_erased_stays_where_it_was(log):
    await log.append(spread(30))
    read = await whole(log, 100)
    gone = read[3:30:4]
    for _ in range(2):
        await log.erase(gone)
        await log.erase([])
        left = {(e.partition, e.position): e for e in await whole(log, 4)}
        assert all(left[e.partition, e.position] == e for e in read if e not in gone)
    after = positions.after(read)
    await log.append(spread(32)[30:])
    assert {e.key for e in await whole(log, 4, after)} == {"key-30", "key-31"}


async def test_what_was_erased_may_be_appended_again(log):
    await log.append(spread(10))
    read = await whole(log, 100)
    await log.erase(read)
    done = await log.append(spread(5))
    assert done.accepted == 5
    again = await whole(log, 100, positions.after(read))
    assert {e.key: e.event for e in again} == dict(spread(5))


# --------------------------------------------------------------------------------------- logs that know their keys


async def test_what_was_erased_is_read_by_nobody_and_its_positions_never_come_again(knowing_log):
    await knowing_log.append([said(n) for n in range(6)])
    read = await knowing_log.read({}, 9)
    await knowing_log.erase([read[1], read[4], read[5]])
    assert [e.position for e in await knowing_log.read({}, 9)] == [1, 3, 4]
    assert [e.position for e in await knowing_log.read({0: 1}, 2)] == [3, 4]
    assert await knowing_log.read({0: 4}, 9) == []
    assert await knowing_log.end() == {0: 4}
    done = await knowing_log.append([said(0), said(1), said(9)])
    assert (done.accepted, done.duplicates, done.position) == (2, 1, {0: 8})
    assert [(e.position, e.key) for e in await knowing_log.read({0: 4}, 9)] == [(7, "key-1"), (8, "key-9")]


async def test_an_entry_that_stands_elsewhere_by_now_is_not_erased(knowing_log):
    await knowing_log.append([said(1), said(2)])
    first = (await knowing_log.read({}, 1))[0]
    await knowing_log.erase([first])
    await knowing_log.append([said(1)])
    await knowing_log.erase([first])
    assert [(e.position, e.key) for e in await knowing_log.read({}, 9)] == [(2, "key-2"), (3, "key-1")]


async def test_a_log_of_which_all_is_erased_is_empty(knowing_log):
    await knowing_log.append([said(n) for n in range(3)])
    await knowing_log.erase(await knowing_log.read({}, 9))
    assert await knowing_log.end() == {}
    assert await knowing_log.read({}, 9) == []
    assert (await knowing_log.append([said(1)])).position == {0: 4}


async def test_entries_are_read_in_the_order_in_which_they_were_appended(knowing_log):
    await knowing_log.append([said(2), said(1)])
    await knowing_log.append([said(0)])
    assert [(e.position, e.key, e.event) for e in await knowing_log.read({}, 10)] == [
        (1, *said(2)),
        (2, *said(1)),
        (3, *said(0)),
    ]


async def test_a_key_is_appended_once(knowing_log):
    await knowing_log.append([said(1), said(2)])
    done = await knowing_log.append([said(2), said(3), said(3), said(1)])
    assert (done.accepted, done.duplicates, done.position) == (1, 3, {0: 3})
    assert [e.key for e in await knowing_log.read({}, 10)] == ["key-1", "key-2", "key-3"]


async def test_the_first_event_of_a_key_stays(knowing_log):
    await knowing_log.append([said(1)])
    await knowing_log.append([("key-1", said(2)[1])])
    assert (await knowing_log.read({}, 1))[0].event == said(1)[1]


async def test_positions_have_no_gaps_after_duplicates(knowing_log):
    await knowing_log.append([said(1)])
    await knowing_log.append([said(1)] * 5)
    done = await knowing_log.append([said(2)])
    assert done.position == await knowing_log.end() == {0: 2}


async def test_reading_starts_after_a_position_and_stops_at_the_limit(knowing_log):
    await knowing_log.append([said(n) for n in range(10)])
    assert [e.position for e in await knowing_log.read({0: 3}, 4)] == [4, 5, 6, 7]
    assert [e.position for e in await knowing_log.read({0: 8}, 100)] == [9, 10]
    assert await knowing_log.read({0: 10}, 5) == []
    assert await knowing_log.read({0: 99}, 5) == []
    assert await knowing_log.read({}, 0) == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories())
def test_any_history_comes_back_from_the_file_as_it_went_in(tmp_path_factory, history):
    async def both() -> None:
        model, path = MemoryLog(), tmp_path_factory.mktemp("log") / "log.sqlite"
        for half in (history[::2], history):
            log = SqliteLog(path)
            assert await log.append(keyed(half)) == await model.append(keyed(half))
            log.close()
        log = SqliteLog(path)
        assert await log.read({}, 1000) == await model.read({}, 1000)
        log.close()

    asyncio.run(both())


async def test_the_file_refuses_updates_and_deletes(tmp_path):
    log = SqliteLog(tmp_path / "log.sqlite")
    await log.append([said(1)])
    log.close()
    other = sqlite3.connect(tmp_path / "log.sqlite")
    for statement in ("UPDATE log SET event = x'00'", "DELETE FROM log"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            other.execute(statement)
    other.close()


async def test_the_file_refuses_deletes_after_an_erasure_as_before(tmp_path):
    log = SqliteLog(tmp_path / "log.sqlite")
    await log.append([said(1), said(2)])
    await log.erase(await log.read({}, 1))
    log.write_anew()
    log.close()
    await test_the_file_refuses_updates_and_deletes(tmp_path)


async def test_an_erasure_that_fails_leaves_everything_as_it_was(tmp_path):
    log = SqliteLog(tmp_path / "log.sqlite")
    await log.append([said(1), said(2)])
    read = await log.read({}, 9)
    broken = [read[0], msgspec.structs.replace(read[1], key=object())]
    with pytest.raises(sqlite3.Error):
        await log.erase(broken)
    assert await log.read({}, 9) == read
    log.close()
    await test_the_file_refuses_updates_and_deletes(tmp_path)


async def test_an_erasure_that_a_reader_holds_up_is_to_be_repeated(tmp_path):
    log = SqliteLog(tmp_path / "log.sqlite")
    await log.append([said(1), said(2)])
    (first, second) = await log.read({}, 2)
    log._db.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM log").fetchall()
    with pytest.raises(TransientError, match="another process reads it"):
        await log.erase([first])
    with pytest.raises(TransientError, match="another process reads it"):
        log.write_anew()
    other.close()
    await log.erase([first])
    log.write_anew()
    assert await log.read({}, 2) == [second]
    assert first.key.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    log.close()


async def test_no_byte_of_what_was_erased_stays_in_the_files_of_a_log(tmp_path):
    log = SqliteLog(tmp_path / "log.sqlite")
    for start in range(0, 2000, 100):
        events = [(f"key-{n * 7919 % 2000}.", said(n)[1]) for n in range(start, start + 100)]
        texts = [f"secret {n}. " * (n % 90) for n in range(start, start + 100)]
        await log.append([(k, msgspec.structs.replace(e, text=t)) for (k, e), t in zip(events, texts, strict=True)])
    read = await log.read({}, 2000)
    for part in (read[::4], read[1::4], read[2::4]):
        await log.erase(part)
    log.write_anew()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    gone = [e for e in read if (e.position - 1) % 4 < 3]
    assert not [e for e in gone if e.key.encode() in held]
    assert not [e for e in gone if e.event.text and e.event.text[:12].encode() in held]
    assert read[3].key.encode() in held
    assert await log.read({}, 2000) == read[3::4]
    log.close()


async def test_a_log_that_another_process_appends_to_can_be_read(tmp_path):
    writer, reader = SqliteLog(tmp_path / "log.sqlite"), SqliteLog(tmp_path / "log.sqlite")
    await writer.append([said(1)])
    assert await reader.end() == {0: 1}
    await writer.append([said(2)])
    assert [e.key for e in await reader.read({0: 1}, 5)] == ["key-2"]
    writer.close()
    reader.close()


async def test_a_failed_append_leaves_nothing_behind(tmp_path):
    log = SqliteLog(tmp_path / "log.sqlite")
    with pytest.raises(sqlite3.Error):
        await log.append([said(1), (object(), said(2)[1])])
    assert await log.end() == {}
    assert (await log.append([said(1)])).accepted == 1
    log.close()


async def test_a_log_held_by_a_writer_asks_to_be_tried_again(tmp_path):
    log = SqliteLog(tmp_path / "log.sqlite")
    other = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    log._db.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(TransientError, match="locked"):
        await log.append([said(1)])
    other.close()
    assert (await log.append([said(1)])).accepted == 1
    log.close()


# ------------------------------------------------------------------------------------------- files that will not do

FILES = pytest.mark.parametrize("backend", [SqliteLog, SqliteStructure])


@FILES
def test_closing_twice_is_no_fault(backend, tmp_path):
    opened = backend(tmp_path / "file")
    opened.close()
    opened.close()


@FILES
def test_a_missing_file_is_named_when_it_must_not_be_made(backend, tmp_path):
    with pytest.raises(SettingsError, match=r"no file .*absent"):
        backend(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()


@FILES
def test_a_file_in_a_missing_directory_is_a_settings_error(backend, tmp_path):
    with pytest.raises(SettingsError, match="check that its directory exists"):
        backend(tmp_path / "nowhere" / "file")


@FILES
def test_a_directory_in_the_place_of_the_file_is_a_settings_error(backend, tmp_path):
    with pytest.raises(SettingsError, match="check that"):
        backend(tmp_path)


@FILES
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_a_settings_error(backend, tmp_path):
    backend(tmp_path / "file").close()
    (tmp_path / "file").chmod(0o400)
    tmp_path.chmod(0o500)
    with pytest.raises(SettingsError, match="yours to write"):
        backend(tmp_path / "file")


@FILES
def test_a_file_of_something_else_is_refused_and_left_alone(backend, tmp_path):
    file = tmp_path / "file"
    file.write_text("dear diary\n" * 500)
    with pytest.raises(MemoryFormatError, match="not a streammem file"):
        backend(file)
    assert file.read_text() == "dear diary\n" * 500


@FILES
def test_a_database_of_something_else_is_refused(backend, tmp_path):
    db = sqlite3.connect(tmp_path / "file")
    db.execute("CREATE TABLE diary (day, text)")
    db.close()
    with pytest.raises(MemoryFormatError, match="not the streammem file it should be"):
        backend(tmp_path / "file")


def test_log_and_structure_cannot_stand_in_for_each_other(tmp_path):
    SqliteLog(tmp_path / "log").close()
    SqliteStructure(tmp_path / "structure").close()
    with pytest.raises(MemoryFormatError, match="not the streammem file it should be"):
        SqliteLog(tmp_path / "structure")
    with pytest.raises(MemoryFormatError, match="not the streammem file it should be"):
        SqliteStructure(tmp_path / "log")


@FILES
def test_a_file_of_another_format_is_refused(backend, tmp_path):
    backend(tmp_path / "file").close()
    db = sqlite3.connect(tmp_path / "file")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(MemoryFormatError, match="format 99"):
        backend(tmp_path / "file")


async def test_a_torn_log_says_so(tmp_path):
    file = tmp_path / "log"
    log = SqliteLog(file)
    await log.append([said(n) for n in range(500)])
    log.close()
    file.write_bytes(file.read_bytes()[:8192] + b"\xff" * (file.stat().st_size - 8192))
    log = SqliteLog(file)
    with pytest.raises(MemoryFormatError, match="damaged"):
        await log.read({}, 500)
    log.close()


async def test_an_entry_that_is_no_event_is_named_by_its_position(tmp_path):
    log = SqliteLog(tmp_path / "log")
    await log.append([said(1)])
    log._db.execute("INSERT INTO log (key, event) VALUES ('k', '{}')")
    with pytest.raises(MemoryFormatError, match="position 2"):
        await log.read({}, 5)
    log.close()


# ---------------------------------------------------------------------------------------------------- the great kill

APPENDER = """
import asyncio, sys
from streammem.backends.sqlite import SqliteLog
from streammem.records import ChannelRef, MessageEvent

async def main():
    log, n = SqliteLog(sys.argv[1]), 0
    while True:
        batch = [MessageEvent(workspace="W", channel=ChannelRef(id="C"), id=str(n + i), text="x") for i in range(7)]
        done = await log.append([(f"key-{e.id}", e) for e in batch])
        n += len(batch)
        print(done.position[0], flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("seconds", [0.0, 0.013, 0.057, 0.171])
async def test_what_was_acknowledged_survives_a_kill(killed_after, tmp_path, seconds):
    acknowledged = [int(line) for line in killed_after(APPENDER, tmp_path / "log", seconds)]
    log = SqliteLog(tmp_path / "log", create=False)
    entries = await log.read({}, 1_000_000)
    log.close()
    assert len(entries) >= acknowledged[-1] > 0
    assert [e.position for e in entries] == list(range(1, len(entries) + 1))
    assert [e.key for e in entries] == [f"key-{n}" for n in range(len(entries))]
    assert len(entries) % 7 == 0, "a batch is whole or absent"
