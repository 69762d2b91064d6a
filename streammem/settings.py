"""What can be set from outside: read once, frozen. The only place that reads the environment.

Variables are STREAMMEM_<GROUP>__<FIELD>, e.g. STREAMMEM_FOREST__K=8.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from streammem.core.numbers import Forest, Retrieval, Summarizing
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


class Settings(BaseSettings):
    """All settings of one process."""

    model_config = SettingsConfigDict(env_prefix="STREAMMEM_", env_nested_delimiter="__", frozen=True, extra="ignore")

    forest: Forest = Forest()
    retrieval: Retrieval = Retrieval()
    summary: Summarizing = Summarizing()
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
        name = "STREAMMEM_" + "__".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(f"{name} is wrong: {first['msg']}") from None
