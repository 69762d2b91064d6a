"""The role that listens: what Slack and Microsoft Graph post goes into the raw topics. Nothing of Faust.

It is kept as it came, but for what only proves who sent it. Senders are answered only when Kafka has the body, within
the three seconds that they wait; otherwise with a status for which they send again. Whose signature or secret is wrong
is refused. No body and no secret is ever logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Many
from datetime import UTC, datetime
from hmac import compare_digest
from typing import Any, Protocol

import structlog

from streammem.connectors.fields import Row, row_of, text_of
from streammem.connectors.json_rows import loads
from streammem.core.topics import RAW_SLACK, RAW_TEAMS, Topic
from streammem.errors import MissingExtraError, RejectedError, SettingsError, StreammemError, TransientError
from streammem.settings import ReceiveSettings
from streammem.workers.duty import Pulse
from streammem.workers.secretless import slack_body, teams_body
from streammem.workers.stages import Done

try:
    from aiohttp import web
    from slack_sdk.signature import SignatureVerifier
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "aiohttp", "receive") from error

AT_ONCE = 200
"""Bodies that are coming in, and as many under way to Kafka: bounds memory, whoever sends."""
ECHO = 4096
"""Characters of a challenge or validation token that are sent back."""
KEPT = ("content-type", "x-slack-retry-num", "x-slack-retry-reason")
SHORT = 200
"""Characters of a header or a key that are kept."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger()


class Send(Protocol):
    """Sends one record and returns when it is durable."""

    async def __call__(
        self, topic: Topic, key: bytes | None, value: bytes | None, headers: Many[tuple[str, bytes]] = ()
    ) -> Any: ...


