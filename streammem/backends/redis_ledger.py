"""What model calls of one memory may take and have taken, in Redis: every step is one script, by the server's clock.

All keys have one hash tag, and none begins as the keys of a RedisStructure do: what was paid survives its `clear`.

    state     hash: paused, rest, and `window`, the tokens of the calls in it
    calls     list: "moment tokens", oldest first: the window of the limits
    accounts  hash: "day taken tokens", "day spent money", … -> sum
    open      hash: "tokens money" -> the days on which just this was taken and is not settled
    spent     hash: "day level count view" -> sum
    claims    hash: key -> till, holder, view, level
    jobs      hash: name -> job
    writer    who writes
    once/…    what was done a moment ago

Moments are in µs, days are numbered from 1970.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Many
from typing import Any
from uuid import uuid4

import msgspec

from streammem.backends.redis_connection import Command, Connection, Script, pieces
from streammem.backends.redis_keys import checked
from streammem.core.spending import ASK_AGAIN, COUNTED, DAY, SECOND, day_named, micros, total, windowed
from streammem.errors import MemoryFormatError
from streammem.ports import Ledger
from streammem.records import Claim, Job, Limits, Spent, Taken

CLOCK = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
"""
"""Gives every script `now`, in µs."""

ONCE = 600
"""Seconds for which a step is remembered that must not be done again when its reply was lost on the way."""

_COMMON = f"""
local day = math.floor(now / {DAY})
local function whole(number) return string.format('%.0f', number) end -- of -0 it makes '-0', which Redis does not take
local function field(key, name) return tonumber(redis.call('HGET', key, name) or '0') end
local function used(accounts, kind)
  return field(accounts, day .. ' taken ' .. kind) + field(accounts, day .. ' spent ' .. kind)
end
"""

TAKE = (
    _COMMON
    + f"""
local tokens, money, requests, most, span, day_tokens, day_money, windowed, trying = unpack(ARGV)

local paused = redis.call('HGET', KEYS[1], 'paused')
if paused then return {{'paused', '', paused}} end

local rest = field(KEYS[1], 'rest')
if rest > now then return {{'rest', whole(rest - now), ''}} end

local function over(kind, wish, limit) return limit >= 0 and used(KEYS[3], kind) + wish > limit end
if over('tokens', tokens, day_tokens) or over('money', money, day_money) then
  return {{'budget', whole((day + 1) * {DAY} - now), ''}}
end

local function call(text)
  local at, taken = string.match(text, '^(%d+) (%d+)$')
  return tonumber(at), tonumber(taken)
end

-- The clock was set back: nobody waits for its old time.
local function clamp()
  local newest = redis.call('LINDEX', KEYS[2], -1)
  if not newest or call(newest) <= now then return end
  for i, text in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local at, taken = call(text)
    redis.call('LSET', KEYS[2], i - 1, whole(math.min(at, now)) .. ' ' .. whole(taken))
  end
end

local function forget()
  while true do
    local oldest = redis.call('LINDEX', KEYS[2], 0)
    if not oldest then return end
    local at, taken = call(oldest)
    if at + span > now then return end
    redis.call('LPOP', KEYS[2])
    redis.call('HINCRBY', KEYS[1], 'window', whole(0 - taken))
  end
end

local function free_at()
  local calls, taken, moment = redis.call('LLEN', KEYS[2]), field(KEYS[1], 'window'), 0
  local function fits()
    return calls == 0 or ((requests < 0 or calls + 1 <= requests) and (most < 0 or taken + tokens <= most))
  end
  local start, page = 0, {{}}
  while not fits() do
    if start % 100 == 0 then page = redis.call('LRANGE', KEYS[2], start, start + 99) end
    local at, leaving = call(page[start % 100 + 1])
    calls, taken, moment, start = calls - 1, taken - leaving, at + span, start + 1
  end
  return moment
end

if windowed then
  forget()
  clamp()
  local free = free_at()
  if free > now then return {{'limit', whole(free - now), ''}} end
end

if not trying then
  if windowed then
    redis.call('RPUSH', KEYS[2], whole(now) .. ' ' .. whole(tokens))
    redis.call('HINCRBY', KEYS[1], 'window', whole(tokens))
  end
  local name = whole(tokens) .. ' ' .. whole(money)
  redis.call('HSET', KEYS[4], name, (redis.call('HGET', KEYS[4], name) or '') .. day .. ' ')
  redis.call('HINCRBY', KEYS[3], day .. ' taken tokens', whole(tokens))
  redis.call('HINCRBY', KEYS[3], day .. ' taken money', whole(money))
end
return {{'', '', ''}}
"""
)
"""KEYS: state, calls, accounts, open. ARGV: tokens, money, requests, most tokens, window in µs, tokens and money of a
day (-1: no limit), whether there is a window, whether nothing is to be taken. Gives why not, µs to wait, what was said.

The arithmetic is that of core.spending."""

