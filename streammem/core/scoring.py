"""Recall, precision and their differences for `eval`, as values that can be printed or encoded.

Recall of a question is the share of its gold messages among the results; macro is the mean over questions, micro
counts all gold messages together. Questions without gold messages are kept out of both and counted apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many

import msgspec
import numpy as np
import numpy.typing as npt

from streammem.records import Query

Floats = npt.NDArray[np.float64]

OURS = "streammem"
ALL, OLD, YOUNG = "all", "age >= 24 h", "age < 24 h"
OLD_HOURS = 24.0
"""Below this age of the gold, "the last fifty messages" wins (bench/README.md): reported apart."""
ROUNDS = 2000
"""Resamples of a bootstrap interval."""


# --------------------------------------------------------------------------------------------- what is asked


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What only scoring may know of a question. `alternatives` are sets of gold messages, each good by itself."""

    alternatives: tuple[tuple[str, ...], ...] = ()
    forbidden: tuple[str, ...] = ()
    category: str = ""
    age_hours: float | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a data set: `asked` is all that a memory may see, `key` never reaches it."""

    id: str
    asked: Query
    key: Key


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a system gave for one question: message ids, at most k.

    `beyond` counts results that the question's own filters (asker, as of, exclude, workspace) rule out; `refused` is
    the reason for which there was no answer at all.
    """

    found: tuple[str, ...] = ()
    abstained: bool = False
    confidence: float = 0.0
    beyond: int = 0
    refused: str = ""


# ------------------------------------------------------------------------------------------- what is reported


class Score(msgspec.Struct, frozen=True):
    """Means over the `n` questions that have gold messages, as shares of 1. `complete`: all gold was found."""

    n: int
    recall_macro: float
    recall_micro: float
    precision: float
    complete: float


class Share(msgspec.Struct, frozen=True):
    """How many of `n` questions, as a share of 1."""

    n: int
    share: float


class SystemReport(msgspec.Struct, frozen=True, kw_only=True):
    """One system. `abstained` is by category over questions without gold, where saying nothing is right;
    `abstained_wrongly` over those with gold. `forbidden`: a forbidden message stood among the results.
    """  # noqa: D205

    name: str
    overall: Score | None
    by_category: dict[str, Score]
    by_age: dict[str, Score]
    forbidden: Share | None
    abstained: dict[str, Share]
    abstained_wrongly: Share | None
    beyond: int
    refused: dict[str, int]


class Gap(msgspec.Struct, frozen=True):
    """Recall (macro) of one run minus that of another, question by question, with its 95 % interval."""

    mean: float
    low: float
    high: float


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Recall (macro) of streammem minus that of `against` over the `n` questions of `over`, with its 95 % interval."""

    against: str
    over: str
    n: int
    mean: float
    low: float
    high: float
    is_best: bool


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds of one question in one open memory."""

    p50: float
    p95: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of an evaluation."""

    k: int
    questions: int
    with_evidence: int
    systems: tuple[SystemReport, ...]
    differences: tuple[Difference, ...]
    ask_ms: Timing | None


class Table(msgspec.Struct, frozen=True):
    """A table as values: every cell is what a person reads."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


# ------------------------------------------------------------------------------------------------ measuring


class Grade(msgspec.Struct, frozen=True):
    """Hits among the gold messages of the alternative that the results meet best."""

    hits: int
    gold: int

    @property
    def recall(self) -> float:
        return self.hits / self.gold


def grade(found: Iterable[str], key: Key) -> Grade | None:
    """Grade the results of one question; None for a question without gold messages."""
    got = set(found)
    grades = [Grade(len(got.intersection(gold)), len(set(gold))) for gold in key.alternatives if gold]
    return max(grades, key=lambda g: (g.recall, g.hits), default=None)


def score(grades: Many[Grade], k: int) -> Score | None:
    """Means over graded questions. Precision counts k results for everyone: whoever returns fewer gains nothing."""
    if not grades:
        return None
    n, hits = len(grades), sum(g.hits for g in grades)
    return Score(
        n=n,
        recall_macro=sum(g.recall for g in grades) / n,
        recall_micro=hits / sum(g.gold for g in grades),
        precision=hits / (n * k),
        complete=sum(g.hits == g.gold for g in grades) / n,
    )


