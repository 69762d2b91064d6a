"""The structure store in Redis or a Redis Cluster: any number of processes write to it at the same time.

Nothing is kept in the process. Every write is one or more atomic steps that commute and repeat, each within one key
or one hash tag (redis_keys), and indexes are written again with everything that they list. What belongs to one channel
has one hash tag, so that a batch takes few commands:

    {channel}v  versions     message -> frames, one for each version      {channel}p  message -> its sequences
    {channel}a… answers      sorted set for each target                   {channel}T  targets
    {channel}r… reactions    hash for each message                        {channel}R  messages with reactions
    {channel}n  counts       {place}s…  leaves of a sequence, sorted set  {place}x…   its redactions
    {place}u    summaries    {place}w         wordings                    {queue}marks…   what is due
    {workspace}f, g  facts, their generation  {workspace}i  its sequences, listed
    {workspace}y, G  grouping, its generation

with an own tag as `place` for sequences that are not of one channel. Texts and erasure marks lie on shelves.

What erasure empties leaves the indexes, unless somebody enters something at the same time: who enters lists after
what it entered, and who unlists looks once more and lists again what is there.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from hashlib import blake2b
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from streammem.backends import redis_scripts as scripts
from streammem.backends.erasing import message_of, paid, quoting, searched, without_user, written
from streammem.backends.redis_connection import MOST, PIECE, Command, Connection, Script, binary, pieces
from streammem.backends.redis_keys import Home, Place, checked, home, place, quoted, sequence_of, uid_start
from streammem.core import events
from streammem.core.registers import fact_key, fact_order
from streammem.errors import MemoryFormatError
from streammem.ports import QUEUES, SUMMARIES, Fact, Span, Stand, StructureStore
from streammem.records import (
    Answering,
    Artifacts,
    DirectoryEvent,
    Due,
    Entry,
    Leaf,
    NodeId,
    Paid,
    Position,
    ReactionEvent,
    Redaction,
    Sequence,
    Summary,
    Version,
    Wording,
)

FORMAT = 1
"""The layout above. A break makes it 2."""

SHELVES = {"texts": 64, "erased": 16}
"""The cache and the erasure marks are spread over so many keys: they grow without end and have no other name.