class Receiver:
    """The HTTP receiver."""

    def __init__(self, send: Send, settings: ReceiveSettings, pulse: Pulse) -> None:
        self._send, self._settings, self._pulse = send, settings, pulse
        self._sending: set[asyncio.Task[Any]] = set()
        self._coming = 0
        slack, teams = settings.slack_signing_secret, settings.teams_client_state
        self._verifier = SignatureVerifier(slack.get_secret_value()) if slack else None
        self._client_state = teams.get_secret_value().encode() if teams else None

    # ---- serving
    async def serve(self) -> None:
        """Listen until cancelled; what is under way is finished. Raises SettingsError for an address in use."""
        runner = web.AppRunner(
            self.app(),
            access_log=None,
            shutdown_timeout=self._settings.within,
            auto_decompress=False,  # neither product compresses, and a small body may unpack to a very large one
        )
        await runner.setup()
        host, port = self._settings.host, self._settings.port
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                raise SettingsError(f"cannot listen on {host}:{port} (STREAMMEM_RECEIVE__PORT): {error}") from None
            log.info("listens", host=host, port=runner.addresses[0][1], **self._configured())
            for product, setting in self._settings.closed.items():
                log.info("closed", product=product, opened_by=setting)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
            await asyncio.gather(*self._sending, return_exceptions=True)

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=self._settings.max_bytes, middlewares=[self._answered])
        app.router.add_get("/health", self._health)
        app.router.add_post("/slack/events", self._slack)
        app.router.add_post("/teams/notifications", self._teams)
        return app

    def _configured(self) -> dict[str, bool]:
        return {"slack": self._verifier is not None, "teams": self._client_state is not None}

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Whatever happens, one line and the status that makes the sender do the right thing."""
        status, why = 500, "a fault"
        try:
            return await handler(request)
        except web.HTTPException as error:
            status, why = error.status, error.text or error.reason
        except RejectedError as error:
            status, why = 413, error.reason
        except TransientError as error:
            self._pulse.wait(str(error))
            status, why = 503, "not taken in time: send again"
        except StreammemError as error:
            log.error("cannot keep what is sent", because=str(error))  # noqa: TRY400 - it says what to do
            status, why = 503, "not set up: send again"
        except Exception:
            log.exception("a request failed", path=request.path)
        log.warning("refused", path=request.path, status=status, why=why)
        return _line(why, status)

    # ---- what is asked
    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"status": "ok", "kafka": "away" if self._pulse.waiting else "ok", **self._configured()}
        )

    async def _slack(self, request: web.Request) -> web.Response:
        if self._verifier is None:
            raise _refusal(web.HTTPServiceUnavailable, "STREAMMEM_RECEIVE__SLACK_SIGNING_SECRET is not set")
        until = self._deadline()
        body = await self._body(request, until)
        if not signed(self._verifier, body, request.headers):
            raise _refusal(web.HTTPUnauthorized, "the signature is wrong, or older than five minutes")
        payload = _object(body)
        if text_of(payload, "type") == "url_verification":
            return _line(_echoed(text_of(payload, "challenge")))
        await self._keep(RAW_SLACK, slack_key(payload), slack_body(body, payload), _headers(request), until)
        return web.Response()

    async def _teams(self, request: web.Request) -> web.Response:
        if self._client_state is None:
            raise _refusal(web.HTTPServiceUnavailable, "STREAMMEM_RECEIVE__TEAMS_CLIENT_STATE is not set")
        if "validationToken" in request.query:
            return _line(_echoed(request.query["validationToken"]))
        until = self._deadline()
        body = await self._body(request, until)
        payload = _object(body)
        rows = _notifications(payload)
        if not all(compare_digest(text_of(row, "clientState").encode(), self._client_state) for row in rows):
            raise _refusal(web.HTTPUnauthorized, "the clientState is not the one of the subscription")
        await self._keep(RAW_TEAMS, teams_key(rows[0]), teams_body(body, payload), _headers(request), until)
        return web.Response(status=202)

    # ---- keeping it
    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._settings.within

    async def _body(self, request: web.Request, until: float) -> bytes:
        if request.content_type != "application/json":
            raise _refusal(web.HTTPUnsupportedMediaType, "send application/json")
        if self._coming >= AT_ONCE:
            raise TransientError(f"{AT_ONCE} bodies are coming in already")
        self._coming += 1
        try:
            async with asyncio.timeout_at(until):
                return await request.read()
        except TimeoutError:
            raise _refusal(web.HTTPRequestTimeout, "the body did not come in time") from None
        finally:
            self._coming -= 1

    async def _keep(
        self, topic: Topic, key: bytes | None, body: bytes, headers: Many[tuple[str, bytes]], until: float
    ) -> None:
        """Return when Kafka has it. What is late goes on and may come to Kafka yet: twice does no harm."""
        if len(self._sending) >= AT_ONCE:
            raise TransientError(f"{AT_ONCE} bodies are under way to Kafka already")
        task = asyncio.ensure_future(self._send(topic, key, body, headers))
        self._sending.add(task)
        task.add_done_callback(self._landed)
        left = until - asyncio.get_running_loop().time()
        await asyncio.wait([task], timeout=max(0.0, left))
        if not task.done():
            raise TransientError(f"Kafka did not take a record within {self._settings.within:g} s")
        task.result()
        self._pulse.wait("")
        self._pulse.count(Done(1))
        log.debug("received", topic=topic.name, bytes=len(body))

    def _landed(self, task: asyncio.Task[Any]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has been told


def signed(verifier: SignatureVerifier, body: bytes, headers: Any) -> bool:
    """Whether Slack signed this body, at most five minutes ago."""
    stamp, signature = headers.get("X-Slack-Request-Timestamp", ""), headers.get("X-Slack-Signature", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) < 16 and signature.isascii()):
        return False
    try:
        return verifier.is_valid(body, stamp, signature)
    except UnicodeDecodeError:
        return False


def slack_key(payload: Row) -> bytes | None:
    """team:channel of an event, as far as they are told at once."""
    event = row_of(payload, "event")
    item, entity = row_of(event, "item"), row_of(event, "channel")
    channel = text_of(event, "channel") or text_of(item, "channel") or text_of(entity, "id")
    return _key(text_of(payload, "team_id"), channel)


def teams_key(notification: Row) -> bytes | None:
    """tenant:channel of a notification; the channel is the resource up to its messages."""
    return _key(text_of(notification, "tenantId"), text_of(notification, "resource").partition("/messages")[0])


def _key(*parts: str) -> bytes | None:
    return ":".join(part[:SHORT] for part in parts if part).encode() or None


def _object(body: bytes) -> Row:
    try:
        payload = loads(body)
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        raise _refusal(web.HTTPBadRequest, "the body is no JSON object")
    return payload


def _notifications(payload: Row) -> list[Row]:
    rows = payload.get("value")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise _refusal(web.HTTPBadRequest, "the body holds no notifications")
    return rows


def _headers(request: web.Request) -> list[tuple[str, bytes]]:
    told = {name: request.headers.get(name, "") for name in KEPT} | {"received-at": datetime.now(UTC).isoformat()}
    return [(name, value[:SHORT].encode("utf-8", "replace")) for name, value in told.items() if value]


def _echoed(token: str) -> str:
    if not 0 < len(token) <= ECHO or not token.isprintable():
        raise _refusal(web.HTTPBadRequest, "no token to send back")
    return token


def _line(text: str, status: int = 200) -> web.Response:
    """Plain text that no browser takes for anything else."""
    return web.Response(text=text, status=status, headers={"X-Content-Type-Options": "nosniff"})


def _refusal(kind: type[web.HTTPException], why: str) -> web.HTTPException:
    return kind(text=why)
