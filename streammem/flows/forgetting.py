"""Forgetting for good: what is to go is found in the log, marked there and taken out of it; and a search proves it.

The forests and vectors follow the marks, as they follow everything else in the log (flows.erasing, flows.index).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from collections.abc import Sequence as Many

import msgspec

from streammem.core import artifacts, erasure, positions
from streammem.core import events as canonical
from streammem.core.directory import Directory, fold
from streammem.errors import QueryError
from streammem.flows.asking import only
from streammem.ports import LogReader, LogWriter, StructureStore, VectorIndex
from streammem.records import (
    Answering,
    DirectoryEvent,
    Entry,
    ErasureEvent,
    Event,
    LogEntry,
    MessageEvent,
    Paid,
    Summary,
    Version,
    Wording,
)

PIECE = 500

_NOTHING_KNOWN = Directory()

Progress = Callable[[int], None]


class Forgotten(msgspec.Struct, frozen=True):
    """What was forgotten: messages by uid, users by id, and how many entries left the log."""

    workspace: str
    messages: tuple[str, ...]
    users: tuple[str, ...]
    entries: int = 0

    @property
    def marks(self) -> set[str]:
        """The erasure marks of all of it."""
        return {*self.messages, *(erasure.user_mark(self.workspace, user) for user in self.users)}


class Traces(msgspec.Struct, frozen=True):
    """How many traces a search found, by place; all are to be zero.

    `vectors` is None when they could not be searched, and `unsearched` says why. What others said stays:
    `mentions` counts their messages that name a forgotten user, `copies` are the uids of those that pass a forgotten
    message on, which can be named to be forgotten too. `topics` says which topics still hold records that their
    retention will drop.
    """

    log: int
    registers: int
    sequences: int
    answers: int
    directory: int
    vectors: int | None
    summaries: int
    cached: int
    artifacts: int = 0
    mentions: int = 0
    copies: tuple[str, ...] = ()
    topics: dict[str, str] = {}
    unsearched: str = ""

    @property
    def total(self) -> int:
        """All that should not be there."""
        found = (self.log, self.registers, self.sequences, self.answers, self.directory)
        return sum(found) + (self.vectors or 0) + self.summaries + self.cached + self.artifacts


# ---------------------------------------------------------------------------------------------------------- forget


async def found(
    workspace: str,
    uids: Iterable[str],
    users: Iterable[str],
    log: LogReader,
    progress: Progress | None = None,
    *,
    directory: Directory = _NOTHING_KNOWN,
) -> Forgotten:
    """What is to be forgotten: the messages named, and every message of which one of these users said a version.

    A message is one under all ids that its channel has had, whether or not it has come under each of them.
    """
    marks = {erasure.user_mark(workspace, user) for user in users}
    messages = set(uids)
    if marks:
        async for entry in entries_of(log, progress):
            event = entry.event
            if isinstance(event, MessageEvent) and marks.intersection(erasure.marks_on(event)):
                messages.add(canonical.uid(event.workspace, event.channel.id, event.id))
    everywhere = {one for uid in messages for one in _copies(uid, workspace, directory)}
    return Forgotten(workspace, tuple(sorted(everywhere)), tuple(sorted(set(users))))


def _copies(uid: str, workspace: str, directory: Directory) -> Iterator[str]:
    """A message under all ids of its channel."""
    channels = directory.ids_of_channel(canonical.channel_of(uid))
    return (canonical.uid(workspace, channel, canonical.native_id(uid)) for channel in channels)


async def forget(
    wanted: Forgotten, reader: LogReader, writer: LogWriter, store: StructureStore, progress: Progress | None = None
) -> Forgotten:
    """Mark it in the log, then take every entry about it out of the log. Running it again changes nothing.

    What any mark in the log refuses goes with it: an earlier run may have been cut short, or somebody may have appended
    what was forgotten while the stores had lost their marks.

    What a message says in passing of its channel and of others is no part of it: where it is the last word it is
    stated outright, so that the directory stays what the log says.
    """
    await _append([*_of_users(wanted), *_of_messages(wanted)], writer)  # 1. from here on it cannot come back
    marks, gone = await _marked(reader), 0
    standing = set(await store.facts(wanted.workspace))
    leaving: list[LogEntry] = []
    async for entry in entries_of(reader, progress):
        if not isinstance(entry.event, ErasureEvent) and erasure.without(entry.event, marks) is not entry.event:
            leaving.append(entry)
        if len(leaving) >= PIECE:
            gone += await _leave(leaving, marks, standing, writer)
            leaving = []
    gone += await _leave(leaving, marks, standing, writer)  # 2.
    return msgspec.structs.replace(wanted, entries=gone)


async def _marked(log: LogReader) -> set[str]:
    """The marks of all that was ever forgotten."""
    return {erasure.mark_of(entry.event) async for entry in entries_of(log) if isinstance(entry.event, ErasureEvent)}


def _of_users(wanted: Forgotten) -> list[Event]:
    return [ErasureEvent(workspace=wanted.workspace, entity="user", id=user) for user in wanted.users]


def _of_messages(wanted: Forgotten) -> list[Event]:
    return [
        ErasureEvent(
            workspace=wanted.workspace,
            entity="message",
            channel=canonical.channel_of(uid),
            id=canonical.native_id(uid),
        )
        for uid in wanted.messages
    ]


async def _append(events: Many[Event], writer: LogWriter) -> None:
    for start in range(0, len(events), PIECE):
        some = events[start : start + PIECE]
        await writer.append([(canonical.key(event, canonical.content_hash(event)), event) for event in some])


async def _leave(entries: Many[LogEntry], marks: set[str], standing: set[DirectoryEvent], writer: LogWriter) -> int:
    """Take entries out. What only names somebody, as a group does its members, is first put back without the name."""
    others = [erasure.without(entry.event, marks) for entry in entries]
    said = [entry.event for entry in entries if isinstance(entry.event, MessageEvent)]
    hints = {hint for event in said for hint in canonical.hints(event) if hint in standing}
    stated = [event for event in (*others, *hints) if event is not None and erasure.without(event, marks) is event]
    await _append(stated, writer)
    await writer.erase(entries)
    return len(entries)


async def entries_of(log: LogReader, progress: Progress | None = None) -> AsyncIterator[LogEntry]:
    """Every entry of the log."""
    position: dict[int, int] = {}
    while entries := await log.read(position, PIECE):
        position = positions.joined(position, positions.after(entries))
        for entry in entries:
            yield entry
        if progress:
            progress(len(entries))


# -------------------------------------------------------------------------------------------------- what is meant


async def meant(
    workspace: str, messages: Iterable[str], users: Iterable[str], store: StructureStore, log: LogReader
) -> Forgotten:
    """Messages named by uid, permalink or the product's id, and users by id or name, as ids. Raises QueryError.

    A person is forgotten under all of its ids. A uid may name a message that never came: then it never will.
    Without a workspace it is that of the uids, or the only one that there is.
    """
    messages = tuple(messages)
    workspace = workspace or _workspace(messages, await store.workspaces())
    directory = Directory(await store.facts(workspace))
    uids = [one for name in messages for one in await _message(name, workspace, directory, store, log)]
    ids = [one for name in users for one in await _user(name, workspace, directory, store, log)]
    return Forgotten(workspace, tuple(sorted(set(uids))), tuple(sorted(set(ids))))


def _workspace(messages: Many[str], known: list[str]) -> str:
    named = [workspace for workspace in known if any(_is_uid(name, workspace) for name in messages)]
    return only(named or known)


def _is_uid(name: str, workspace: str) -> bool:
    start = canonical.uid(workspace, "", "")[:-1]
    return name.startswith(start) and name.count("/") == 2 and not name.endswith("/")


async def _message(
    name: str, workspace: str, directory: Directory, store: StructureStore, log: LogReader
) -> Iterable[str]:
    if _is_uid(name, workspace):
        return [canonical.uid(workspace, canonical.channel_of(name), canonical.native_id(name))]
    known = await (_linked(name, workspace, log) if "://" in name else _bearing(name, workspace, store))
    if len({(directory.in_use(canonical.channel_of(uid)), canonical.native_id(uid)) for uid in known}) == 1:
        return known
    if known:
        raise QueryError(f"{name!r} is the id of {len(known)} messages: name one of {', '.join(sorted(known))}")
    raise QueryError(
        f"no message {name!r} in workspace {workspace!r}: name it by its id, its permalink, or as workspace/channel/id"
        " with %2F for a slash"
    )


async def _bearing(id_: str, workspace: str, store: StructureStore) -> set[str]:
    """The messages that bear an id, in any channel, and those that bore it before they were forgotten."""
    channels = {s.tree for s in await store.sequences(workspace, "channel")}
    uids = [canonical.uid(workspace, channel, id_) for channel in channels]
    before = await store.forbidden(uids)
    return {u for u, versions in zip(uids, await store.versions(uids), strict=True) if versions or u in before}


async def _linked(permalink: str, workspace: str, log: LogReader) -> set[str]:
    """The messages with this permalink."""
    return {
        canonical.uid(workspace, event.channel.id, event.id)
        async for event in _events_of(log)
        if isinstance(event, MessageEvent) and (event.workspace, event.permalink) == (workspace, permalink)
    }


async def _user(
    name: str, workspace: str, directory: Directory, store: StructureStore, log: LogReader
) -> Iterable[str]:
    if name in directory.users or await store.sequences(workspace, "actor", name):
        return directory.ids_of(name)
    mark = erasure.user_mark(workspace, name)
    if await store.forbidden([mark]):
        return [name]
    known = directory.user_names.get(fold(name), frozenset())
    if len(known) == 1:
        return directory.ids_of(next(iter(known)))
    if known:
        raise QueryError(f"{name!r} is the name of {len(known)} users: name one of {', '.join(sorted(known))}")
    async for event in _events_of(log):  # somebody who only reacted, or only is a member of something
        if mark in erasure.asked_about(event):
            return directory.ids_of(name)
    raise QueryError(f"no user {name!r} in workspace {workspace!r}: name a user by id, name or alias")


async def _events_of(log: LogReader) -> AsyncIterator[Event]:
    async for entry in entries_of(log):
        yield entry.event


def needles(wanted: Forgotten) -> list[tuple[bytes, ...]]:
    """Words that a record about it holds together: ids, as products and events write them."""
    said = ((canonical.channel_of(uid).encode(), canonical.native_id(uid).encode()) for uid in wanted.messages)
    return [*said, *((user.encode(),) for user in wanted.users)]


# ----------------------------------------------------------------------------------------------------------- prove


async def traces(
    wanted: Forgotten,
    log: LogReader,
    store: StructureStore,
    vectors: VectorIndex | None,
    progress: Progress | None = None,
) -> Traces:
    """Search everything for what was forgotten. Looks at what is there, not at how it was taken out."""
    marks = wanted.marks | await _marked(log)
    messages, users = frozenset(wanted.messages), frozenset(wanted.users)
    about: set[str] = set()
    mentioning: dict[str, str] = {}
    copying: dict[str, str] = {}
    async for entry in entries_of(log, progress):
        if isinstance(entry.event, ErasureEvent):
            continue
        if erasure.without(entry.event, marks) is not entry.event:
            about.add(entry.key)
        elif isinstance(entry.event, MessageEvent) and entry.event.workspace == wanted.workspace:
            said = canonical.uid(wanted.workspace, entry.event.channel.id, entry.event.id)
            mentioning |= {entry.key: said} if _mentions(entry.event, users) else {}
            copying |= {entry.key: said} if _passes_on(entry.event, messages) else {}
    for key in await log.erased([*about, *mentioning, *copying]):
        about.discard(key)
        mentioning.pop(key, None)
        copying.pop(key, None)
    rows = {"registers": 0, "sequences": 0, "answers": 0, "directory": 0}
    async for kind, content in store.everything():
        if (place := _PLACES.get(kind)) is not None:
            rows[place] += _about(kind, content, marks)
    summaries, cached = await in_words(wanted, store)
    points = await vectors.traces(wanted.workspace, wanted.messages, wanted.users) if vectors else None
    return Traces(
        log=len(about),
        registers=rows["registers"],
        sequences=rows["sequences"],
        answers=rows["answers"],
        directory=rows["directory"],
        vectors=points,
        summaries=summaries,
        cached=cached,
        artifacts=await _grouped(wanted, store),
        mentions=len(set(mentioning.values())),
        copies=tuple(sorted(set(copying.values()))),
    )


async def _grouped(wanted: Forgotten, store: StructureStore) -> int:
    """How often the grouping into artifacts names a forgotten message."""
    grouping = await store.grouping(wanted.workspace)
    forgotten = frozenset(wanted.messages)
    return sum(uid in forgotten for uid in artifacts.named_in(grouping)) if grouping is not None else 0


_PLACES = {"version": "registers", "entry": "sequences", "answering": "answers", "fact": "directory"}
_version = msgspec.msgpack.Decoder(Version)
_entry = msgspec.msgpack.Decoder(Entry)
_answering = msgspec.msgpack.Decoder(Answering)


def _about(kind: str, content: bytes, marks: set[str]) -> bool:
    """Whether a row of the store is about something forgotten. That a message answers something is its own."""
    if kind == "version":
        version = _version.decode(content)
        return bool(marks.intersection((version.uid, erasure.user_mark(version.workspace, version.user))))
    if kind == "entry":
        entry = _entry.decode(content)
        authored = entry.sequence.view == "actor" and entry.sequence.branch == "authored"
        return entry.leaf.uid in marks or (
            authored and erasure.user_mark(entry.sequence.workspace, entry.sequence.tree) in marks
        )
    if kind == "answering":
        return _answering.decode(content).leaf.uid in marks
    fact = canonical.decode(content)
    return erasure.without(fact, marks) is not fact


def _mentions(event: MessageEvent, users: frozenset[str]) -> bool:
    named = (m.id for m in event.mentions if m.type == "user")
    return not users.isdisjoint(named) or not users.isdisjoint(event.participants)


def _passes_on(event: MessageEvent, messages: frozenset[str]) -> bool:
    passed = event.forwarded
    return (
        passed is not None
        and bool(passed.id)
        and canonical.uid(event.workspace, passed.channel or event.channel.id, passed.id or "") in messages
    )


async def in_words(wanted: Forgotten, store: StructureStore) -> tuple[int, int]:
    """How many summaries (wordings among them) and cached texts are about a forgotten message or user.

    A text is about what it was made from, and about what those texts were made from. A wording whose text has left the
    cache counts: texts leave it only by being erased.
    """
    about = _Needles(wanted)
    found, cached, tainted = 0, set[str](), set[str]()
    worded: list[tuple[str, bool]] = []
    async for key, said in store.generated():
        if isinstance(said, Paid):
            cached.add(key)
            tainted |= {key} if about.paid(said) else set()
        elif said.node.sequence.workspace == wanted.workspace:
            found += (hit := about.node(said))
            worded += [(key, bool(said.text))] if isinstance(said, Wording) and not hit else []
    tainted = await _made_from(tainted, store)
    return found + sum(key in tainted or (text and key not in cached) for key, text in worded), len(tainted)


class _Needles:
    """What is searched for in generated texts."""

    def __init__(self, wanted: Forgotten) -> None:
        self._uids = frozenset(wanted.messages)
        self._names = [msgspec.json.encode(uid).decode() for uid in wanted.messages]
        self._quotes = tuple(f"<@{user}>:" for user in wanted.users)

    def node(self, said: Summary | Wording) -> bool:
        """Whether it ends at a forgotten message, quotes one, or speaks for a forgotten user."""
        picks = said.picks if isinstance(said, Summary) else ()
        return not self._uids.isdisjoint((*picks, said.first.uid, said.last.uid)) or _says(said.text, self._quotes)

    def paid(self, said: Paid) -> bool:
        """Whether it was made from a forgotten message. Where that is not known, it is looked for in all of it."""
        if said.sources:
            return not self._uids.isdisjoint((*said.sources, *said.beside))
        return any(name in said.text for name in self._names) or _says(said.text, self._quotes)


async def _made_from(keys: set[str], store: StructureStore) -> set[str]:
    """The keys of these cached texts, of those made from them, and so on."""
    found = news = keys
    while news:  # one look for each level of a tree, and none where there is nothing to find
        news = {
            key
            async for key, said in store.generated()
            if isinstance(said, Paid) and key not in found and not found.isdisjoint((*said.sources, *said.beside))
        }
        found = found | news
    return found


def _says(text: str, quotes: tuple[str, ...]) -> bool:
    """Whether a quote begins with one of these; others may write the same in the middle of what they say."""
    return any(text.startswith(quote) or f"· {quote}" in text or f'"{quote}' in text for quote in quotes)