Every batch asks for hundreds of marks, and each shelf costs it a command.
"""

KEPT = ("card", "vectors", "beats")
"""What `clear` leaves alone, beside the cache, the erasure marks and the generations of facts and groupings."""

PAGE = 1000
"""Leaves read at a time of a long sequence."""

FEW = 100
"""Sequences read at a time: many are short, and a page of each of them is in memory."""

Value = TypeVar("Value")
Name = TypeVar("Name")
Arguments = tuple[Any, ...]
Item = tuple[str, str, Arguments]
"""Tag, key, and what a script is told of it."""

_pack = msgspec.msgpack.Encoder().encode
_version = msgspec.msgpack.Decoder(Version).decode
_summary = msgspec.msgpack.Decoder(Summary).decode
_wording = msgspec.msgpack.Decoder(Wording).decode
_artifacts = msgspec.msgpack.Decoder(Artifacts).decode
_fact: msgspec.json.Decoder[Fact] = msgspec.json.Decoder(Fact)


# ----------------------------------------------------------------------------------------------- what keys contain


def framed(version: Version) -> bytes:
    """A version as it is kept beside the others of its message: length, length of its identity, content.

    The identity is the fields up to the hash: uid and core.registers.order. Three bytes stand before the first field.
    """
    raw = _pack(version)
    identity = len(_pack((version.uid, version.number, version.deleted, version.hash))) - 1
    return struct.pack(">IH", len(raw), identity) + raw


def _frames(value: bytes) -> list[bytes]:
    raws, at = [], 0
    while at < len(value):
        (length,) = struct.unpack_from(">I", value, at)
        raws.append(value[at + 6 : at + 6 + length])
        at += 6 + length
    return raws


def weighed(fact: Fact) -> bytes:
    """A fact as it is kept: its order as bytes that compare as core.registers.fact_order does, what it says, itself.

    What it says is a digest of all but the version.
    """
    number, absent, digest = fact_order(fact, events.content_hash(fact))
    order = f"{number}\0{int(absent)}{digest}".encode()
    said = blake2b(events.encode(msgspec.structs.replace(fact, version="0")), digest_size=16).digest()
    return struct.pack(">H", len(order)) + order + said + events.encode(fact)


def _place(reaction: ReactionEvent) -> tuple[str, str, str]:
    return reaction.workspace, reaction.channel, reaction.message


def _said(fact: Fact) -> tuple[msgspec.Raw, msgspec.Raw]:
    """The register of a fact and its content, for a script."""
    return binary(_pack(fact_key(fact))), binary(weighed(fact))


def _rewritten(field: bytes, value: bytes, left: Callable[[Fact], Fact | None]) -> tuple[bytes, ...]:
    """Field, content and new content of a fact that is to change, for a script; no new content where it is to go."""
    fact = _fact.decode(_json(value))
    rest = left(fact)
    return () if rest is fact else (field, value, weighed(rest) if rest is not None else b"")


def _json(value: bytes) -> bytes:
    (length,) = struct.unpack_from(">H", value)
    return value[18 + length :]


def _sorted_facts(values: Iterable[bytes]) -> list[Any]:
    return sorted((_fact.decode(_json(value)) for value in values), key=fact_key)


def _leaves(flat: Many[Any]) -> tuple[Leaf, ...]:
    """From uid, ts, uid, ts, ..."""
    return tuple(Leaf(int(ts), uid.decode()) for uid, ts in zip(flat[::2], flat[1::2], strict=True))


# -------------------------------------------------------------------------------------------------- few commands


class Bundle(NamedTuple):
    """What one script does for several keys of one tag: for each key a count and then the arguments of its items.

    `numbers` says which items these are, in the order in which they are answered.
    """

    tag: str
    numbers: list[int]
    keys: list[str]
    arguments: list[Any]


def _bundles(items: Iterable[Item]) -> Iterator[Bundle]:
    tags: dict[str, dict[str, list[tuple[int, Arguments]]]] = defaultdict(lambda: defaultdict(list))
    for number, (tag, key, arguments) in enumerate(items):
        tags[tag][key].append((number, arguments))
    for tag, keys in tags.items():
        bundle = Bundle(tag, [], [], [])
        for key, piece in ((key, piece) for key, found in keys.items() for piece in pieces(found)):
            if len(bundle.numbers) + len(piece) > MOST:
                yield bundle
                bundle = Bundle(tag, [], [], [])
            bundle.numbers.extend(number for number, _ in piece)
            bundle.keys.append(key)
            bundle.arguments.append(len(piece))
            for _, arguments in piece:
                bundle.arguments.extend(arguments)
        yield bundle


def _grouped(items: Iterable[tuple[str, Value]]) -> dict[str, list[Value]]:
    """By the first of each pair."""
    groups: dict[str, list[Value]] = defaultdict(list)
    for name, item in items:
        groups[name].append(item)
    return groups


def _by_channel(items: Iterable[tuple[str, Value]]) -> dict[str, list[tuple[str, Value]]]:
    """(uid, value) as (message id, value), by the tag of the channel."""
    groups: dict[str, list[tuple[str, Value]]] = defaultdict(list)
    for uid, value in items:
        tag, id_ = home(uid)
        groups[tag].append((id_, value))
    return groups


def _flat_pieces(groups: Mapping[str, Many[tuple[Any, ...]]]) -> Iterator[tuple[str, list[Any]]]:
    """For each tag its tuples one after the other, in pieces."""
    for tag, pairs in groups.items():
        for piece in pieces(pairs):
            yield tag, [part for pair in piece for part in pair]


# ------------------------------------------------------------------------------------------------------ the store


class RedisStructure(StructureStore):
    """All keys begin with `prefix` and a colon."""

    def __init__(self, url: str, prefix: str = "streammem", *, cluster: bool = False) -> None:
        self._prefix = f"{checked(prefix)}:"
        self._redis = Connection(url, scripts.STRUCTURE, cluster=cluster)

    @classmethod
    async def open(cls, url: str, prefix: str = "streammem", *, cluster: bool = False) -> Self:
        """Connect, and check that what is there can be read: MemoryFormatError if another version wrote it.

        A store that is not opened but made can `clear` such data.
        """
        store = cls(url, prefix, cluster=cluster)
        try:
            await store.check()
        except BaseException:
            await store.close()
            raise
        return store

    async def check(self) -> None:
        """Refuse data that another version wrote."""
        key = self._key("", "format")
        _, found = await self._redis.run([("SET", key, FORMAT, "NX"), ("GET", key)])
        if found != str(FORMAT).encode():
            raise MemoryFormatError(
                f"the memory {self._prefix[:-1]!r} in Redis at {self._redis.place} has format {found.decode()}, this"
                f" streammem reads {FORMAT}: use the one that wrote it, or run `streammem rebuild`"
            )

    async def close(self) -> None:
        """Closing twice is no fault."""
        await self._redis.close()

    async def describe(self, card: bytes, name: str = "card") -> bytes:
        """Give the memory a card if it has none (or `vectors`, the name of its index), and return the one it has."""
        key = self._key("", name)
        _, standing = await self._redis.run([("SET", key, card, "NX"), ("GET", key)])
        return bytes(standing)

    async def redescribe(self, card: bytes, name: str = "card") -> None:
        """Give the memory another card."""
        await self._redis.run([("SET", self._key("", name), card)])

    # ---- names
    def _key(self, tag: str, kind: str, rest: str = "") -> str:
        return f"{self._prefix}{{{tag}}}{kind}{rest}" if tag else f"{self._prefix}{kind}{rest}"

    def _keys(self, tag: str, *kinds: str) -> list[str]:
        return [self._key(tag, kind) for kind in kinds]

    def _queue(self, queue: str) -> list[str]:
        return self._keys(quoted(queue), "marks", "free", "held", "clock")

    # ---- growing
    async def register(self, versions: Many[Version]) -> None:
        frames = _by_channel((version.uid, binary(framed(version))) for version in versions)
        commands = [scripts.REGISTER(self._keys(tag, "v", "n"), flat) for tag, flat in _flat_pieces(frames)]
        await self._redis.run([*self._list_channels(frames), *commands])

    async def enter(self, entries: Many[Entry]) -> None:
        places = {sequence: place(sequence) for sequence in {entry.sequence for entry in entries}}
        leaves = [(places[e.sequence], (e.leaf.ts, e.leaf.uid)) for e in entries]
        entered = [(where.tag, self._key(where.tag, "s", where.rest), leaf) for where, leaf in leaves]
        commands = [scripts.ENTER(bundle.keys, bundle.arguments) for bundle in _bundles(entered)]
        await self._redis.in_turn([*self._placed(entries, places), *commands], *self._listed(places))

    def _placed(self, entries: Many[Entry], places: Mapping[Sequence, Place]) -> list[Command]:
        """Which sequences each message has a leaf in."""
        names: dict[str, str] = {}
        for entry in entries:
            uid, name = entry.leaf.uid, places[entry.sequence].name + "\n"
            known = names.get(uid)
            names[uid] = name if known is None else known + name
        channels = _by_channel(names.items())
        commands = [scripts.PLACE(self._keys(tag, "p", "n"), flat) for tag, flat in _flat_pieces(channels)]
        return [*self._list_channels(channels), *commands]

    def _listed(self, places: Mapping[Sequence, Place]) -> tuple[list[Command], list[Command]]:
        """The indexes, with every batch: Redis may have forgotten them and nothing else. First those of sequences."""
        workspaces = _by_workspace(places)
        commands = [
            scripts.LIST(self._keys(quoted(workspace), "i"), piece)
            for workspace, names in workspaces.items()
            for piece in pieces(names)
        ]
        return commands, self._list("workspaces", workspaces)

    def _list_channels(self, tags: Iterable[str]) -> list[Command]:
        return self._list("channels", tags)

    def _list(self, index: str, names: Iterable[str]) -> list[Command]:
        return [("SADD", self._key("", index), *piece) for piece in pieces(list(names))]

    async def link(self, answerings: Many[Answering]) -> None:
        homes = [(home(a.target), (a.leaf.ts, a.leaf.uid)) for a in answerings]
        linked = [(tag, self._key(tag, "a", id_), leaf) for (tag, id_), leaf in homes]
        commands = [scripts.LINK([*self._keys(b.tag, "T", "n"), *b.keys], b.arguments) for b in _bundles(linked)]
        await self._redis.run([*self._list_channels({tag for (tag, _), _ in homes}), *commands])

    async def learn(self, facts: Many[Fact]) -> list[Fact]:
        given = [msgspec.structs.replace(fact, ingest=None) for fact in facts]  # how it came must not show in checksums
        directory = [(quoted(f.workspace), i) for i, f in enumerate(given) if not isinstance(f, ReactionEvent)]
        reactions = {i: home(events.uid(*_place(f))) for i, f in enumerate(given) if isinstance(f, ReactionEvent)}
        asked = [*self._learnt(given, directory), *self._reacted(given, reactions)]
        replies = await self._redis.in_turn(
            [
                *(command for _, command in asked),
                *self._list_channels(dict.fromkeys(where.tag for where in reactions.values())),
            ],
            self._list("workspaces", dict.fromkeys(fact.workspace for fact in given)),
        )
        stood = {
            numbers[place] for (numbers, _), found in zip(asked, replies[: len(asked)], strict=True) for place in found
        }
        return list({fact_key(fact): fact for i, fact in enumerate(given) if i in stood}.values())

    def _learnt(self, given: Many[Fact], numbered: Iterable[tuple[str, int]]) -> Iterable[tuple[Many[int], Command]]:
        """Commands that learn directory facts, each with the numbers of the facts in it."""
        for workspace, numbers in _grouped(numbered).items():
            for piece in pieces(numbers):
                flat = [part for i in piece for part in _said(given[i])]
                yield piece, scripts.LEARN(self._keys(workspace, "f", "g"), flat)

    def _reacted(self, given: Many[Fact], homes: Mapping[int, Home]) -> Iterable[tuple[Many[int], Command]]:
        """Commands that learn reactions, each with the numbers of the facts in it."""
        for tag, numbers in _grouped((where.tag, i) for i, where in homes.items()).items():
            for piece in pieces(numbers):
                messages = list(dict.fromkeys(homes[i].id for i in piece))
                places = {id_: place for place, id_ in enumerate(messages, start=3)}
                keys = [*self._keys(tag, "R", "n"), *(self._key(tag, "r", id_) for id_ in messages)]
                flat: list[Any] = []
                for i in piece:
                    flat += (places[homes[i].id], homes[i].id, *_said(given[i]))
                yield piece, scripts.REACT(keys, flat)

    async def mark_due(
        self, marks: Many[tuple[Sequence, Leaf]], queue: str = SUMMARIES, until: float | None = None
    ) -> None:
        least: dict[Sequence, Leaf] = {}
        for sequence, leaf in marks:
            known = least.setdefault(sequence, leaf)
            if leaf < known:
                least[sequence] = leaf
        till = "" if until is None else repr(float(until))
        marked = [(place(sequence).name, str(leaf.ts), leaf.uid) for sequence, leaf in least.items()]
        await self._redis.run(
            [
                scripts.MARK(self._queue(queue), [till, *(part for mark in piece for part in mark)])
                for piece in pieces(marked)
            ]
        )

    async def redact(self, marks: Many[tuple[Sequence, Leaf]]) -> None:
        places = [(place(sequence), leaf) for sequence, leaf in marks]
        redacted = [(w.tag, self._key(w.tag, "x", w.rest), (f"{leaf.ts} {leaf.uid}",)) for w, leaf in places]
        commands = [scripts.REDACT(bundle.keys, bundle.arguments) for bundle in _bundles(redacted)]
        await self._redis.run([*self._list("redacted", dict.fromkeys(w.name for w, _ in places)), *commands])

    # ---- erasure
    async def forbid(self, marks: Many[str]) -> None:
        shelves = _grouped((_shelf("erased", mark), mark) for mark in marks)
        await self._redis.run(
            [("SADD", self._key(shelf, "erased"), *piece) for shelf, some in shelves.items() for piece in pieces(some)]
        )

    async def forbidden(self, marks: Iterable[str]) -> set[str]:
        shelves = _grouped((_shelf("erased", mark), mark) for mark in set(marks))
        asked = [(shelf, piece) for shelf, some in shelves.items() for piece in pieces(some)]
        replies = await self._redis.run([scripts.MARKED(self._keys(shelf, "erased"), piece) for shelf, piece in asked])
        return {
            mark
            for (_, piece), found in zip(asked, replies, strict=True)
            for mark, known in zip(piece, found, strict=True)
            if known
        }

    async def withdraw(self, leaves: Many[tuple[Sequence, str]]) -> None:
        """The placements go last: they say what is still to be done."""
        places = [(place(sequence), uid) for sequence, uid in leaves]
        gone = [(where.tag, self._key(where.tag, "s", where.rest), (uid,)) for where, uid in places]
        await self._redis.run([scripts.WITHDRAW(bundle.keys, bundle.arguments) for bundle in _bundles(gone)])
        await self._relist(list(dict.fromkeys(sequence for sequence, _ in leaves)))
        names: dict[str, str] = defaultdict(str)
        for where, uid in places:
            names[uid] += where.name + "\n"
        channels = _by_channel(names.items())
        await self._redis.run(
            [scripts.UNPLACE(self._keys(tag, "p", "n"), flat) for tag, flat in _flat_pieces(channels)]
        )

    async def sweep(self) -> None:
        """Somebody who enters leaves meanwhile marks them due, so summaries are looked at again anyhow."""
        names = await self._members(self._key("", "redacted"))
        trees: dict[Sequence, list[Place]] = defaultdict(list)
        for name in names:
            sequence = sequence_of(name)
            trees[Sequence(sequence.workspace, sequence.view, sequence.tree)].append(place(sequence))
        for tree, places in trees.items():
            if await self.sequences(tree.workspace, tree.view, tree.tree):
                continue
            await self._redis.run([("DEL", self._key(where.tag, "x", where.rest)) for where in places])
            await self._redis.run([("SREM", self._key("", "redacted"), *(where.name for where in places))])

    async def _relist(self, sequences: Many[Sequence]) -> None:
        """List what has leaves and nothing else."""
        emptied = _by_workspace({s: place(s) for s in await self._without_leaves(sequences)})
        await self._redis.run(
            [
                ("ZREM", self._key(quoted(workspace), "i"), *piece)
                for workspace, names in emptied.items()
                for piece in pieces(names)
            ]
        )
        still = await self._without_leaves(sequences)
        await self._redis.in_turn(*self._listed({s: place(s) for s in sequences if s not in still}))
        await self._leave(emptied)

    async def _without_leaves(self, sequences: Many[Sequence]) -> set[Sequence]:
        return {s for s, size in zip(sequences, await self.sizes(sequences), strict=True) if not size}

    async def _leave(self, workspaces: Iterable[str]) -> None:
        """Name those no more that have neither leaf nor fact left."""
        asked = list(workspaces)
        empty = [workspace for workspace in asked if not await self._has_any(workspace)]
        await self._redis.run([("SREM", self._key("", "workspaces"), *piece) for piece in pieces(empty)])
        await self._redis.run(self._list("workspaces", [w for w in asked if await self._has_any(w)]))

    async def _has_any(self, workspace: str) -> bool:
        tag = quoted(workspace)
        if any(await self._redis.run([("ZCARD", self._key(tag, "i")), ("HLEN", self._key(tag, "f"))])):
            return True
        return await self._total("SCARD", [self._key(tag, "R") for tag in await self._channels_of(workspace)]) > 0

    async def _channels_of(self, workspace: str) -> list[str]:
        """The tags of its channels."""
        start = events.uid(workspace, "", "")[:-1]
        return sorted(tag for tag in await self._members(self._key("", "channels")) if uid_start(tag).startswith(start))

    async def unlink(self, answers: Many[tuple[str, str]]) -> None:
        homes = [(home(target), uid) for target, uid in answers]
        gone = [(tag, self._key(tag, "a", id_), (uid,)) for (tag, id_), uid in homes]
        await self._redis.run(
            [scripts.UNLINK([*self._keys(b.tag, "T", "n"), *b.keys], b.arguments) for b in _bundles(gone)]
        )

    async def strike(self, uids: Many[str]) -> None:
        placed = zip(uids, await self._fields("p", map(home, uids)), strict=True)
        await self.withdraw([(s, uid) for uid, value in placed if value for s in _sequences_in(value)])
        channels = _grouped((tag, self._key(tag, "r", id_)) for tag, id_ in map(home, dict.fromkeys(uids)))
        await self._redis.run(
            [
                scripts.STRIKE([*self._keys(tag, "R", "n", "v"), *piece], ())
                for tag, keys in channels.items()
                for piece in pieces(keys)
            ]
        )
        await self._leave({message_of(uid)[0] for uid in uids})

    async def unlearn(self, workspace: str, user: str) -> None:
        left = without_user(workspace, user)
        tag = quoted(workspace)
        async for piece in self._walk("HSCAN", self._key(tag, "f")):
            changed = (_rewritten(field, value, left) for field, value in piece.items())
            flat = [binary(part) for parts in changed for part in parts]
            await self._redis.run([scripts.UNLEARN(self._keys(tag, "f", "g"), flat)] if flat else [])
        for channel in await self._channels_of(workspace):
            async for ids in self._walk("SSCAN", self._key(channel, "R")):
                await self._unreact(channel, [self._key(channel, "r", id_.decode()) for id_ in ids], left)
        await self._leave([workspace])

    async def _unreact(self, tag: str, keys: Many[str], left: Callable[[Fact], Fact | None]) -> None:
        found = await self._redis.run([("HGETALL", key) for key in keys])
        gone: list[Item] = [
            (tag, key, (binary(field),))
            for key, reactions in zip(keys, found, strict=True)
            for field, value in reactions.items()
            if left(_fact.decode(_json(value))) is None
        ]
        await self._redis.run(
            [scripts.UNREACT([*self._keys(tag, "R", "n"), *b.keys], b.arguments) for b in _bundles(gone)]
        )

    async def uncache(self, uids: Many[str]) -> None:
        """What was made from others goes before them: by them it is found again if this is cut short."""
        for keys in reversed(await self._generations(uids)):
            await self._without("texts", [(_shelf("texts", key), key) for key in keys])

    async def texts_of(self, uids: Many[str]) -> list[str]:
        return [key for keys in await self._generations(uids) for key in keys]

    async def _generations(self, uids: Many[str]) -> list[list[str]]:
        """The texts that name one of these, those that name one of those, and so on."""
        rounds, found, names = list[list[str]](), set[str](), list(uids)
        while names:
            quotes = quoting(names)
            names = [key async for key, text in self._texts() if key not in found and quotes(text)]
            found.update(names)
            rounds.append(names)
        return rounds

    async def _texts(self) -> AsyncIterator[tuple[str, str]]:
        """The cache as it is kept."""
        for shelf in self._shelved("texts"):
            async for piece in self._walk("HSCAN", shelf):
                for key, text in piece.items():
                    yield key.decode(), text.decode()

    def _shelved(self, kind: str) -> list[str]:
        return [self._key(str(shelf), kind) for shelf in range(SHELVES[kind])]

    # ---- reading the forests
    async def versions(self, uids: Many[str]) -> list[tuple[Version, ...]]:
        values = await self._fields("v", map(home, uids))
        return [tuple(map(_version, _frames(value))) if value else () for value in values]

    async def _fields(self, kind: str, homes: Iterable[tuple[str, str]]) -> list[Any]:
        """The fields of hashes, one hash for each tag, in the order asked."""
        groups: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for number, (tag, field) in enumerate(homes):
            groups[tag].append((number, field))
        asked = [(tag, piece) for tag, fields in groups.items() for piece in pieces(fields)]
        replies = await self._redis.run(
            [scripts.FIELDS(self._keys(tag, kind), [field for _, field in piece]) for tag, piece in asked]
        )
        values: list[Any] = [None] * sum(map(len, groups.values()))
        for (_, piece), found in zip(asked, replies, strict=True):
            for (number, _), value in zip(piece, found, strict=True):
                values[number] = value
        return values

    async def placements(self, uids: Many[str]) -> list[tuple[Stand, ...]]:
        placed = [_sequences_in(value) if value else [] for value in await self._fields("p", map(home, uids))]
        asked = [(sequence, (uid,)) for uid, sequences in zip(uids, placed, strict=True) for sequence in sequences]
        found = iter(await self._of_sequences(scripts.STANDS, asked, width=2))
        stands = [[Stand(sequence, *next(found)) for sequence in sequences] for sequences in placed]
        return [tuple(stand for stand in known if stand.rank >= 0) for known in stands]

    async def _of_sequences(self, script: Script, asked: Many[tuple[Sequence, Arguments]], width: int = 1) -> list[Any]:
        """What a script says of each: `width` values, as a tuple where that is more than one."""
        places = [(place(sequence), arguments) for sequence, arguments in asked]
        return await self._each(script, [(w.tag, self._key(w.tag, "s", w.rest), given) for w, given in places], width)

    async def _each(self, script: Script, items: Many[Item], width: int = 1, first: Many[str] = ()) -> list[Any]:
        """What a script says of each. It is given the `first` kinds of the tag before the keys of the items."""
        bundles = list(_bundles(items))
        replies = await self._redis.run([script([*self._keys(b.tag, *first), *b.keys], b.arguments) for b in bundles])
        values: list[Any] = [None] * len(items)
        for bundle, found in zip(bundles, replies, strict=True):
            said = found if width == 1 else zip(*[iter(found)] * width, strict=True)
            for number, value in zip(bundle.numbers, said, strict=True):
                values[number] = value
        return values

    async def leaves(self, spans: Many[Span]) -> list[tuple[Leaf, ...]]:
        cut = [(span, max(span.start, 0), max(span.stop, 0)) for span in spans]
        asked = [(span.sequence, (start, stop - 1)) for span, start, stop in cut if start < stop]
        found = iter(await self._of_sequences(scripts.LEAVES, asked))
        return [_leaves(next(found)) if start < stop else () for _, start, stop in cut]

    async def ranks(self, leaves: Many[tuple[Sequence, Leaf]]) -> list[int]:
        return await self._of_sequences(
            scripts.RANKS, [(sequence, (str(leaf.ts), leaf.uid)) for sequence, leaf in leaves]
        )

    async def sizes(self, sequences: Many[Sequence]) -> list[int]:
        return await self._each(scripts.EACH["ZCARD"], self._keys_of("s", sequences))

    def _keys_of(self, kind: str, sequences: Many[Sequence]) -> list[Item]:
        return [(where.tag, self._key(where.tag, kind, where.rest), ()) for where in map(place, sequences)]

    async def answers(self, uids: Many[str]) -> list[tuple[Leaf, ...]]:
        asked = [(tag, self._key(tag, "a", id_), (0, -1)) for tag, id_ in map(home, uids)]
        return [_leaves(flat) for flat in await self._each(scripts.LEAVES, asked)]

    async def sequences(self, workspace: str, view: str | None = None, tree: str | None = None) -> list[Sequence]:
        wanted = [part for part in (view, tree if view is not None else None) if part is not None]
        start = "".join(f"{quoted(part)}/" for part in wanted)
        found = [sequence async for sequence in self._sequences(workspace, start)]
        return sorted(sequence for sequence in found if tree is None or sequence.tree == tree)

    async def _sequences(self, workspace: str, start: str = "") -> AsyncIterator[Sequence]:
        """The sequences of a workspace whose listed names begin so, as many as there are, in pieces."""
        key, name = self._key(quoted(workspace), "i"), quoted(workspace)
        low, high = f"[{start}", f"({_after(start)}" if start else "+"
        while low:
            [found] = await self._redis.run([("ZRANGEBYLEX", key, low, high, "LIMIT", 0, PIECE)])
            for listed in found:
                yield sequence_of(f"{name}/{listed.decode()}")
            low = f"({found[-1].decode()}" if len(found) == PIECE else ""

    async def workspaces(self) -> list[str]:
        return sorted(await self._members(self._key("", "workspaces")))

    async def _members(self, key: str) -> set[str]:
        """All members of a set."""
        return {name.decode() async for piece in self._walk("SSCAN", key) for name in piece}

    async def _walk(self, command: str, key: str) -> AsyncIterator[Any]:
        """A hash or set in pieces. None comes twice, unless most of a long one is erased meanwhile."""
        cursor: int | None = None
        while cursor != 0:
            [(cursor, piece)] = await self._redis.run([(command, key, cursor or 0, "COUNT", PIECE)])
            yield piece

    async def facts(self, workspace: str) -> list[DirectoryEvent]:
        [values] = await self._redis.run([("HVALS", self._key(quoted(workspace), "f"))])
        return _sorted_facts(values)

    async def facts_generation(self, workspace: str) -> int:
        """Facts that say what they said before, only later, do not count: every message hints at its channel's name."""
        [number] = await self._redis.run([("GET", self._key(quoted(workspace), "g"))])
        return int(number or 0)

    async def reactions(self, workspace: str, channel: str, message: str) -> list[ReactionEvent]:
        tag, id_ = home(events.uid(workspace, channel, message))
        [values] = await self._redis.run([("HVALS", self._key(tag, "r", id_))])
        return _sorted_facts(values)

    # ---- summarising
    async def due(self, limit: int, now: float = 0.0, lease: float = 0.0, queue: str = SUMMARIES) -> list[Due]:
        if limit <= 0:
            return []
        until = [repr(float(now + lease))] if lease else []
        [flat] = await self._redis.run([scripts.DUE(self._queue(queue)[:3], [limit, repr(float(now)), *until])])
        return [_due(name, mark) for name, mark in zip(flat[::2], flat[1::2], strict=True)]

    async def hold(self, due: Many[Due], until: float, queue: str = SUMMARIES) -> None:
        await self._redis.run(
            [scripts.HOLD(self._queue(queue)[:3], [repr(float(until)), *_marks(piece)]) for piece in pieces(due)]
        )

    async def settle(self, due: Many[Due], queue: str = SUMMARIES) -> list[Due]:
        parts = list(pieces(due))
        replies = await self._redis.run(
            [scripts.SETTLE(self._queue(queue)[:3], _names_and_generations(piece)) for piece in parts]
        )
        return [piece[i] for piece, gone in zip(parts, replies, strict=True) for i in gone]

    async def redactions(self, sequences: Many[Sequence]) -> list[tuple[Redaction, ...]]:
        found = await self._each(scripts.EACH["HGETALL"], self._keys_of("x", sequences))
        return [_redactions(dict(zip(flat[::2], flat[1::2], strict=True))) for flat in found]

    async def summaries(self, nodes: Many[NodeId], *, vectors: bool = True) -> list[Summary | None]:
        """Vectors are most of a summary and have a field of their own, written together with it."""
        homes = list(map(_node_home, nodes))
        fields = [(tag, part) for tag, field in homes for part in (field, f"{field}v")[: 1 + vectors]]
        values = iter(await self._fields("u", fields))
        read = [(next(values), next(values) if vectors else b"") for _ in homes]
        return [_with_vector(_summary(value), vector) if value else None for value, vector in read]

    async def keep(self, summaries: Many[Summary]) -> None:
        kept = [(*_node_home(summary.node), summary) for summary in summaries]
        bare = [
            (tag, field, msgspec.structs.replace(summary, vector=b""), summary.vector) for tag, field, summary in kept
        ]
        fields = _grouped((tag, (field, _pack(summary), f"{field}v", vector)) for tag, field, summary, vector in bare)
        commands: list[Command] = [("HSET", self._key(tag, "u"), *flat) for tag, flat in _flat_pieces(fields)]
        await self._redis.run([*self._list("summarised", fields), *commands])

    async def drop(self, nodes: Many[NodeId]) -> None:
        """Summaries first: without them nothing is worded any more."""
        homes = list(map(_node_home, nodes))
        await self._without("u", [(tag, part) for tag, field in homes for part in (field, f"{field}v")])
        await self._without("w", homes)

    async def _without(self, kind: str, homes: Iterable[tuple[str, str]]) -> None:
        """Drop fields of hashes, one hash for each tag."""
        await self._redis.run(
            [
                ("HDEL", self._key(tag, kind), *piece)
                for tag, fields in _grouped(homes).items()
                for piece in pieces(fields)
            ]
        )

    # ---- wordings
    async def wordings(self, nodes: Many[NodeId]) -> list[Wording | None]:
        values = await self._fields("w", map(_node_home, nodes))
        return [_wording(value) if value else None for value in values]

    async def word(self, wordings: Many[Wording]) -> list[bool]:
        places = [(place(wording.node.sequence), wording) for wording in wordings]
        await self._redis.run(self._list("summarised", dict.fromkeys(where.tag for where, _ in places)))
        items = [(where.tag, self._key(where.tag, "x", where.rest), _as_worded(wording)) for where, wording in places]
        return [bool(kept) for kept in await self._each(scripts.WORD, items, first=("u", "w"))]

    async def unword(self, nodes: Many[NodeId]) -> None:
        await self._without("w", map(_node_home, nodes))

    async def cached(self, keys: Many[str]) -> list[Paid | None]:
        return list(map(paid, await self._fields("texts", ((_shelf("texts", key), key) for key in keys))))

    async def cache(self, texts: Mapping[str, Paid]) -> None:
        fields = _grouped((_shelf("texts", key), (key, written(text))) for key, text in texts.items())
        await self._redis.run([("HSET", self._key(shelf, "texts"), *flat) for shelf, flat in _flat_pieces(fields)])

    # ---- artifacts
    async def grouping(self, workspace: str) -> Artifacts | None:
        [value] = await self._redis.run([("GET", self._key(quoted(workspace), "y"))])
        return _artifacts(value) if value else None

    async def grouping_generation(self, workspace: str) -> int:
        [number] = await self._redis.run([("GET", self._key(quoted(workspace), "G"))])
        return int(number or 0)

    async def group(self, grouping: Artifacts, generation: int) -> bool:
        keys = self._keys(quoted(grouping.workspace), "y", "G")
        [kept] = await self._redis.run([scripts.GROUP(keys, (str(generation), binary(_pack(grouping))))])
        return bool(kept)

    async def ungroup(self, workspace: str) -> None:
        await self._redis.run([scripts.UNGROUP(self._keys(quoted(workspace), "y", "G"), ())])

    # ---- offsets and the whole
    async def applied(self, name: str) -> Position:
        [places] = await self._redis.run([("HGETALL", self._key("", "applied/", name))])
        return {int(partition): int(place) for partition, place in sorted(places.items())}

    async def advance(self, name: str, position: Position) -> None:
        """Never goes back: of two places in a partition the greater stands."""
        flat = [part for pair in position.items() for part in pair]
        await self._redis.run([scripts.ADVANCE([self._key("", "applied/", name)], flat)] if flat else [])

    async def everything(self) -> AsyncIterator[tuple[str, bytes]]:
        """Pieces of a few thousand rows. Written to meanwhile, it gives some of that and none of it twice.

        Only when most of a channel is erased meanwhile, some of the rest may come twice.
        """
        workspaces, channels = await self.workspaces(), sorted(await self._members(self._key("", "channels")))
        for tag in channels:
            async for raw in self._versions(tag):
                yield "version", raw
        for workspace in workspaces:
            async for entry in self._entries(workspace):
                yield "entry", _pack(entry)
        for tag in channels:
            async for answering in self._answerings(tag):
                yield "answering", _pack(answering)
        async for raw in self._facts(workspaces, channels):
            yield "fact", raw
        async for mark in self._erased():
            yield "erasure", mark

    async def _versions(self, tag: str) -> AsyncIterator[bytes]:
        async for piece in self._walk("HSCAN", self._key(tag, "v")):
            for value in piece.values():
                for raw in _frames(value):
                    yield raw

    async def _erased(self) -> AsyncIterator[bytes]:
        for key in self._shelved("erased"):
            async for piece in self._walk("SSCAN", key):
                for mark in piece:
                    yield mark

    async def _entries(self, workspace: str) -> AsyncIterator[Entry]:
        batch: list[Sequence] = []
        async for sequence in self._sequences(workspace):
            batch.append(sequence)
            if len(batch) == FEW:
                async for entry in self._entries_of(batch):
                    yield entry
                batch = []
        async for entry in self._entries_of(batch):
            yield entry

    async def _entries_of(self, sequences: Many[Sequence]) -> AsyncIterator[Entry]:
        keys = {
            sequence: self._key(where.tag, "s", where.rest) for sequence in sequences for where in [place(sequence)]
        }
        async for sequence, leaf in self._runs(keys):
            yield Entry(sequence, leaf)

    async def _answerings(self, tag: str) -> AsyncIterator[Answering]:
        async for piece in self._walk("SSCAN", self._key(tag, "T")):
            for ids in pieces([id_.decode() for id_ in piece], FEW):
                keys = {uid_start(tag) + id_: self._key(tag, "a", id_) for id_ in ids}
                async for target, leaf in self._runs(keys):
                    yield Answering(target, leaf)

    async def _runs(self, keys: Mapping[Name, str]) -> AsyncIterator[tuple[Name, Leaf]]:
        """The leaves of sorted sets, the first of all of them at once and those of the long ones page by page."""
        commands = [("ZRANGE", key, 0, PAGE - 1, "WITHSCORES") for key in keys.values()]
        for (name, key), reply in zip(keys.items(), await self._redis.run(commands), strict=True):
            async for leaf in self._run(key, _leaves(reply)):
                yield name, leaf

    async def _run(self, key: str, page: tuple[Leaf, ...]) -> AsyncIterator[Leaf]:
        """The leaves of one sorted set, from its first page on."""
        last, start = None, 0
        while page:
            for leaf in page:
                if last is None or last < leaf:  # else something that came in before it has moved it to this page
                    yield leaf
                    last = leaf
            start += PAGE
            more = [("ZRANGE", key, start, start + PAGE - 1, "WITHSCORES")] if len(page) == PAGE else []
            page = _leaves([part for reply in await self._redis.run(more) for part in reply])

    async def _facts(self, workspaces: Iterable[str], channels: Iterable[str]) -> AsyncIterator[bytes]:
        for workspace in workspaces:
            async for piece in self._walk("HSCAN", self._key(quoted(workspace), "f")):
                for value in piece.values():
                    yield _json(value)
        for tag in channels:
            async for piece in self._walk("SSCAN", self._key(tag, "R")):
                replies = await self._redis.run([("HVALS", self._key(tag, "r", id_.decode())) for id_ in piece])
                for value in (value for values in replies for value in values):
                    yield _json(value)

    async def generated(self) -> AsyncIterator[tuple[str, Summary | Wording | Paid]]:
        """Summaries without their vectors."""
        for tag in await self._members(self._key("", "summarised")):
            async for piece in self._walk("HSCAN", self._key(tag, "u")):
                for field, value in piece.items():
                    if not field.endswith(b"v"):
                        yield "", _summary(value)
            async for piece in self._walk("HSCAN", self._key(tag, "w")):
                for wording in map(_wording, piece.values()):
                    yield wording.key, wording
        async for key, text in self._texts():
            yield key, searched(text)

    async def counts(self) -> dict[str, int]:
        channels = await self._members(self._key("", "channels"))
        totals = Counter[str]()
        commands = [command for tag in channels for command in self._counting(tag)]
        replies = await self._redis.run(commands)
        for messages, numbers in zip(replies[::2], replies[1::2], strict=True):
            totals["messages"] += messages
            totals.update({name.decode(): int(number) for name, number in numbers.items()})
        return {
            **{name: totals[name] for name in ("messages", "versions", "leaves")},
            **await self._forests(),
            "answers": totals["answers"],
            "facts": await self._total("HLEN", [self._key(quoted(w), "f") for w in await self.workspaces()]),
            "reactions": totals["reactions"],
            **{queue: await self._total("HLEN", self._queue(queue)[:1]) for queue in QUEUES},
            "redactions": await self._redacted(),
            **await self._summarised(),
            "cached_texts": await self._total("HLEN", self._shelved("texts")),
            "groupings": await self._total("EXISTS", [self._key(quoted(w), "y") for w in await self.workspaces()]),
        }

    def _counting(self, tag: str) -> list[Command]:
        return [("HLEN", self._key(tag, "v")), ("HGETALL", self._key(tag, "n"))]

    async def _forests(self) -> dict[str, int]:
        """Sequences, and trees by view."""
        sequences, trees = 0, set[tuple[str, str, str]]()
        for workspace in await self.workspaces():
            async for sequence in self._sequences(workspace):
                sequences += 1
                trees.add((sequence.view, workspace, sequence.tree))
        views = Counter(view for view, _, _ in trees)
        names = {"channel_trees": "channel", "actor_trees": "actor", "artifact_sequences": "artifact"}
        return {"sequences": sequences, **{name: views[view] for name, view in names.items()}}

    async def _redacted(self) -> int:
        names = await self._members(self._key("", "redacted"))
        places = [place(sequence_of(name)) for name in names]
        fields = await self._total("HLEN", [self._key(where.tag, "x", where.rest) for where in places])
        return fields - len(places)  # one of each is its serial

    async def _summarised(self) -> dict[str, int]:
        tags = await self._members(self._key("", "summarised"))
        fields = await self._total("HLEN", [self._key(tag, "u") for tag in tags])
        return {
            "summaries": fields // 2,  # a vector each
            "wordings": await self._total("HLEN", [self._key(tag, "w") for tag in tags]),
        }

    async def _total(self, command: str, keys: Many[str]) -> int:
        return sum(await self._redis.run([(command, key) for key in keys]))

    async def clear(self) -> None:
        """Numbers that tell new from old go on from where they were, so that nothing read before fits what comes."""
        kept = {self._key("", name).encode() for name in KEPT}
        clocks = (self._queue(queue)[-1] for queue in QUEUES)
        kept |= {name.encode() for name in (*clocks, *self._shelved("texts"), *self._shelved("erased"))}
        turning = re.compile(rb"%s\{[^}]*\}[gG]" % re.escape(self._prefix.encode()))
        for pattern in (
            "applied/*",
            "*",
        ):  # offsets first: what is left by a clear that was cut short is filled up again
            async for names in self._redis.scan(self._prefix + pattern):
                generations = [name for name in names if turning.fullmatch(name)]
                gone = [name for name in names if name not in kept and name not in generations]
                turned = [scripts.TURN([name.decode()], ()) for name in generations]
                await self._redis.run([*(("UNLINK", name) for name in gone), *turned])
        await self._redis.run([("SET", self._key("", "format"), FORMAT)])


