"""One conversation with a Redis server or cluster: commands by the batch, scripts, and what its errors mean."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator
from collections.abc import Sequence as Many
from typing import Any

import msgspec

from streammem.errors import MissingExtraError, SettingsError, TransientError

try:
    from redis import exceptions as fault
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import ConstantBackoff
except ModuleNotFoundError as error:
    raise MissingExtraError("redis", "stream") from error

Command = tuple[Any, ...]

_pack = msgspec.msgpack.Encoder().encode

PIECE = 1000
"""Commands in one pipeline: more would keep their replies in memory on both sides."""

MOST = 500
"""What one script is given to do: nobody else is served meanwhile."""

TOGETHER = 32
"""Batches of commands on their way at the same time. The client refuses those for which its pool has no connection."""

WAIT = 10.0
"""Seconds for a connection and for each reply."""

_AWAY = (
    fault.ConnectionError,
    fault.TimeoutError,
    fault.ReadOnlyError,
    fault.ClusterDownError,
    fault.TryAgainError,
    fault.AskError,
    fault.SlotNotCoveredError,
    fault.OutOfMemoryError,
    OSError,
)
_BUSY = ("LOADING", "BUSY", "OOM", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "MISCONF", "NOREPLICAS")
_REFUSED = (fault.AuthenticationError, fault.AuthorizationError, fault.NoPermissionError)
_MENDS: tuple[tuple[tuple[type[Exception], ...] | str, str], ...] = (
    (_REFUSED, "check the user, password and rights in its URL"),
    ("Cluster mode is not enabled", "it is no cluster, do not set `cluster`"),
    ("cluster support disabled", "it is no cluster, do not set `cluster`"),
    ("DB index", "mend the number of the database in its URL"),
    ("SELECT is not allowed", "leave the number of the database out of its URL"),
)
"""What is no use to try again: by the class of the error or by what it says."""


_HOW = "write it as redis://USER:PASSWORD@HOST:PORT/DATABASE, with %2F for a slash in the password and so on"


class Script:
    """A Lua script: one atomic step within one key, or within the keys of one hash tag.

    Its ARGV come packed as one: the client takes microseconds for every single one. So numbers are numbers there.
    """

    def __init__(self, text: str) -> None:
        self.text = f"local ARGV = cmsgpack.unpack(ARGV[1])\n{text}"
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Many[str], arguments: Many[Any]) -> Command:
        """The command that runs it."""
        return ("EVALSHA", self.digest, len(keys), *keys, _pack(arguments))


def binary(raw: bytes) -> msgspec.Raw:
    """Bytes as an argument of a script: Redis reads msgpack as it was before it told text from bytes."""
    return msgspec.Raw(b"\xdb" + len(raw).to_bytes(4, "big") + raw)


class Connection:
    """Connects when first used, and again after every loss. Errors come out as those of the tree."""

    def __init__(self, url: str, scripts: Iterable[Script], *, cluster: bool = False) -> None:
        try:
            parts = parse_url(url)
        except ValueError:  # whose message may quote a piece of the password
            raise SettingsError(f"the Redis URL is wrong: {_HOW}") from None
        self.place = str(parts.get("path") or f"{parts.get('host', 'localhost')}:{parts.get('port', 6379)}")
        self._scripts = {script.digest: script for script in scripts}
        self._cluster = cluster
        self._places = asyncio.Semaphore(TOGETHER)
        options: dict[str, Any] = {
            "socket_timeout": WAIT,
            "socket_connect_timeout": WAIT,
            "health_check_interval": 30,
            "protocol": 2,
            "retry": Retry(ConstantBackoff(0.05), 1),  # one: a connection that broke while idle. Callers wait longer
        }
        try:
            self._client: Any = (RedisCluster if cluster else Redis).from_url(url, **options)
        except (fault.RedisClusterException, ValueError, TypeError) as error:
            raise SettingsError(f"the Redis URL of {self.place} cannot be used: {error}") from None

    async def close(self) -> None:
        """Closing twice is no fault."""
        await self._client.aclose()

    async def run(self, commands: Many[Command]) -> list[Any]:
        """The replies to these commands, in order. They are no transaction: others may come in between."""
        replies: list[Any] = []
        for start in range(0, len(commands), PIECE):
            replies += await self._piece(commands[start : start + PIECE])
        return replies

    async def in_turn(self, *rounds: Many[Command]) -> list[Any]:
        """The replies to rounds of commands, each run after those before it: the nodes of a cluster wait for nobody."""
        if not self._cluster:
            return await self.run([command for commands in rounds for command in commands])
        return [reply for commands in rounds for reply in await self.run(commands)]

    async def _piece(self, commands: Many[Command]) -> list[Any]:
        replies = await self._sent(commands)
        unknown = [i for i, reply in enumerate(replies) if isinstance(reply, fault.NoScriptError)]
        if unknown:  # a server that started anew or was told to forget: only these did nothing
            await self._load({commands[i][1] for i in unknown})
            again = await self._sent([commands[i] for i in unknown])
            for i, reply in zip(unknown, again, strict=True):
                replies[i] = reply
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Exception):
                await self._look_again(reply)
                raise self._explained(reply, command[0]) from reply
        return replies

    async def _look_again(self, error: Exception) -> None:
        """A node that is away may have handed over to another: the next call asks the cluster who serves what."""
        if self._cluster and isinstance(error, _AWAY):
            await self._client.aclose()

    async def _sent(self, commands: Many[Command]) -> list[Any]:
        try:
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            async with self._places:
                return list(await pipeline.execute(raise_on_error=False))
        except Exception as error:
            explained = self._explained(error, commands[0][0])
            if explained is error:
                raise
            raise explained from error

    async def _load(self, digests: Iterable[str]) -> None:
        for digest in sorted(digests):
            await self._everywhere("SCRIPT LOAD", self._scripts[digest].text)

    async def _everywhere(self, *command: Any) -> None:
        """Run a command on every primary."""
        for node in await self._nodes():
            await self._one(command, node)

    async def _nodes(self) -> list[dict[str, Any]]:
        """For each primary the options that send a command there."""
        if not self._cluster:
            return [{}]
        await self._guarded(self._client.initialize(), "CLUSTER SLOTS")
        return [{"target_nodes": node} for node in self._client.get_primaries()]

    async def _one(self, command: Command, node: dict[str, Any]) -> Any:
        return await self._guarded(self._client.execute_command(*command, **node), command[0])

    async def _guarded(self, call: Any, name: str) -> Any:
        try:
            return await call
        except Exception as error:
            explained = self._explained(error, name)
            if explained is error:
                raise
            raise explained from error

    async def scan(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """The names of the keys like `pattern`, in pieces; some may come twice."""
        for node in await self._nodes():
            cursor: int | None = None
            while cursor != 0:
                reply = await self._one(("SCAN", cursor or 0, "MATCH", pattern, "COUNT", PIECE), node)
                cursor, names = _scanned(reply)
                yield names

    def _explained(self, error: Exception, name: str) -> Exception:
        """The error of the tree that says what this one means for the caller; itself when it is a fault of ours."""
        said = str(error).partition("\n")[0]
        for tell, mend in _MENDS:
            if isinstance(error, tell) if isinstance(tell, tuple) else tell in said:
                return SettingsError(f"Redis at {self.place} cannot be used ({said}): {mend}")
        moved = isinstance(error, fault.AskError) or said.startswith(("MOVED ", "ASK "))
        if moved and not self._cluster:
            return SettingsError(f"Redis at {self.place} cannot be used ({said}): it is a cluster, set `cluster`")
        away = isinstance(error, _AWAY) or (isinstance(error, fault.RedisClusterException) and "connect" in said)
        if away or said.startswith(_BUSY):
            return TransientError(f"cannot reach Redis at {self.place} for {name} now: {said or type(error).__name__}")
        return error


def _scanned(reply: tuple[Any, list[bytes]]) -> tuple[int, list[bytes]]:
    """A cluster says the cursor by the name of the node."""
    cursor, names = reply
    if isinstance(cursor, dict):
        (cursor,) = cursor.values()
    return int(cursor), names


def pieces(items: Many[Any], size: int = MOST) -> Iterator[Many[Any]]:
    """A long list in parts: what one script does while nobody else is served."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