SETTLE = (
    _COMMON
    + f"""
if not redis.call('SET', KEYS[6], '', 'NX', 'EX', {ONCE}) then return end
local tokens, money, called, spent_tokens, spent_money = unpack(ARGV, 1, 5)

-- The newest of the days on which just this was taken is its day.
local name = whole(tokens) .. ' ' .. whole(money)
local others, last = string.match(redis.call('HGET', KEYS[4], name) or '', '^(.-)(%d+) $')
if last then
  day = tonumber(last)
  if others == '' then redis.call('HDEL', KEYS[4], name) else redis.call('HSET', KEYS[4], name, others) end
end

local function book(kind, back, spent)
  local place = day .. ' taken ' .. kind
  redis.call('HSET', KEYS[3], place, whole(math.max(0, field(KEYS[3], place) - back)))
  redis.call('HINCRBY', KEYS[3], day .. ' spent ' .. kind, whole(spent))
end
book('tokens', tokens, spent_tokens)
book('money', money, spent_money)

for i = 6, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[5], day .. ' ' .. ARGV[i], whole(ARGV[i + 1]))
end

-- Of equal calls the oldest goes: then those that stay in the window stay at least as long as the true ones.
if not called then
  for _, text in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.match(text, ' (%d+)$') == whole(tokens) then
      redis.call('LREM', KEYS[2], 1, text)
      redis.call('HINCRBY', KEYS[1], 'window', whole(0 - tokens))
      break
    end
  end
end
"""
)
"""KEYS: state, calls, accounts, open, spent, and a key of this step alone. ARGV: tokens and money that were taken,
whether a call was made, tokens and money that were spent, then "level count view", number, ... of these."""

USED = (
    _COMMON
    + """
return {whole(used(KEYS[1], 'tokens')), whole(used(KEYS[1], 'money'))}
"""
)
"""KEYS: accounts."""

SPENT = (
    _COMMON
    + """
local found, all = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if tonumber(string.match(all[i], '^%d+')) > day - ARGV[1] then
    found[#found + 1] = all[i]
    found[#found + 1] = all[i + 1]
  end
end
return found
"""
)
"""KEYS: spent. ARGV: days. Gives "day level count view", number, ..."""

CLAIM = """
local mine = {}
for i = 3, #ARGV, 3 do
  local known = redis.call('HGET', KEYS[1], ARGV[i])
  local till, holder = 0, ARGV[1]
  if known then till, holder = unpack(cmsgpack.unpack(known)) end
  if holder == ARGV[1] or till <= now then
    local claim = {now + ARGV[2], ARGV[1], ARGV[i + 1], ARGV[i + 2]}
    redis.call('HSET', KEYS[1], ARGV[i], cmsgpack.pack(claim))
    mine[#mine + 1] = ARGV[i]
  end
end
return mine
"""
"""KEYS: claims. ARGV: holder, µs, then key, view, level, ... Gives the keys that are the holder's."""

RELEASE = """
for i = 2, #ARGV do
  local known = redis.call('HGET', KEYS[1], ARGV[i])
  if known and cmsgpack.unpack(known)[2] == ARGV[1] then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
"""
"""KEYS: claims. ARGV: holder, key, ..."""

CLAIMED = """
local found, all = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local till, _, view, level = unpack(cmsgpack.unpack(all[i + 1]))
  if till > now then
    for _, part in ipairs({all[i], view, tostring(level)}) do found[#found + 1] = part end
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return found
"""
"""KEYS: claims. Gives key, view, level, ... of those that are held, and lets go of the others."""

REST = """
local till = math.max(now + ARGV[1], tonumber(redis.call('HGET', KEYS[1], 'rest') or '0'))
redis.call('HSET', KEYS[1], 'rest', string.format('%.0f', till))
"""
"""KEYS: state. ARGV: µs."""

WRITER = f"""
local said = redis.call('GET', KEYS[2])
if said then return said end
local before = redis.call('GET', KEYS[1]) or ''
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], before, 'EX', {ONCE})
return before
"""
"""KEYS: writer, and a key of this step alone. ARGV: name."""

_pack = msgspec.msgpack.Encoder().encode
_job = msgspec.msgpack.Decoder(Job).decode