def _by_workspace(places: Mapping[Sequence, Place]) -> dict[str, list[str]]:
    """The names under which sequences are listed, by workspace."""
    return _grouped((sequence.workspace, where.listed) for sequence, where in places.items())


def _sequences_in(placements: bytes) -> list[Sequence]:
    return sorted(map(sequence_of, placements.decode().split("\n")[:-1]))


def _after(start: str) -> str:
    """What comes right after every name that begins so. The last character is a slash."""
    return start[:-1] + "0"


def _due(name: bytes, mark: bytes) -> Due:
    generation, _, ts, uid = mark.decode().split(" ", 3)
    return Due(sequence_of(name.decode()), int(generation), Leaf(int(ts), uid))


def _marks(due: Iterable[Due]) -> list[Any]:
    """Name, generation, ts and uid of each."""
    return [
        part
        for mark in due
        for part in (place(mark.sequence).name, str(mark.generation), str(mark.earliest.ts), mark.earliest.uid)
    ]


def _names_and_generations(due: Iterable[Due]) -> list[Any]:
    return [part for mark in due for part in (place(mark.sequence).name, str(mark.generation))]


def _redactions(serials: Mapping[bytes, bytes]) -> tuple[Redaction, ...]:
    found = [(field.decode().split(" ", 1), int(serial)) for field, serial in serials.items() if field]
    return tuple(sorted((Redaction(Leaf(int(ts), uid), serial) for (ts, uid), serial in found), key=lambda r: r.leaf))


def _with_vector(summary: Summary, vector: bytes | None) -> Summary:
    return msgspec.structs.replace(summary, vector=vector or b"")


def _as_worded(wording: Wording) -> Arguments:
    """A wording for a script, after what must stand for it to be kept."""
    _, field = _node_home(wording.node)
    return wording.serial, field, binary(_pack(wording))


def _node_home(node: NodeId) -> tuple[str, str]:
    where = place(node.sequence)
    return where.tag, f"{where.rest}|{node.level}/{node.index}"


def _shelf(kind: str, key: str) -> str:
    return str(zlib.crc32(key.encode()) % SHELVES[kind])
