"""A question and the directory to a query specification, by rules alone (EGCForest §3.2, design §9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from streammem.core import cues
from streammem.core.calendar import zone_of
from streammem.core.cues import Asks, Cue
from streammem.core.dates_in_text import dated
from streammem.core.directory import Directory, fold
from streammem.core.events import moment
from streammem.core.identifiers import Rules
from streammem.core.people_in_text import people
from streammem.core.things_in_text import channels, loose_identifiers
from streammem.core.words_in_text import Named

_DAY = 25 * 3_600_000_000
"""µs of the longest day: the one on which summer time ends."""


class QuerySpec(msgspec.Struct, frozen=True):
    """What a question names. Ids throughout; a name borne by several people gives all of them.

    `lexical` are the words to search with. `span` is the [start, end) in µs of a time that the question names. `team`
    are those whom "we" means, as far as the directory knows. `lifecycle`: the whole life of a thing is wanted. `named`
    are the places where the question names somebody or something, with all whom they may mean; artifacts among them may
    be spelled otherwise in the memory, and count once they are `found` there.
    """

    text: str
    lexical: str
    asker: str | None
    first_person: bool
    users: tuple[str, ...]
    channels: tuple[str, ...]
    identifiers: tuple[str, ...]
    cue: Cue
    span: tuple[int, int] | None = None
    asks: Asks = ""
    lifecycle: bool = False
    team: tuple[str, ...] = ()
    named: tuple[Named, ...] = ()

    @property
    def entities(self) -> int:
        """How many resolvable entities the question names: S3's join wants two (§3.2.3)."""
        return len(self.users) + len(self.channels) + len(self.identifiers)

    @property
    def spellings(self) -> tuple[str, ...]:
        """The identifiers that may be meant: look for them in the memory."""
        return tuple(dict.fromkeys(i for n in self.named if n.kind == "artifact" for i in n.ids))


def parse(text: str, asker: str | None, directory: Directory, rules: Rules, now: int) -> QuerySpec:
    """Read a question. `now` (µs) is when it is asked, or what it is asked as of. Deterministic."""
    date = dated(text, now, zone_of(directory.user_zone(asker) if asker else ""))
    apart = date.at if date else (0, 0)
    spec = QuerySpec(
        text=text,
        lexical=text,
        asker=asker,
        first_person=asker is not None and cues.first_person(text),
        users=(),
        channels=(),
        identifiers=rules.identifiers(text),
        cue=cues.cue_of(text, date),
        span=(date.start, date.end) if date else None,
        asks=cues.asks_of(text),
        lifecycle=cues.wants_lifecycle(text),
        team=tuple(sorted(directory.team_of(asker))) if asker and cues.of_the_team(text) else (),
    )
    found = [*people(text, directory, apart), *_manager(text, asker, directory), *channels(text, directory, asker)]
    return naming(spec, [*found, *loose_identifiers(text, rules, apart)], directory)


def _manager(text: str, asker: str | None, directory: Directory) -> Iterable[Named]:
    known = directory.manager_of(asker) if asker and cues.of_the_manager(text) else ""
    return [Named("user", "my manager", (known,), (0, 0), "relation")] if known else []


def naming(spec: QuerySpec, named: Iterable[Named], directory: Directory) -> QuerySpec:
    """The specification with these readings of its names, and the words that go with them."""
    named = tuple(named)
    users = dict.fromkeys(one for n in named if n.kind == "user" for one in n.ids)
    if spec.first_person and spec.asker:
        users.setdefault(spec.asker)
    return msgspec.structs.replace(
        spec,
        lexical=_lexical(spec, named, directory),
        users=tuple(users),
        channels=tuple(dict.fromkeys(c for n in named if n.kind == "channel" for c in n.ids)),
        named=named,
    )


def _lexical(spec: QuerySpec, named: Iterable[Named], directory: Directory) -> str:
    """The question, who asks it of himself, the day it names, and the names of those whom it calls otherwise."""
    words: list[str] = []
    if spec.first_person and spec.asker:
        words += [directory.user_name(spec.asker), directory.user_title(spec.asker)]
    words += [directory.user_name(n.ids[0]) for n in named if n.kind == "user" and len(n.ids) == 1]
    words += [i for i in spec.identifiers if i not in spec.text]
    if spec.span is not None and spec.span[1] - spec.span[0] <= _DAY:
        zone = zone_of(directory.user_zone(spec.asker) if spec.asker else "")
        words.append(f"{moment(spec.span[0]).astimezone(zone):%Y-%m-%d}")
    known = fold(spec.text)
    return " ".join([spec.text, *dict.fromkeys(w for w in words if w and fold(w) not in known)])


def found(spec: QuerySpec, known: Collection[str], directory: Directory) -> QuerySpec:
    """The specification with those of its `spellings` that the memory knows; the others are forgotten.

    Of several the one that is nearest to what is written is meant, if the memory knows it.
    """
    kept = [_known(named, known) if named.kind == "artifact" else named for named in spec.named]
    more = (i for n in kept if n.kind == "artifact" for i in n.ids)
    spec = msgspec.structs.replace(spec, identifiers=tuple(dict.fromkeys([*spec.identifiers, *more])))
    return naming(spec, [named for named in kept if named.ids], directory)


def _known(named: Named, known: Collection[str]) -> Named:
    ids = named.ids[:1] if named.ids[0] in known else tuple(i for i in named.ids if i in known)
    return msgspec.structs.replace(named, ids=ids)


def within(spec: QuerySpec, channels: frozenset[str] | None) -> QuerySpec:
    """The specification without channels that the asker does not read (None: reads all): their names steer nothing."""
    if channels is None:
        return spec
    named = tuple(
        msgspec.structs.replace(n, ids=left) if n.kind == "channel" else n
        for n in spec.named
        if (left := tuple(c for c in n.ids if c in channels)) or n.kind != "channel"
    )
    return msgspec.structs.replace(spec, channels=tuple(c for c in spec.channels if c in channels), named=named)
