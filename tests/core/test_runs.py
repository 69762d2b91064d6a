"""Which runs an ablation, a sweep and a calibration ask: pure functions of the run as it is set."""

from __future__ import annotations

from dataclasses import asdict, replace

from streammem.core import runs
from streammem.core.numbers import Retrieval
from streammem.core.runs import FULL, UNLIMITED, Run

NUMBERS = Retrieval()
WHOLE = Run(FULL, NUMBERS, 20, 3000)


def names(kind: str, full: Run = WHOLE) -> list[str]:
    return [variant.run.name for variant in runs.variants(full) if variant.kind == kind]


def set_to(name: str) -> dict[str, object]:
    (run,) = (variant.run for variant in runs.variants(WHOLE) if variant.run.name == name)
    return runs.differing(run, WHOLE)


def test_stages_are_added_one_by_one() -> None:
    assert names("stages") == ["S1", "+ S2", "+ S3"]
    assert [set_to(name) for name in names("stages")] == [{"stages": 1}, {"stages": 2}, {"stages": 3}]


def test_views_are_taken_alone_and_in_pairs() -> None:
    assert names("views") == [
        *("channel", "actor", "artifact"),
        *("channel + actor", "channel + artifact", "actor + artifact"),
    ]
    assert set_to("actor") == {"views": ("actor",)}
    assert set_to("channel + artifact") == {"views": ("channel", "artifact")}


def test_each_routing_signal_is_off_by_itself() -> None:
    assert set_to("without leaf2tree") == {"weight_leaf2tree": 0.0}
    assert set_to("without root") == {"weight_root": 0.0}
    assert set_to("without collapsed") == {"weight_collapsed": 0.0}


def test_every_signal_names_weights_that_there_are() -> None:
    known = asdict(NUMBERS)
    assert [weight for weights in runs.SIGNALS.values() for weight in weights if weight not in known] == []


def test_every_variant_differs_from_the_full_run_in_its_numbers_only() -> None:
    for variant in runs.variants(WHOLE):
        assert runs.differing(variant.run, WHOLE)
        assert (variant.run.limit, variant.run.budget) == (20, 3000)


def test_no_two_variants_are_the_same() -> None:
    terms = [variant.run.terms for variant in runs.variants(WHOLE)]
    assert len(set(terms)) == len(terms)


def test_what_is_off_already_is_not_left_out_again() -> None:
    bare = replace(NUMBERS, stages=2, views=("channel",), weight_root=0.0, recency=0.0)
    full = Run(FULL, bare, 20, 3000)
    assert names("stages", full) == ["S1"]
    assert names("views", full) == []
    assert not {"without root", "without recency"} & set(names("signals", full))


def test_the_token_budget_grows_with_the_limit() -> None:
    swept = runs.budgets(WHOLE, (10, 20, 50))
    assert [(run.limit, run.budget) for run in swept] == [(10, 1500), (20, 3000), (50, 7500)]
    assert [run.budget for run in runs.budgets(Run(FULL, NUMBERS, 10, 1000), (20,))] == [2000]
    assert {run.budget for run in runs.budgets(Run(FULL, NUMBERS, 20, UNLIMITED), (10, 50))} == {UNLIMITED}


def test_a_calibration_asks_without_a_floor() -> None:
    floored = Run(FULL, replace(NUMBERS, floor=0.4), 20, 3000)
    assert runs.differing(runs.without_floor(floored), floored) == {"floor": 0.0}
    assert runs.without_floor(WHOLE).terms == WHOLE.terms or NUMBERS.floor
