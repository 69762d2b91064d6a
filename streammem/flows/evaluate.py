"""What a memory is measured on: the messages of a data set, as baselines see them, and questions with known evidence.

The order of work: `load_questions` and `corpus_of` from the same events that the memory was given, then
`flows.measuring`. Only `Question.asked` is ever handed to the memory; what is for scoring stays in `Question.key`.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from streammem.core import baselines, indexing, registers
from streammem.core import events as canonical
from streammem.core.baselines import Corpus
from streammem.core.directory import Directory, fold
from streammem.core.identifiers import Rules
from streammem.core.retrieval import assemble
from streammem.core.scoring import Key, Question
from streammem.errors import RejectedError, SourceError
from streammem.ports import Embedder, VectorIndex, Vectors
from streammem.records import DirectoryEvent, Event, MessageEvent, Query, ReactionEvent, Version

_NO_RULES = Rules({}, {})
_PIECE = 1000


# ----------------------------------------------------------------------------------------------- the messages


class Dataset(msgspec.Struct, frozen=True):
    """What a data set's events say: the standing version of each message, and the directory of each workspace."""

    spoken: tuple[tuple[MessageEvent, Version], ...]
    directories: dict[str, Directory]


def dataset_of(events: Iterable[Event]) -> Dataset:
    """Read the events that the memory was given. Those that it refuses, or that nobody can find, are left out."""
    standing: dict[str, tuple[MessageEvent, Version]] = {}
    facts: dict[tuple[str, ...], tuple[tuple[str, bool, str], DirectoryEvent]] = {}
    workspaces: dict[str, None] = {}
    for event in events:
        workspaces.setdefault(event.workspace)
        if isinstance(event, MessageEvent):
            _keep_message(event, standing)
        _keep_facts(event, facts)
    known = [fact for _, fact in facts.values()]
    directories = {w: Directory(f for f in known if f.workspace == w) for w in workspaces}
    return Dataset(tuple(pair for pair in standing.values() if indexing.searchable(pair[1])), directories)


def _keep_message(event: MessageEvent, standing: dict[str, tuple[MessageEvent, Version]]) -> None:
    try:
        event = canonical.normalise(event)  # type: ignore[assignment] # a message stays a message
    except RejectedError:
        return
    version = canonical.version_of(event, canonical.content_hash(event), _NO_RULES)
    before = standing.get(version.uid)
    if before is None or registers.order(version) > registers.order(before[1]):
        standing[version.uid] = (event, version)


def _keep_facts(event: Event, facts: dict[tuple[str, ...], tuple[tuple[str, bool, str], DirectoryEvent]]) -> None:
    for fact in canonical.facts_of([event]):
        if not isinstance(fact, ReactionEvent):
            name, order = registers.fact_key(fact), registers.fact_order(fact, canonical.content_hash(fact))
            if name not in facts or order > facts[name][0]:
                facts[name] = (order, fact)


async def corpus_of(dataset: Dataset, index: VectorIndex | None, embedder: Embedder) -> Corpus:
    """The baselines' corpus, with the vectors that the memory has; what it lacks is encoded from the same words."""
    spoken = dataset.spoken
    vectors: list[Vectors | None] = []
    for start in range(0, len(spoken), _PIECE):
        keys = [version.key for _, version in spoken[start : start + _PIECE]]
        vectors += await index.vectors(keys) if index else [None] * len(keys)
    absent = [row for row, vector in enumerate(vectors) if vector is None]
    texts = [_dense_text(*spoken[row], dataset.directories[spoken[row][1].workspace]) for row in absent]
    if texts:
        for row, vector in zip(absent, await asyncio.to_thread(embedder.encode, texts), strict=True):
            vectors[row] = vector
    stacked = np.array(vectors, dtype=np.float32).reshape(len(spoken), embedder.dimensions)
    versions = [version for _, version in spoken]
    lines = [_line(version, dataset.directories[version.workspace]) for version in versions]
    return baselines.corpus_of(versions, stacked, dataset.directories, embedder.count_tokens(lines))


def _dense_text(event: MessageEvent, version: Version, directory: Directory) -> str:
    return indexing.dense_text(version, indexing.naming_of(event, version, directory))


