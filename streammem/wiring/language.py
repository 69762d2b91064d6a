"""The language model that words node summaries and answers, and on what terms: from the settings to the flows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import NamedTuple

from streammem.core import prompts, spending, wording
from streammem.core.directory import Directory
from streammem.errors import SettingsError
from streammem.flows.calling import Calls, Terms
from streammem.flows.replying import Mute, Replier
from streammem.ports import LanguageModel, Ledger
from streammem.records import Limits
from streammem.settings import Settings

MINUTE = 61.0
"""Seconds in which as many calls are made as a server allows in a minute: it counts when they arrive, not when sent."""


class Writer(NamedTuple):
    """Who words nodes: its name in cache keys, and the terms. `model` is its name as the server knows it."""

    name: str
    model: str
    terms: Terms


def writer_of(settings: Settings) -> Writer:
    """Raises SettingsError when no model is set, or one without a price though there is a budget in money."""
    model = settings.openai.model
    if model is None:
        raise SettingsError("no language model writes summaries: set STREAMMEM_OPENAI__MODEL (and __BASE_URL, __KEY)")
    return Writer(wording.writer_of(model, prompts.VERSION), model, _terms(settings, model, "STREAMMEM_OPENAI__MODEL"))


def replier(settings: Settings, ledger: Ledger, directory: Callable[[str], Awaitable[Directory]]) -> Replier | Mute:
    """Who writes replies to questions, or says why nobody does: what is wrong with a model keeps no evidence back."""
    try:
        name, terms = answering_model(settings)
        model = language_model(settings, name, settings.answering.seconds)
    except SettingsError as error:
        return Mute(str(error))
    return Replier(Calls(model, ledger, terms), model, settings.answering, directory)


def answering_model(settings: Settings) -> tuple[str, Terms]:
    """The model that writes replies to questions, and its terms. Raises SettingsError as `writer_of` does."""
    chosen = settings.openai
    model = chosen.answer_model or chosen.model
    if model is None:
        raise SettingsError(
            "no language model answers: set STREAMMEM_OPENAI__ANSWER_MODEL (or __MODEL, which words summaries too), "
            "and __BASE_URL or __KEY"
        )
    return model, _terms(settings, model, f"STREAMMEM_OPENAI__{'ANSWER_' if chosen.answer_model else ''}MODEL")


def _terms(settings: Settings, model: str, named: str) -> Terms:
    budget = settings.budget
    if settings.openai.base_url is None and settings.openai.key is None:
        raise SettingsError(
            f"{named} is set and nobody to ask: set STREAMMEM_OPENAI__BASE_URL to your server, or "
            "STREAMMEM_OPENAI__KEY to send what was said to OpenAI's"
        )
    price = budget.prices.get(model)
    if price is None and budget.money is not None:
        raise SettingsError(
            f"STREAMMEM_BUDGET__MONEY is set and the price of {model} is not known: set "
            f"""STREAMMEM_BUDGET__PRICES='{{"{model}": [0.15, 0.6]}}' (a million tokens in, out)"""
        )
    limits = Limits(
        window=MINUTE,
        requests=budget.requests_per_minute,
        tokens=budget.tokens_per_minute,
        day_tokens=budget.tokens,
        day_money=None if budget.money is None else spending.billionths(budget.money),
    )
    return Terms(settings.wording, limits, price or (0.0, 0.0), budget.batch)


def language_model(settings: Settings, model: str | None = None, seconds: float = inf) -> LanguageModel:
    """A model behind the server, by default the one that words summaries; nothing is connected yet.

    `seconds`: after which nobody waits for a call any more, where that is sooner than its time-out.
    """
    from streammem.backends.openai import OpenAIModel  # noqa: PLC0415 - an extra that not all need

    chosen = settings.openai
    return OpenAIModel(
        model or writer_of(settings).model,
        key=chosen.key.get_secret_value() if chosen.key else None,
        base_url=chosen.base_url,
        timeout=min(chosen.timeout, seconds),
        headers={name: value.get_secret_value() for name, value in chosen.headers.items()},
        structured=chosen.structured,
        temperature=chosen.temperature,
    )