def share(truths: Iterable[bool]) -> Share | None:
    """The share of true among them; None of none."""
    values = list(truths)
    return Share(len(values), sum(values) / len(values)) if values else None


def age_of(key: Key) -> str:
    """The age bucket of a question, empty when the data set does not say."""
    if key.age_hours is None:
        return ""
    return OLD if key.age_hours >= OLD_HOURS else YOUNG


def interval(differences: Floats, rng: np.random.Generator, rounds: int = ROUNDS) -> tuple[float, float]:
    """The 95 % percentile interval of the mean of paired differences, by resampling questions (Efron 1979)."""
    n = len(differences)
    means = [differences[rng.integers(0, n, n)].mean() for _ in range(rounds)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def gap(questions: Many[Question], ours: Many[Outcome], theirs: Many[Outcome], rng: np.random.Generator) -> Gap | None:
    """How much more `ours` found than `theirs`; None without questions that have gold messages."""
    sides = (_recalls(questions, _graded(questions, found), ALL) for found in (ours, theirs))
    paired = next(sides) - next(sides)
    return _gap(paired, rng) if paired.size else None


def _gap(paired: Floats, rng: np.random.Generator) -> Gap:
    return Gap(float(paired.mean()), *interval(paired, rng))


def report(
    questions: Many[Question],
    outcomes: Mapping[str, Many[Outcome]],
    k: int,
    rng: np.random.Generator,
    milliseconds: Many[float] = (),
) -> Report:
    """Score every system's outcomes, which stand in the order of the questions."""
    graded = {name: _graded(questions, found) for name, found in outcomes.items()}
    return Report(
        k=k,
        questions=len(questions),
        with_evidence=sum(any(q.key.alternatives) for q in questions),
        systems=tuple(system(name, questions, found, k) for name, found in outcomes.items()),
        differences=tuple(d for over in (ALL, OLD, YOUNG) for d in _differences(questions, graded, over, rng)),
        ask_ms=timing(milliseconds),
    )


def timing(milliseconds: Many[float]) -> Timing | None:
    """Median and 95th percentile."""
    if not milliseconds:
        return None
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return Timing(float(p50), float(p95))


def system(name: str, questions: Many[Question], outcomes: Many[Outcome], k: int) -> SystemReport:
    """All figures of one system."""
    pairs = list(zip(questions, outcomes, strict=True))
    return SystemReport(
        name=name,
        overall=score([g for g in _graded(questions, outcomes) if g], k),
        by_category=_scores(pairs, lambda key: key.category, k),
        by_age=_scores(pairs, age_of, k),
        forbidden=share(not set(q.key.forbidden).isdisjoint(o.found) for q, o in pairs if q.key.forbidden),
        abstained=_abstained(pairs),
        abstained_wrongly=share(o.abstained for q, o in pairs if any(q.key.alternatives)),
        beyond=sum(o.beyond for o in outcomes),
        refused=dict(Counter(o.refused for o in outcomes if o.refused)),
    )


def _graded(questions: Many[Question], outcomes: Many[Outcome]) -> list[Grade | None]:
    return [grade(o.found, q.key) for q, o in zip(questions, outcomes, strict=True)]


def _scores(pairs: Many[tuple[Question, Outcome]], group: Callable[[Key], str], k: int) -> dict[str, Score]:
    grades: defaultdict[str, list[Grade]] = defaultdict(list)
    for question, outcome in pairs:
        name, graded = group(question.key), grade(outcome.found, question.key)
        if name and graded:
            grades[name].append(graded)
    return {name: found for name in sorted(grades) if (found := score(grades[name], k))}


def _abstained(pairs: Many[tuple[Question, Outcome]]) -> dict[str, Share]:
    said: defaultdict[str, list[bool]] = defaultdict(list)
    for question, outcome in pairs:
        if not any(question.key.alternatives):
            said[question.key.category].append(outcome.abstained)
    return {category: found for category in sorted(said) if (found := share(said[category]))}


def _differences(
    questions: Many[Question], graded: Mapping[str, Many[Grade | None]], over: str, rng: np.random.Generator
) -> list[Difference]:
    """Ours against each of the others over one group of questions; none where either side is missing."""
    recalls = {name: _recalls(questions, grades, over) for name, grades in graded.items()}
    ours = recalls.pop(OURS, np.empty(0))
    if not ours.size or not recalls:
        return []
    best = max(recalls, key=lambda name: float(recalls[name].mean()))
    return [_difference(name, over, ours - theirs, rng, is_best=name == best) for name, theirs in recalls.items()]


def _recalls(questions: Many[Question], grades: Many[Grade | None], over: str) -> Floats:
    wanted = (g for q, g in zip(questions, grades, strict=True) if over in (ALL, age_of(q.key)))
    return np.array([g.recall for g in wanted if g], dtype=np.float64)


def _difference(name: str, over: str, paired: Floats, rng: np.random.Generator, *, is_best: bool) -> Difference:
    found = _gap(paired, rng)
    return Difference(
        against=name, over=over, n=len(paired), mean=found.mean, low=found.low, high=found.high, is_best=is_best
    )


# --------------------------------------------------------------------------------------------------- tables


def tables(report: Report) -> list[Table]:
    """The report as tables for people, in percent; empty ones are left out."""
    made = [
        _overall(report),
        _recall_by(report, "category", lambda s: s.by_category),
        _recall_by(report, "age of the evidence", lambda s: s.by_age),
        _difference_table(report),
        _abstention_table(report),
    ]
    return [table for table in made if table.rows]


def percent(value: float | None) -> str:
    """A share of 1 as people read it."""
    return "" if value is None else f"{100 * value:.1f}"


def points(gap: Gap | Difference) -> tuple[str, str]:
    """A difference in points, and its interval."""
    return f"{100 * gap.mean:+.1f}", f"{100 * gap.low:+.1f} to {100 * gap.high:+.1f}"


def _share(value: Share | None) -> str:
    return percent(value.share) if value else ""


def _overall(report: Report) -> Table:
    k = report.k
    columns = ("system", "n", f"Recall@{k} macro", f"Recall@{k} micro", f"Precision@{k}", "all found", "forbidden")
    rows = [(s.name, *_figures(s.overall), _share(s.forbidden)) for s in report.systems if s.overall]
    without = report.questions - report.with_evidence
    title = f"{report.with_evidence} questions with evidence, {without} without"
    return Table(title, columns, tuple(rows))


def _figures(found: Score) -> tuple[str, ...]:
    shares = (found.recall_macro, found.recall_micro, found.precision, found.complete)
    return (str(found.n), *map(percent, shares))


def _recall_by(report: Report, what: str, groups: Callable[[SystemReport], dict[str, Score]]) -> Table:
    names = sorted({name for s in report.systems for name in groups(s)})
    columns = (what, "n", *(s.name for s in report.systems))
    rows = []
    for name in names:
        cells = [groups(s).get(name) for s in report.systems]
        n = max(c.n for c in cells if c)
        rows.append((name, str(n), *(percent(c.recall_macro if c else None) for c in cells)))
    return Table(f"Recall@{report.k} macro by {what}", columns, tuple(rows))


def _difference_table(report: Report) -> Table:
    columns = ("streammem minus", "over", "n", "points", "95 % interval")
    rows = [
        (
            f"{d.against} (best)" if d.is_best else d.against,
            d.over,
            str(d.n),
            *points(d),
        )
        for d in report.differences
    ]
    return Table(f"Differences of Recall@{report.k} macro, paired bootstrap", columns, tuple(rows))


def _abstention_table(report: Report) -> Table:
    names = sorted({name for s in report.systems for name in s.abstained})
    columns = ("no evidence exists", "n", *(s.name for s in report.systems))
    rows = []
    for name in names:
        cells = [s.abstained.get(name) for s in report.systems]
        rows.append((name, str(max(c.n for c in cells if c)), *map(_share, cells)))
    if rows:
        rows.append(
            ("(evidence exists)", str(report.with_evidence), *(_share(s.abstained_wrongly) for s in report.systems))
        )
    return Table("Share of answers that abstained", columns, tuple(rows))