def _line(version: Version, directory: Directory) -> str:
    return assemble.line(
        version, directory.room(version.channel), directory.user_name(version.user), directory.user_title(version.user)
    )


# ---------------------------------------------------------------------------------------------- the questions


class _Row(msgspec.Struct, frozen=True):
    """A line of questions.jsonl (bench/README.md, orgsim/README.md). Keys that are not named here are not read."""

    id: str
    question: str
    ws: str = ""
    asker: str | None = None
    asker_id: str | None = None
    as_of: str | None = None
    before: bool = False
    exclude: tuple[str, ...] = ()
    category: str = ""
    evidence: tuple[str, ...] = ()
    evidence_any: tuple[tuple[str, ...], ...] | None = None
    forbidden: tuple[str, ...] = ()
    age_hours: float | None = None


def load_questions(directory: Path, dataset: Dataset) -> list[Question]:
    """The questions of a data set's folder, in order, as the memory that holds `dataset` can be asked them.

    Raises SourceError, naming the line, for what cannot be read, and where there is no question.
    """
    reading = _Reading(dataset)
    questions = [reading.question(row, place) for place, row in _rows(directory)]
    if not questions:
        raise SourceError(f"{directory}: there is no question in questions.jsonl")
    return questions


class _Reading:
    """Turns rows into questions by what the data set itself knows: workspaces, people, times of messages."""

    def __init__(self, dataset: Dataset) -> None:
        self._directories = dataset.directories
        self._times = {(v.workspace, v.id): v.ts for _, v in dataset.spoken}
        self._speakers = {(v.workspace, v.user) for _, v in dataset.spoken}

    def question(self, row: _Row, place: str) -> Question:
        workspace = self._workspace(row, place)
        asked = Query(
            text=row.question,
            workspace=workspace,
            asker=self._asker(row, workspace),
            as_of=self._as_of(row, workspace, place) if row.as_of else None,
            exclude=row.exclude,
        )
        gold = (row.evidence,) if row.evidence_any is None else row.evidence_any
        key = Key(
            alternatives=tuple(filter(None, gold)),
            forbidden=row.forbidden,
            category=row.category,
            age_hours=row.age_hours,
        )
        return Question(id=row.id, asked=asked, key=key)

    def _workspace(self, row: _Row, place: str) -> str:
        """The row's own workspace, or the one that all were merged into."""
        if row.ws in self._directories:
            return row.ws
        if len(self._directories) == 1:
            return next(iter(self._directories))
        raise SourceError(f"{place}: question {row.id!r} is about workspace {row.ws!r}, of which there is no message")

    def _asker(self, row: _Row, workspace: str) -> str | None:
        """Who asks, by id. Somebody whom the data set never introduces sees what everybody sees: that is nobody."""
        directory = self._directories[workspace]
        for user in filter(None, (row.asker, row.asker_id)):
            if user in directory.users or (workspace, user) in self._speakers:
                return user
        bearers = directory.user_names.get(fold(row.asker or ""), frozenset())
        return next(iter(bearers)) if len(bearers) == 1 else None

    def _as_of(self, row: _Row, workspace: str, place: str) -> int:
        """The last moment that counts (µs). A message id stands for that message's time, itself included."""
        stated = row.as_of or ""
        at = self._times.get((workspace, stated))
        if at is None:
            try:
                at = _moment(stated)
            except ValueError:
                raise SourceError(f"{place}: as_of {stated!r} is neither a time nor a message of {row.ws!r}") from None
        return at - 1 if row.before else at


def _moment(stated: str) -> int:
    """An ISO 8601 time in µs, without a zone in UTC."""
    when = datetime.fromisoformat(stated)
    return canonical.micros(when if when.tzinfo else when.replace(tzinfo=UTC))


def _rows(directory: Path) -> Iterator[tuple[str, _Row]]:
    names = ("questions.jsonl", "questions.jsonl.gz")
    path = next((directory / name for name in names if (directory / name).is_file()), None)
    if path is None:
        raise SourceError(f"{directory}: no questions.jsonl or questions.jsonl.gz in it")
    decoder = msgspec.json.Decoder(_Row)
    place = path.name
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                place = f"{path.name}#{number}"
                if line.strip():
                    yield place, decoder.decode(line)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise SourceError(f"{directory}: {place}: {error}") from None
