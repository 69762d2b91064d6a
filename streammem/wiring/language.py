"""The language model that words node summaries, and on what terms: from the settings to what the flows take."""

from __future__ import annotations

from typing import NamedTuple

from streammem.core import prompts, spending, wording
from streammem.errors import SettingsError
from streammem.flows.telling import Terms
from streammem.ports import LanguageModel
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
    model, budget = settings.openai.model, settings.budget
    if model is None:
        raise SettingsError("no language model writes summaries: set STREAMMEM_OPENAI__MODEL (and __BASE_URL, __KEY)")
    if settings.openai.base_url is None and settings.openai.key is None:
        raise SettingsError(
            "STREAMMEM_OPENAI__MODEL is set and nobody to ask: set STREAMMEM_OPENAI__BASE_URL to your server, or "
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
    terms = Terms(settings.wording, limits, price or (0.0, 0.0), budget.batch)
    return Writer(wording.writer_of(model, prompts.VERSION), model, terms)


def language_model(settings: Settings) -> LanguageModel:
    """The model behind its server; nothing is connected yet."""
    from streammem.backends.openai import OpenAIModel  # noqa: PLC0415 - an extra that not all need

    chosen = settings.openai
    return OpenAIModel(
        writer_of(settings).model,
        key=chosen.key.get_secret_value() if chosen.key else None,
        base_url=chosen.base_url,
        timeout=chosen.timeout,
        headers={name: value.get_secret_value() for name, value in chosen.headers.items()},
        structured=chosen.structured,
        temperature=chosen.temperature,
    )
