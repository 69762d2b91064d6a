"""A question to evidence: fetch through the ports what the four stages ask for (design §9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec
import numpy as np

from streammem.core import bridges, forest, registers, routing, summaries
from streammem.core.directory import Directory, fold
from streammem.core.events import native_id
from streammem.core.identifiers import Rules
from streammem.core.numbers import Forest, Retrieval
from streammem.core.query_spec import QuerySpec, parse
from streammem.core.retrieval import assemble, complete, route, seed, supplement
from streammem.core.retrieval.assemble import Candidate
from streammem.core.retrieval.complete import Hop
from streammem.core.retrieval.route import Route, Tree
from streammem.core.retrieval.seed import Seed
from streammem.errors import QueryError
from streammem.ports import Embedder, NodeHit, NodeSearch, Span, Stand, StructureStore, VectorIndex, Vectors, Visible
from streammem.records import FOREVER, Answer, Bridge, Evidence, Found, Header, Leaf, NodeId, Query, Summary, Version

VIEWS = ("channel", "actor", "artifact")
_NODES = 64
"""Inner nodes fetched for each view by the Collapsed signal, and roots by the Root signal."""


class Desk(msgspec.Struct, frozen=True):
    """What a query is answered with."""

    store: StructureStore
    index: VectorIndex
    embedder: Embedder
    directory: Directory
    rules: Rules
    forest: Forest
    numbers: Retrieval


class Watch:
    """Milliseconds by step."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self.steps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Note the time since the last lap under `name`."""
        now = time.perf_counter()
        self.steps[name] = round((now - self._last) * 1000, 2)
        self._last = now

    def total(self) -> dict[str, float]:
        """All steps, and the whole."""
        return {**self.steps, "total": round((time.perf_counter() - self._start) * 1000, 2)}


class Sight:
    """The memory as the asker may see it at the moment asked for. Whatever a query derives passes through here.

    A message that is not visible, not said yet, deleted, or not asked for does not exist here (design §5).
    """

    def __init__(self, desk: Desk, query: Query, visible: Visible, vector: Vectors) -> None:
        self._desk, self._visible, self._vector = desk, visible, vector
        self._moment = query.as_of
        self._seen: dict[str, Version | None] = {}
        self._cosines: dict[str, float] = {}

    async def see(self, uids: Iterable[str]) -> None:
        """Look at these messages."""
        new = [uid for uid in dict.fromkeys(uids) if uid not in self._seen]
        for uid, known in zip(new, await self._desk.store.versions(new), strict=True):
            version = registers.as_of(known, self._moment)
            self._seen[uid] = version if version is not None and self._may(version) else None

    def _may(self, version: Version) -> bool:
        v = self._visible
        return (
            version.workspace == v.workspace
            and (v.channels is None or version.channel in v.channels)
            and (v.since is None or version.ts >= v.since)
            and (v.until is None or version.ts <= v.until)
            and version.uid not in v.exclude
            and version.kind in ("message", "call")
        )

    def get(self, uid: str) -> Version | None:
        """What the asker sees of a message that was looked at."""
        return self._seen.get(uid)

    def __getitem__(self, uid: str) -> Version:
        version = self._seen[uid]
        if version is None:
            raise KeyError(uid)
        return version

    async def weigh(self, uids: Iterable[str], known: Mapping[str, float] = {}) -> dict[str, float]:
        """The cosine of each visible message to the question; `known` gives those already found."""
        self._cosines.update(known)
        wanted = [uid for uid in dict.fromkeys(uids) if self.get(uid) is not None and uid not in self._cosines]
        vectors = await self._desk.index.vectors([self[uid].key for uid in wanted])
        for uid, vector in zip(wanted, vectors, strict=True):
            self._cosines[uid] = 0.0 if vector is None else float(np.dot(vector, self._vector))
        return {uid: self._cosines[uid] for uid in dict.fromkeys(uids) if self.get(uid) is not None}

    def cosine(self, uid: str) -> float | None:
        """The cosine of a message that was weighed; None for one that the asker does not see."""
        return self._cosines.get(uid) if self.get(uid) is not None else None


