"""Signs of life of the processes of one memory, in Redis: one hash, which forgets by the clock of the server."""

from __future__ import annotations

import msgspec

from streammem.backends.redis_connection import Connection, Script, binary
from streammem.backends.redis_keys import checked
from streammem.ports import Beats
from streammem.records import Beat

_NOW = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
"""

BEAT = Script(
    _NOW
    + """
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.6f', now + tonumber(ARGV[2])) .. ' ' .. ARGV[3])
"""
)
"""KEYS: beats. ARGV: role and process, seconds, content."""

BEATS = Script(
    _NOW
    + """
local found = {}
local known = redis.call('HGETALL', KEYS[1])
for i = 1, #known, 2 do
  local till, content = string.match(known[i + 1], '^(%S+) (.*)$')
  if tonumber(till) > now then
    found[#found + 1] = content
  else
    redis.call('HDEL', KEYS[1], known[i])
  end
end
return found
"""
)
"""KEYS: beats. Gives those that are not forgotten, and lets go of the others."""

_pack = msgspec.msgpack.Encoder().encode
_beat = msgspec.msgpack.Decoder(Beat).decode


class RedisBeats(Beats):
    """Beside a RedisStructure of the same prefix, whose `clear` leaves them alone."""

    def __init__(self, url: str, prefix: str = "streammem", *, cluster: bool = False) -> None:
        self._keys = [f"{checked(prefix)}:beats"]
        self._redis = Connection(url, (BEAT, BEATS), cluster=cluster)

    async def close(self) -> None:
        """Closing twice is no fault."""
        await self._redis.close()

    async def beat(self, beat: Beat, seconds: float) -> None:
        name = binary(_pack((beat.role, beat.process)))
        await self._redis.run([BEAT(self._keys, (name, float(seconds), binary(_pack(beat))))])

    async def beats(self) -> list[Beat]:
        [found] = await self._redis.run([BEATS(self._keys, ())])
        return sorted(map(_beat, found), key=lambda beat: (beat.role, beat.process))