class RedisLedger(Ledger):
    """Beside a RedisStructure of the same prefix. Any number of processes share it.

    For what counts on which day, see MemoryLedger.
    """

    clock = CLOCK

    def __init__(self, url: str, prefix: str = "streammem", *, cluster: bool = False) -> None:
        self._prefix = f"{checked(prefix)}/ledger:{{{prefix}}}"
        self._take, self._settle, self._used, self._spent = map(self._timed, (TAKE, SETTLE, USED, SPENT))
        self._claim, self._release, self._claimed = map(self._timed, (CLAIM, RELEASE, CLAIMED))
        self._rest, self._writer = map(self._timed, (REST, WRITER))
        taking = (self._take, self._settle, self._used, self._spent)
        holding = (self._claim, self._release, self._claimed, self._rest, self._writer)
        self._redis = Connection(url, (*taking, *holding), cluster=cluster)

    def _timed(self, text: str) -> Script:
        return Script(self.clock + text)

    def _keys(self, *names: str) -> list[str]:
        return [self._prefix + name for name in names]

    async def _run(self, command: Command) -> Any:
        [reply] = await self._redis.run([command])
        return reply

    async def close(self) -> None:
        """Closing twice is no fault."""
        await self._redis.close()

    # ---- who is at what
    async def claim(self, claims: Many[Claim], holder: str, seconds: float) -> set[str]:
        rows = [[part for one in piece for part in (one.key, one.view, one.level)] for piece in pieces(claims)]
        mine = await self._redis.run(
            [self._claim(self._keys("claims"), (holder, micros(seconds), *row)) for row in rows]
        )
        return {key.decode() for keys in mine for key in keys}

    async def release(self, keys: Many[str], holder: str) -> None:
        await self._redis.run([self._release(self._keys("claims"), (holder, *piece)) for piece in pieces(keys)])

    async def claimed(self) -> list[Claim]:
        flat = [part.decode() for part in await self._run(self._claimed(self._keys("claims"), ()))]
        held = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return sorted((Claim(key, view, int(level)) for key, view, level in held), key=lambda claim: claim.key)

    # ---- taking
    async def take(self, limits: Limits, tokens: int, money: int) -> Taken:
        return await self._asked(limits, tokens, money, trying=False)

    async def standing(self, limits: Limits) -> Taken:
        return await self._asked(limits, 1, 0, trying=True)

    async def _asked(self, limits: Limits, tokens: int, money: int, *, trying: bool) -> Taken:
        bounds = (limits.requests, limits.tokens, limits.window, limits.day_tokens, limits.day_money)
        requests, most, _, day_tokens, day_money = (-1 if bound is None else bound for bound in bounds)
        arguments = (tokens, money, requests, most, micros(limits.window), day_tokens, day_money)
        keys = self._keys("state", "calls", "accounts", "open")
        why, wait, said = await self._run(self._take(keys, (*arguments, windowed(limits), trying)))
        return _taken(why.decode(), wait, said.decode())

    async def settle(self, tokens: int, money: int, spent: Many[Spent], *, call: bool = True) -> None:
        counts = [part for one in spent for name in COUNTED for part in (_field(one, name), getattr(one, name))]
        keys = self._keys("state", "calls", "accounts", "open", "spent", f"once/{uuid4().hex}")
        await self._run(self._settle(keys, (tokens, money, call, *total(spent), *counts)))

    async def used(self) -> tuple[int, int]:
        tokens, money = await self._run(self._used(self._keys("accounts"), ()))
        return int(tokens), int(money)

    async def spent(self, days: int = 1) -> list[Spent]:
        flat = await self._run(self._spent(self._keys("spent"), (days,)))
        rows: dict[tuple[int, str, int], dict[str, int]] = defaultdict(dict)
        for field, number in zip(flat[::2], flat[1::2], strict=True):
            day, level, name, view = field.decode().split(" ", 3)
            rows[int(day), view, int(level)][name] = int(number)
        return [
            Spent(day=day_named(day), view=view, level=level, **rows[day, view, level])
            for day, view, level in sorted(rows)
        ]

    # ---- stopping
    async def rest(self, seconds: float) -> None:
        await self._run(self._rest(self._keys("state"), (micros(seconds),)))

    async def pause(self, said: str) -> None:
        await self._run(("HSET", *self._keys("state"), "paused", said))

    async def resume(self) -> None:
        await self._run(("HDEL", *self._keys("state"), "paused", "rest"))

    # ---- notes
    async def writer(self, name: str) -> str:
        before = await self._run(self._writer(self._keys("writer", f"once/{uuid4().hex}"), (name,)))
        return str(before.decode())

    async def keep_job(self, job: Job) -> None:
        await self._run(("HSET", *self._keys("jobs"), job.name, _pack(job)))

    async def drop_job(self, name: str) -> None:
        await self._run(("HDEL", *self._keys("jobs"), name))

    async def jobs(self) -> list[Job]:
        contents = await self._run(("HVALS", *self._keys("jobs")))
        try:
            return sorted(map(_job, contents), key=lambda job: (job.at, job.name))
        except msgspec.MsgspecError as error:
            raise MemoryFormatError(f"a job in Redis at {self._redis.place} cannot be read ({error})") from error


def _taken(why: str, wait: bytes, said: str) -> Taken:
    if why == "paused":
        return Taken(granted=False, why=why, wait=ASK_AGAIN, said=said)
    return Taken(granted=False, why=why, wait=int(wait) / SECOND) if why else Taken(granted=True)


def _field(spent: Spent, name: str) -> str:
    return f"{spent.level} {name} {spent.view}"