class _Round(msgspec.Struct):
    """What the stages have found so far."""

    spec: QuerySpec
    sight: Sight
    seeds: list[Seed]
    stands: dict[str, tuple[Stand, ...]]
    routes: dict[str, list[Route]]
    nodes: list[tuple[NodeId, float]] = []
    chains: list[Summary] = []

    def hosts(self) -> dict[str, set[Tree]]:
        """The trees of each message."""
        return {uid: {forest.tree_of(s.sequence) for s in stands} for uid, stands in self.stands.items()}


async def answer(query: Query, desk: Desk) -> Answer:
    """Answer a question with verbatim messages. Raises QueryError for a user or channel that is not known."""
    watch = Watch()
    query = await _resolve(query, desk)
    spec = parse(query.text, query.asker, desk.directory, desk.rules, query.as_of or FOREVER // 4)
    visible = _visible(query, desk.directory)
    watch.lap("parse")
    vector = (await asyncio.to_thread(desk.embedder.encode, [query.text]))[0]
    watch.lap("embed")
    found = await _seed(spec, visible, vector, query, desk)
    watch.lap("search")
    await _route(found, visible, vector, desk)
    first = _anchors(found, desk)
    watch.lap("S1")
    second = await _supplement(found, visible, vector, desk)
    watch.lap("S2")
    third = await _complete(found, first, second, desk)
    watch.lap("S3")
    return _assemble(query, (first, second, third), found, desk, watch)


# ----------------------------------------------------------------------------------------------- before S1


async def _resolve(query: Query, desk: Desk) -> Query:
    """Turn names into ids. An asker nobody knows is an error: guessing would decide access."""
    asker = await _asker(query, desk) if query.asker else None
    channels = tuple(_channel(name, desk.directory) for name in query.channels)
    return msgspec.structs.replace(query, asker=asker, channels=channels)


async def _asker(query: Query, desk: Desk) -> str:
    name = query.asker or ""
    if name in desk.directory.users:
        return name
    known = desk.directory.user_names.get(fold(name), frozenset())
    if len(known) == 1:
        return next(iter(known))
    if known:
        raise QueryError(f"{name!r} is the name of {len(known)} users: ask as one of {', '.join(sorted(known))}")
    if await desk.store.sequences(query.workspace, "actor", name):
        return name
    raise QueryError(f"no user {name!r} in this memory: name a user by id, name or alias")


def _channel(name: str, directory: Directory) -> str:
    if name in directory.channels:
        return name
    known = directory.channel_names.get(fold(name), frozenset())
    if len(known) == 1:
        return next(iter(known))
    if known:
        raise QueryError(f"{name!r} is the name of {len(known)} channels: name one of {', '.join(sorted(known))}")
    raise QueryError(f"no channel {name!r} in this memory: name a channel by id or name")


def _visible(query: Query, directory: Directory) -> Visible:
    """What this query may touch: public channels and those the asker is in, or all of them if it says so."""
    mine = directory.private_channels_of(query.asker)
    channels = None if query.everything else directory.public_channels | mine
    audiences = None if query.everything else frozenset({"public", *mine})
    if query.channels:
        wanted = frozenset(query.channels)
        channels = wanted if channels is None else channels & wanted
    return Visible(
        workspace=query.workspace,
        channels=channels,
        audiences=audiences,
        moment=query.as_of,
        since=query.since,
        until=query.until,
        exclude=frozenset(query.exclude),
    )


# ------------------------------------------------------------------------------------------------------ S1


async def _seed(spec: QuerySpec, visible: Visible, vector: Vectors, query: Query, desk: Desk) -> _Round:
    """Search by words and by meaning, check every hit against the registers, fuse."""
    numbers = desk.numbers
    dense, lexical = await desk.index.find_messages(vector, spec.lexical, numbers.seeds, visible)
    sight = Sight(desk, query, visible, vector)
    await sight.see(hit.uid for hit in (*dense, *lexical))
    good = {h.key for h in (*dense, *lexical) if (v := sight.get(h.uid)) is not None and v.key == h.key}
    cosines = {h.uid: h.score for h in dense if h.key in good}
    words = [(h.uid, h.score) for h in lexical if h.key in good]
    cosines = await sight.weigh([*cosines, *(uid for uid, _ in words)], cosines)
    return _Round(spec, sight, seed.fuse(words, cosines, numbers), {}, {})


async def _route(found: _Round, visible: Visible, vector: Vectors, desk: Desk) -> None:
    """Score trees by the three signals and keep the best of each view."""
    uids = [s.uid for s in found.seeds[: desk.numbers.context_anchors]]
    found.stands = dict(zip(uids, await desk.store.placements(uids), strict=True))
    searches = [NodeSearch(view, roots, _NODES) for roots in (True, False) for view in VIEWS]
    hits = await desk.index.find_nodes(vector, searches, visible)
    shown = await _shown([h for some in hits for h in some], visible, desk)
    scored = [[(forest.tree_of(h.node.sequence), h.score) for h in some if h.node in shown] for some in hits]
    signals = {
        "leaf2tree": route.leaf2tree(found.seeds[: desk.numbers.context_anchors], found.hosts()),
        "root": route.best(pair for some in scored[:3] for pair in some),
        "collapsed": route.best(pair for some in scored[3:] for pair in some),
    }
    living = await _living({tree for s in signals.values() for tree in s if tree[0] == "artifact"}, visible, desk)
    kept = {name: {t: v for t, v in s.items() if t[0] != "artifact" or t in living} for name, s in signals.items()}
    found.routes = route.routes(kept, desk.numbers)


async def _shown(hits: Iterable[NodeHit], visible: Visible, desk: Desk) -> dict[NodeId, Summary]:
    """The summaries of these nodes that the asker may see and that nothing hides."""
    nodes = list(dict.fromkeys(h.node for h in hits))
    return await _summaries(nodes, visible, desk)


async def _summaries(nodes: Many[NodeId], visible: Visible, desk: Desk) -> dict[NodeId, Summary]:
    stored = [s for s in await desk.store.summaries(nodes) if s is not None]
    sequences = list(dict.fromkeys(s.node.sequence for s in stored))
    redactions = dict(zip(sequences, await desk.store.redactions(sequences), strict=True))
    return {
        s.node: s
        for s in stored
        if summaries.shows(s, visible.channels, visible.moment) and not summaries.hidden(s, redactions[s.node.sequence])
    }


async def _living(trees: set[Tree], visible: Visible, desk: Desk) -> set[Tree]:
    """The artifacts that show enough lifecycle to be trees, by what the asker may see: their root summaries."""
    sequences = [routing.artifact_sequence(visible.workspace, tree) for _, tree in sorted(trees)]
    sizes = await desk.store.sizes(sequences)
    roots = [NodeId(s, forest.root_level(n, desk.forest.k), 0) for s, n in zip(sequences, sizes, strict=True)]
    shown = await _summaries(roots, visible, desk)
    return {
        forest.tree_of(node.sequence)
        for node, summary in shown.items()
        if len(summary.markers) >= desk.forest.lifecycle_markers
    }


def _anchors(found: _Round, desk: Desk) -> list[Candidate]:
    """The seeds in order, with a few places kept for the trees that the question names."""
    selected = {(r.view, r.tree) for some in found.routes.values() for r in some}
    named = [("actor", u) for u in found.spec.users] + [("artifact", i) for i in found.spec.identifiers]
    hosts = found.hosts()
    kept = route.anchors(
        found.seeds, hosts, [t for t in named if t in selected], desk.numbers.anchors, desk.numbers.view_quota
    )
    found.seeds = kept
    best = {r.tree: f"{r.view}:{r.tree}" for some in found.routes.values() for r in some}
    return [
        Candidate(s.uid, msgspec.structs.replace(s.found, rank=i, path=_first_route(hosts.get(s.uid, set()), best)))
        for i, s in enumerate(kept, 1)
    ]


def _first_route(hosts: set[Tree], best: Mapping[str, str]) -> str:
    return next((label for tree, label in best.items() if any(t == tree for _, t in hosts)), "")


# ------------------------------------------------------------------------------------------------------ S2


async def _supplement(found: _Round, visible: Visible, vector: Vectors, desk: Desk) -> list[Candidate]:
    """Open the best nodes of the selected trees, look around the anchors, and rank what is found with its context."""
    numbers, sight = desk.numbers, found.sight
    opened = await _open_nodes(found, visible, vector, desk)
    pulls = await _pulls(found, desk)
    cosines = await sight.weigh([*opened, *(p.uid for p in pulls)])
    own = {uid: numbers.dense_weight * max(value, 0.0) for uid, value in cosines.items()}
    own.update({s.uid: s.score for s in found.seeds})
    scores = {s.uid: s.score for s in found.seeds[: numbers.context_anchors]}
    total = supplement.lifted(own, scores, (p for p in pulls if sight.get(p.uid)), numbers.context_weight)
    ranked = sorted(total, key=lambda uid: (-total[uid], uid))[: 3 * numbers.limit]
    along = {p.uid: f"{p.along} of {sight[p.anchor].id}" for p in reversed(pulls) if sight.get(p.anchor)}
    return [
        Candidate(
            uid,
            Found(
                stage="S2",
                signal="context" if uid in along else "summary",
                path=along.get(uid) or opened.get(uid, ""),
                rank=rank,
                score=round(total[uid], 4),
            ),
        )
        for rank, uid in enumerate(ranked, 1)
    ]


async def _open_nodes(found: _Round, visible: Visible, vector: Vectors, desk: Desk) -> dict[str, str]:
    """The leaves that the best nodes open, each with the node it came from."""
    searches = [
        NodeSearch(view, roots_only=False, limit=_NODES, trees=tuple(r.tree for r in routes))
        for view, routes in found.routes.items()
        if routes
    ]
    hits = [h for some in await desk.index.find_nodes(vector, searches, visible) for h in some]
    inner = [h for h in hits if h.node.level != forest.SKELETON]
    shown = await _shown(inner, visible, desk)
    scores = [(h.node, h.score) for h in inner if h.node in shown]
    found.nodes = supplement.one_per_path(scores, desk.forest.k, desk.numbers.paths)
    await _note_chains(found, visible, desk)
    under = await _leaves_under([node for node, _ in found.nodes], shown, desk)
    await found.sight.see(uid for uids in under.values() for uid in uids)
    cosines = await found.sight.weigh(uid for uids in under.values() for uid in uids)
    opened: dict[str, str] = {}
    for node, uids in under.items():
        scored = ((uid, cosines[uid]) for uid in uids if uid in cosines)
        for uid in supplement.leaves_of_path(scored, desk.numbers.leaves_per_path):
            opened.setdefault(uid, label(node))
    return opened


async def _leaves_under(nodes: Many[NodeId], shown: Mapping[NodeId, Summary], desk: Desk) -> dict[NodeId, list[str]]:
    """The leaves of level-1 nodes; of higher ones those that their summary quotes."""
    low = [n for n in nodes if n.level == 1]
    k = desk.forest.k
    spans = [Span(n.sequence, n.index * k, (n.index + 1) * k) for n in low]
    under = {n: [leaf.uid for leaf in leaves] for n, leaves in zip(low, await desk.store.leaves(spans), strict=True)}
    return {n: under.get(n) or list(shown[n].picks) for n in nodes}


async def _note_chains(found: _Round, visible: Visible, desk: Desk) -> None:
    """The summaries of the opened nodes and of all above them: what may be shown as headers, in that order."""
    nodes = [node for node, _ in found.nodes]
    sizes = await desk.store.sizes([n.sequence for n in nodes])
    chains = [
        [node, *forest.above(node, size, desk.forest.k), *forest.skeleton(node.sequence)]
        for node, size in zip(nodes, sizes, strict=True)
    ]
    shown = await _summaries(list(dict.fromkeys(n for chain in chains for n in chain)), visible, desk)
    found.chains = [shown[n] for n in dict.fromkeys(n for chain in chains for n in chain) if n in shown]


async def _pulls(found: _Round, desk: Desk) -> list[supplement.Pull]:
    """What the anchors pull up: neighbours in their channel and in their thread."""
    sight = found.sight
    anchors = [s.uid for s in found.seeds[: desk.numbers.context_anchors]]
    reach = desk.numbers.window
    places = [(uid, s) for uid in anchors for s in found.stands.get(uid, ()) if s.sequence.view == "channel"]
    spans = [Span(s.sequence, max(0, s.rank - reach), s.rank + reach + 1) for _, s in places]
    windows = await desk.store.leaves(spans)
    roots = {uid: supplement.topic(sight[uid]) or uid for uid in anchors}
    threads = dict(zip(roots.values(), await desk.store.answers(list(roots.values())), strict=True))
    await sight.see(leaf.uid for leaves in (*windows, *threads.values()) for leaf in leaves)
    await sight.see(roots.values())
    pulls: list[supplement.Pull] = []
    for (uid, stand), span, leaves in zip(places, spans, windows, strict=True):
        ranks = [sight.get(leaf.uid) for leaf in leaves]
        pulls += supplement.window_pulls(sight[uid], ranks, stand.rank - span.start, desk.numbers)
    for uid, root in roots.items():
        pulls += supplement.thread_pulls(_leaf(sight[uid]), _thread(root, threads[root], sight))
    return [p for p in pulls if sight.get(p.uid) is not None]


def _leaf(version: Version) -> Leaf:
    return Leaf(version.ts, version.uid)


def _thread(root: str, answers: Many[Leaf], sight: Sight) -> list[Leaf]:
    """A thread in order, its root first, as far as the asker sees it."""
    first = sight.get(root)
    rest = [leaf for leaf in answers if sight.get(leaf.uid) is not None]
    return [_leaf(first), *rest] if first is not None else rest


# ------------------------------------------------------------------------------------------------------ S3


async def _complete(found: _Round, first: Many[Candidate], second: Many[Candidate], desk: Desk) -> list[Candidate]:
    """Follow joins and bridges from the strongest leaves, within a small budget."""
    numbers = desk.numbers
    hops = [*await _joins(found, desk), *await _hops(found, first, second, desk)]
    kept = complete.kept(hops, numbers.bridge_messages, numbers.join_floor)
    return [
        Candidate(h.uid, Found(stage="S3", signal=h.signal, path=h.path, rank=i, score=round(h.score, 4)))
        for i, h in enumerate(kept, 1)
    ]


async def _joins(found: _Round, desk: Desk) -> list[Hop]:
    """For a question about two entities: from the best message of one into its trees, to a message of the other."""
    spec, sight = found.spec, found.sight
    if not complete.wants_join(spec):
        return []
    anchor = next((s for s in found.seeds[: desk.numbers.anchors] if complete.holds(spec, sight[s.uid])), None)
    if anchor is None:
        return []
    spans = [
        Span(s.sequence, max(0, s.rank - desk.forest.k), s.rank + desk.forest.k + 1)
        for s in found.stands.get(anchor.uid, ())
    ]
    uids = [leaf.uid for leaves in await desk.store.leaves(spans) for leaf in leaves]
    await sight.see(uids)
    cosines = await sight.weigh(uids)
    best = complete.join(spec, sight[anchor.uid], ((sight[uid], c) for uid, c in cosines.items()), desk.numbers)
    return [best] if best else []


async def _hops(found: _Round, first: Many[Candidate], second: Many[Candidate], desk: Desk) -> list[Hop]:
    """At most one bridge from each strong leaf, into a tree outside the pool, and a look around its endpoint."""
    sight, numbers = found.sight, desk.numbers
    pool = [c.uid for c in (*first[: numbers.anchors], *second[: numbers.expansion])]
    strong = list(dict.fromkeys(pool))[: numbers.bridge_anchors]
    links = await _bridges([sight[uid] for uid in strong], found, desk)
    ends = list(dict.fromkeys(b.target for some in links for b in some))
    await sight.see(ends)
    await sight.weigh(ends)
    stands = dict(zip(ends, await desk.store.placements(ends), strict=True))
    trees = {tree for uid in pool for tree in found.hosts().get(uid, ())}
    followed = [
        bridge
        for some in links
        if (bridge := complete.hop(some, sight.cosine, lambda uid: _outside(stands.get(uid, ()), trees, uid, pool)))
    ]
    spans = [
        Span(stand.sequence, max(0, stand.rank - numbers.window), stand.rank + numbers.window + 1)
        for bridge in followed
        for stand in stands[bridge.target][:1]
    ]
    windows = [[leaf.uid for leaf in leaves] for leaves in await desk.store.leaves(spans)]
    await sight.see(uid for uids in windows for uid in uids)
    await sight.weigh(uid for uids in windows for uid in uids)
    taken = set(pool)
    return [
        hop
        for bridge, uids in zip(followed, windows, strict=True)
        for hop in complete.reached(bridge, uids, sight.cosine)
        if hop.uid not in taken
    ]


def _outside(stands: Iterable[Stand], trees: set[Tree], uid: str, pool: Many[str]) -> bool:
    """Whether an endpoint brings a tree that the pool does not have."""
    return uid not in pool and any(forest.tree_of(s.sequence) not in trees for s in stands)


async def _bridges(leaves: Many[Version], found: _Round, desk: Desk) -> list[list[Bridge]]:
    """The reply and identifier bridges at each leaf, as far as the asker sees their ends."""
    sight, numbers = found.sight, desk.numbers
    answers = await desk.store.answers([v.uid for v in leaves])
    await sight.see(leaf.uid for some in answers for leaf in some)
    carriers = await _carriers(leaves, found, desk)
    out = []
    for version, some in zip(leaves, answers, strict=True):
        replies = [v for leaf in some if (v := sight.get(leaf.uid)) is not None]
        out.append([*bridges.replies(version, replies), *bridges.identifiers(version, carriers, numbers.fan_out)])
    return out


async def _carriers(leaves: Many[Version], found: _Round, desk: Desk) -> dict[str, list[Leaf]]:
    """For each identifier at these leaves: the messages around them that carry it and that the asker sees."""
    sight, reach = found.sight, 4 * desk.numbers.fan_out
    wanted = [(i, routing.artifact_sequence(v.workspace, i), _leaf(v)) for v in leaves for i in v.identifiers]
    ranks = await desk.store.ranks([(sequence, leaf) for _, sequence, leaf in wanted])
    spans = [Span(s, max(0, r - reach), r + reach + 1) for (_, s, _), r in zip(wanted, ranks, strict=True)]
    windows = await desk.store.leaves(spans)
    await sight.see(leaf.uid for some in windows for leaf in some)
    carriers: dict[str, list[Leaf]] = {}
    for (identifier, _, _), some in zip(wanted, windows, strict=True):
        for leaf in some:
            version = sight.get(leaf.uid)
            if version is not None and identifier in version.identifiers:
                carriers.setdefault(identifier, []).append(leaf)
    return {identifier: list(dict.fromkeys(some)) for identifier, some in carriers.items()}


# ------------------------------------------------------------------------------------------------------ S4


def _assemble(query: Query, stages: Many[Many[Candidate]], found: _Round, desk: Desk, watch: Watch) -> Answer:
    """Choose under the quotas and the budget, render, and account for what was hidden."""
    sight, directory, numbers = found.sight, desk.directory, desk.numbers
    limit, budget = query.limit or numbers.limit, query.budget or numbers.budget
    abstained = not stages[0] or max((s.dense for s in found.seeds), default=0.0) < numbers.floor
    lines = _Lines(sight, directory, desk.embedder)
    lines.count(c.uid for stage, most in zip(stages, (limit + 8, limit + 8, limit), strict=True) for c in stage[:most])
    chosen = assemble.choose(stages, lines.tokens, limit, budget, numbers)
    room = [(header := _header(s, directory), lines.of_text(header_line(header))) for s in found.chains]
    shown = [] if abstained else assemble.headers(room, budget, chosen.tokens, numbers)
    watch.lap("S4")
    notes = [f"{len(chosen.too_long)} messages did not fit the token budget of {budget}"] if chosen.too_long else []
    return Answer(
        question=query.text,
        asker=query.asker,
        as_of=query.as_of,
        evidence=tuple(_evidence(sight[uid], ways, directory) for uid, ways in chosen.found.items()),
        headers=tuple(shown),
        tokens=chosen.tokens + sum(cost for header, cost in room if header in shown),
        abstained=abstained,
        timings_ms=watch.total(),
        hidden_channels=_hidden(query, directory),
        notes=tuple(notes),
    )


class _Lines:
    """Tokens of rendered messages, counted in one go for those that are likely to be asked for."""

    def __init__(self, sight: Sight, directory: Directory, embedder: Embedder) -> None:
        self._sight, self._directory, self._embedder = sight, directory, embedder
        self._tokens: dict[str, int] = {}

    def count(self, uids: Iterable[str]) -> None:
        new = [uid for uid in dict.fromkeys(uids) if uid not in self._tokens]
        self._tokens.update(zip(new, self._embedder.count_tokens([self._line(uid) for uid in new]), strict=True))

    def tokens(self, uid: str) -> int:
        if uid not in self._tokens:
            self.count([uid])
        return self._tokens[uid]

    def of_text(self, text: str) -> int:
        return self._embedder.count_tokens([text])[0]

    def _line(self, uid: str) -> str:
        version = self._sight[uid]
        channel, user = self._directory.channel_name(version.channel), self._directory.user_name(version.user)
        return assemble.line(version, channel, user)


def _hidden(query: Query, directory: Directory) -> int:
    """How many channels of the workspace were not searched because the asker does not read them."""
    if query.everything:
        return 0
    return sum(not directory.visible(c, query.asker) for c, fact in directory.channels.items() if fact.present)


def _evidence(version: Version, ways: tuple[Found, ...], directory: Directory) -> Evidence:
    return Evidence(
        uid=version.uid,
        id=version.id,
        workspace=version.workspace,
        channel=version.channel,
        channel_name=directory.channel_name(version.channel),
        user=version.user,
        user_name=directory.user_name(version.user),
        ts=version.ts,
        text=version.text,
        reply_to=native_id(version.reply_to) or None,
        permalink=version.permalink or None,
        edited=version.since > version.ts,
        markers=version.markers,
        stage=ways[0].stage,
        found_by=ways,
    )


def _header(summary: Summary, directory: Directory) -> Header:
    sequence = summary.node.sequence
    users = {uid_user(quote): directory.user_name(uid_user(quote)) for quote in summary.text.split("<@")[1:]}
    return Header(
        view=sequence.view,
        tree=sequence.tree,
        label=_label_of(sequence.view, sequence.tree, directory),
        level=summary.node.level,
        text=assemble.named(summary.text, users),
        first=summary.first.ts,
        last=summary.last.ts,
    )


def uid_user(quote: str) -> str:
    """The user id at the start of a quote, up to its closing mark."""
    return quote.partition(">")[0]


def _label_of(view: str, tree: str, directory: Directory) -> str:
    if view == "channel":
        return f"#{directory.channel_name(tree)}"
    return directory.user_name(tree) if view == "actor" else tree


def header_line(header: Header) -> str:
    """A header as it is rendered: what it is of, and that it is a summary."""
    return f"[summary of {header.view} {header.label}, level {header.level}] {header.text}"


def label(node: NodeId) -> str:
    """A node's name for `found_by`."""
    s = node.sequence
    return (
        "/".join(part for part in (f"{s.view}:{s.tree}", s.branch, s.channel) if part) + f"#{node.level}.{node.index}"
    )
