"""What can be set from outside: read once, frozen. The only place that reads the environment.

Variables are STREAMMEM_<GROUP>__<FIELD>, e.g. STREAMMEM_FOREST__K=8.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as Unreadable

from streammem.core.numbers import Answering, Forest, Grouping, Retrieval, Summarizing, Wording
from streammem.errors import SettingsError


class EmbeddingSettings(BaseModel):
    """The embedding model and its batches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field("minilm-l6-int8", description="all-MiniLM-L6-v2 as int8 ONNX; or any model fastembed knows.")
    path: Path | None = Field(None, description="A folder with the model's files, instead of the cache.")
    cache: Path | None = Field(None, description="Where fetched models are kept; default: the user's cache folder.")
    max_tokens: int = Field(256, ge=16, le=8192, description="Texts are cut here (design §8).")
    batch_tokens: int = Field(2048, ge=64, description="Padded tokens in one batch: speed against memory.")
    threads: int | None = Field(
        None, ge=1, description="Threads of the model; default: one for each core, in workers one less."
    )


class KafkaSettings(BaseModel):
    """The Kafka cluster and the topics. All processes of one memory need the same prefix."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap: str = Field(
        "127.0.0.1:9092", pattern=r"^[^\s,]+:\d{1,5}(,[^\s,]+:\d{1,5})*$", description="Brokers, HOST:PORT,..."
    )
    prefix: str = Field("", pattern=r"^[a-zA-Z0-9._-]*$", description="Before the name of every topic and group.")
    partitions: int = Field(
        6, ge=1, le=1000, description="Of topics that are created: the most processes a role can use."
    )
    replication: int = Field(1, ge=1, description="Copies of topics that are created; 3 on a cluster.")
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    username: str | None = None
    password: SecretStr | None = None
    ca_file: Path | None = Field(None, description="Certificates to trust; default: the system's.")
    max_bytes: int = Field(2**20, ge=1024, description="The longest record that is produced, as the brokers allow.")


class RedisSettings(BaseModel):
    """The Redis that holds registers, sequences, placements, bridges and summaries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: SecretStr = Field(
        SecretStr("redis://127.0.0.1:6379/0"), description="redis:// or rediss://, may carry a password."
    )
    prefix: str = Field("streammem", pattern=r"^[a-zA-Z0-9._-]+$", description="Before the name of every key.")
    cluster: bool = Field(default=False, description="Whether the URL names a node of a Redis Cluster.")


class VectorSettings(BaseModel):
    """Where the distributed form keeps vectors: a Qdrant server, or a directory that one process holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(None, description="A Qdrant server; without one, `path` is used.")
    api_key: SecretStr | None = None
    prefix: str = Field("streammem", pattern=r"^[a-zA-Z0-9._-]+$", description="Before the name of every collection.")
    path: Path = Field(
        Path("~/.local/share/streammem/vectors"),
        validate_default=True,
        description="A directory for the index inside the process that indexes and answers.",
    )

    @field_validator("path")
    @classmethod
    def _at_home(cls, path: Path) -> Path:
        return path.expanduser()


class WorkerSettings(BaseModel):
    """How the roles work. Times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: int = Field(500, ge=1, description="Records taken at a time.")
    within: float = Field(0.2, gt=0, description="A batch that is not full starts after this time.")
    pool: int = Field(256, ge=1, description="Records that `index` embeds at a time.")
    patience: float = Field(30.0, gt=0, description="Longest pause between two tries while something is away.")
    burst: int = Field(
        100, ge=1, description="Refused records in a row, with none that can be used, that stop a worker."
    )
    session: float = Field(
        10.0, ge=1, description="A process that is not heard of for so long has lost its partitions to others."
    )
    stop: float = Field(8.0, gt=0, description="Time to end cleanly after SIGTERM.")
    lease: float = Field(60.0, gt=0, description="A due sequence is held this long by the process that summarises it.")
    round: float = Field(15.0, ge=0, description="Pause between two looks for due sequences: so old are headers.")
    queries: int = Field(4, ge=1, description="Questions answered at the same time by one process.")
    timeout: float = Field(30.0, gt=0, description="A question not answered by then gets an answer that says so.")


class ConnectSettings(BaseModel):
    """What the role `connect` knows that a payload may not say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: str = Field("", max_length=200, description="The workspace of all payloads; default: what they say.")
    domain: str = Field("", pattern=r"^[a-z0-9.-]*$", description="acme in acme.slack.com, for links to messages.")


class ReceiveSettings(BaseModel):
    """The HTTP receiver. A product without its secret is refused: nobody can tell who sends it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 for all.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 for any that is free.")
    slack_signing_secret: SecretStr | None = Field(None, description="Slack's, from the app's Basic Information.")
    teams_client_state: SecretStr | None = Field(None, description="The clientState of the Graph subscriptions.")
    max_bytes: int = Field(2**20, ge=1024, le=2**22, description="The longest body that is taken.")
    within: float = Field(2.5, gt=0, le=3, description="Seconds until an answer; senders give up after 3.")

    @field_validator("slack_signing_secret", "teams_client_state")
    @classmethod
    def _not_blank(cls, secret: SecretStr | None) -> SecretStr | None:
        return secret if secret is not None and secret.get_secret_value().strip() else None

    @property
    def closed(self) -> dict[str, str]:
        """The products that are refused, each with the setting that opens it."""
        secrets = {"slack": "slack_signing_secret", "teams": "teams_client_state"}
        return {
            product: f"STREAMMEM_RECEIVE__{field.upper()}"
            for product, field in secrets.items()
            if getattr(self, field) is None
        }


class OpenAISettings(BaseModel):
    """The language model that words node summaries and, if asked to, answers, behind any OpenAI-compatible server.

    Without a model: none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = Field(None, min_length=1, description="The model as the server names it.")
    answer_model: str | None = Field(
        None,
        min_length=1,
        description="The model that answers (`ask --answer`), if another; alone, it words no summary.",
    )
    base_url: str | None = Field(
        None, pattern=r"^https?://", description="The server, e.g. http://127.0.0.1:8000/v1; default: OpenAI's."
    )
    key: SecretStr | None = Field(None, description="The API key; servers of your own may need none.")
    timeout: float = Field(60.0, gt=0, description="Seconds until a call that gives no answer is tried again.")
    headers: dict[str, SecretStr] = Field({}, description="Headers of every request, as JSON; never logged.")
    structured: Literal["auto", "schema", "json", "none"] = Field(
        "auto",
        description="How JSON is asked for: by its schema, as JSON, or in words only. auto: what the server takes.",
    )
    temperature: float | None = Field(
        0.0, ge=0, le=2, description="How freely it words; none: not sent, for models that refuse it."
    )

    @field_validator("model", "answer_model", "base_url", "key", mode="before")
    @classmethod
    def _not_blank(cls, said: Any) -> Any:
        return None if said == "" else said

    @field_validator("temperature", mode="before")
    @classmethod
    def _unsent(cls, said: Any) -> Any:
        return _nothing(said)


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Price = tuple[Amount, Amount]


class BudgetSettings(BaseModel):
    """What the language model may cost. Shared by all processes of a memory; a day is one in UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: int | None = Field(1_000_000, ge=1, description="Tokens a day, in and out together; none: no limit.")
    money: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Money a day, in the currency of the prices; none: no limit."
    )
    prices: dict[str, Price] = Field(
        {}, description='By model, for a million tokens in and out, as JSON: {"gpt-x": [0.15, 0.6]}.'
    )
    currency: str = Field("USD", max_length=8, description="Of the prices; only shown.")
    batch: float = Field(0.5, ge=0, le=1, description="What a token costs in a job of the Batch API, as a share.")
    requests_per_minute: int | None = Field(None, ge=1, description="Calls in any 60 seconds.")
    tokens_per_minute: int | None = Field(None, ge=1, description="Tokens in any 60 seconds.")

    @field_validator("tokens", "money", "requests_per_minute", "tokens_per_minute", mode="before")
    @classmethod
    def _unlimited(cls, said: Any) -> Any:
        return _nothing(said)


def _nothing(said: Any) -> Any:
    """A variable that says none. One that is empty does not say it: no limit must be meant."""
    return None if isinstance(said, str) and said.strip().lower() == "none" else said


class Settings(BaseSettings):
    """All settings of one process."""

    model_config = SettingsConfigDict(env_prefix="STREAMMEM_", env_nested_delimiter="__", frozen=True, extra="ignore")

    forest: Forest = Forest()
    grouping: Grouping = Grouping()
    retrieval: Retrieval = Retrieval()
    summary: Summarizing = Summarizing()
    wording: Wording = Wording()
    answering: Answering = Answering()
    openai: OpenAISettings = OpenAISettings()
    budget: BudgetSettings = BudgetSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    vectors: VectorSettings = VectorSettings()
    worker: WorkerSettings = WorkerSettings()
    connect: ConnectSettings = ConnectSettings()
    receive: ReceiveSettings = ReceiveSettings()
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    batch: int = Field(500, ge=1, description="Events appended to the log at a time.")
    wait: float = Field(5.0, ge=0, description="Seconds to wait for another process that holds the memory.")
    pool: int = Field(1024, ge=1, description="Messages embedded at a time, sorted by length before they are batched.")


def load() -> Settings:
    """Read the settings from the environment. Raises SettingsError naming the variable and what it must be."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        inside = f" ({'.'.join(place[2:])})" if place[2:] else ""  # what is below is JSON
        raise SettingsError(f"{_variable(*place[:2])} is wrong{inside}: {first['msg']}") from None
    except Unreadable:
        raise SettingsError(f"{_malformed()} is wrong: it must be JSON, in which names stand in quotes") from None


def _variable(*names: str) -> str:
    return "STREAMMEM_" + "__".join(names).upper()


def _malformed() -> str:
    """The first variable that has to hold JSON and does not."""
    return next((name for name in sorted(os.environ) if _holds_json(name.upper()) and not _is_json(name)), "a setting")


def _holds_json(name: str) -> bool:
    """Whether a variable names a whole group, or a field with names and values."""
    for group, field in Settings.model_fields.items():
        fields = getattr(field.annotation, "model_fields", {})
        deep = [own for own, inner in fields.items() if get_origin(inner.annotation) is dict]
        if name in (_variable(group), *(_variable(group, own) for own in deep)):
            return True
    return False


def _is_json(name: str) -> bool:
    try:
        json.loads(os.environ[name])
    except ValueError:
        return False
    return True
