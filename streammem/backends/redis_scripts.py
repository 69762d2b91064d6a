"""The atomic steps of the structure store, in Lua. Each touches keys of one hash tag and may be run again.

Traps: `<` on Lua strings follows the server's locale, so bytes are compared here; `..` writes a number of more than
14 digits in short, so numbers are written by "%.0f" or are strings from the start. Commands take numbers whole.
"""

from __future__ import annotations

from streammem.backends.redis_connection import Script

_LESS = """
local function less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
"""

_TICK = """
local function tick(key)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  return math.max(now, tonumber(redis.call('GET', key) or '0') + 1)
end
"""
"""A number that never comes again, not even when Redis has forgotten the last one: the time in µs, and ever growing."""

REGISTER = Script("""
local function stands(known, frame)
  local size = struct.unpack('>I2', frame, 5)
  local identity = string.sub(frame, 10, 9 + size)
  local at = 1
  while at <= #known do
    local length, other = struct.unpack('>I4I2', known, at)
    if other == size and string.sub(known, at + 9, at + 8 + size) == identity then return true end
    at = at + 6 + length
  end
  return false
end
local added = 0
for i = 1, #ARGV, 2 do
  local known = redis.call('HGET', KEYS[1], ARGV[i]) or ''
  if known ~= ARGV[i + 1] and not stands(known, ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], known .. ARGV[i + 1])
    added = added + 1
  end
end
if added > 0 then redis.call('HINCRBY', KEYS[2], 'versions', added) end
""")
"""KEYS: versions, counts. ARGV: message id, frame (see redis.framed), ..."""

PLACE = Script("""
local added = 0
for i = 1, #ARGV, 2 do
  local known = redis.call('HGET', KEYS[1], ARGV[i]) or ''
  local fresh = known
  for name in string.gmatch(ARGV[i + 1], '[^\\n]+\\n') do
    if not string.find('\\n' .. fresh, '\\n' .. name, 1, true) then
      fresh = fresh .. name
      added = added + 1
    end
  end
  if fresh ~= known then redis.call('HSET', KEYS[1], ARGV[i], fresh) end
end
if added > 0 then redis.call('HINCRBY', KEYS[2], 'leaves', added) end
""")
"""KEYS: placements, counts. ARGV: message id, names of sequences with a line end after each, ..."""

ENTER = Script("""
local at = 1
for k = 1, #KEYS do
  local last = at + 2 * tonumber(ARGV[at])
  redis.call('ZADD', KEYS[k], 'LT', unpack(ARGV, at + 1, last))
  at = last + 1
end
""")
"""KEYS: sequences. ARGV for each: how many leaves, then ts, uid, ..."""

LIST = Script("for i = 1, #ARGV do redis.call('ZADD', KEYS[1], 0, ARGV[i]) end")
"""KEYS: an index that is read in the order of the names in it. ARGV: name, ..."""

_ID = """
local function id(key) return string.sub(key, #KEYS[1] + 1) end
"""
"""What follows the kind in a key. The first of KEYS is an index of the same tag, with a kind as long and no more."""

LINK = Script(
    _ID
    + """
local added, at = 0, 1
for k = 3, #KEYS do
  local last = at + 2 * tonumber(ARGV[at])
  added = added + redis.call('ZADD', KEYS[k], 'LT', unpack(ARGV, at + 1, last))
  redis.call('SADD', KEYS[1], id(KEYS[k]))
  at = last + 1
end
if added > 0 then redis.call('HINCRBY', KEYS[2], 'answers', added) end
"""
)
"""KEYS: targets, counts, then the answers of each target. ARGV for each: how many leaves, then ts, uid, ..."""

UNLINK = Script(
    _ID
    + """
local gone, at = 0, 1
for k = 3, #KEYS do
  local last = at + tonumber(ARGV[at])
  gone = gone + redis.call('ZREM', KEYS[k], unpack(ARGV, at + 1, last))
  if redis.call('EXISTS', KEYS[k]) == 0 then redis.call('SREM', KEYS[1], id(KEYS[k])) end
  at = last + 1
end
if gone > 0 then redis.call('HINCRBY', KEYS[2], 'answers', -gone) end
"""
)
"""KEYS: targets, counts, then the answers of each target. ARGV for each: how many messages, then uid, ..."""

WITHDRAW = Script("""
local at = 1
for k = 1, #KEYS do
  local last = at + tonumber(ARGV[at])
  redis.call('ZREM', KEYS[k], unpack(ARGV, at + 1, last))
  at = last + 1
end
""")
"""KEYS: sequences. ARGV for each: how many messages, then uid, ..."""

UNPLACE = Script("""
local gone = 0
for i = 1, #ARGV, 2 do
  local known = redis.call('HGET', KEYS[1], ARGV[i]) or ''
  local left = ''
  for name in string.gmatch(known, '[^\\n]+\\n') do
    if string.find('\\n' .. ARGV[i + 1], '\\n' .. name, 1, true) then gone = gone + 1 else left = left .. name end
  end
  if left == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], left) end
end
if gone > 0 then redis.call('HINCRBY', KEYS[2], 'leaves', -gone) end
""")
"""KEYS: placements, counts. ARGV: message id, names of sequences with a line end after each, ..."""

STRIKE = Script(
    _ID
    + """
local versions, reactions = 0, 0
for k = 4, #KEYS do
  local known, at = redis.call('HGET', KEYS[3], id(KEYS[k])) or '', 1
  while at <= #known do
    versions = versions + 1
    at = at + 6 + struct.unpack('>I4', known, at)
  end
  reactions = reactions + redis.call('HLEN', KEYS[k])
  redis.call('HDEL', KEYS[3], id(KEYS[k]))
  redis.call('UNLINK', KEYS[k])
  redis.call('SREM', KEYS[1], id(KEYS[k]))
end
if versions > 0 then redis.call('HINCRBY', KEYS[2], 'versions', -versions) end
if reactions > 0 then redis.call('HINCRBY', KEYS[2], 'reactions', -reactions) end
"""
)
"""KEYS: messages with reactions, counts, versions, then the reactions of each message. No ARGV."""

MARKED = Script("return redis.call('SMISMEMBER', KEYS[1], unpack(ARGV))")
"""KEYS: a set. ARGV: member, ... Gives 1 for each that is in it, 0 for others."""

FIELDS = Script("return redis.call('HMGET', KEYS[1], unpack(ARGV))")
"""KEYS: a hash. ARGV: field, ... Gives their values."""

STANDS = Script("""
local found, at = {}, 1
for k = 1, #KEYS do
  local last = at + tonumber(ARGV[at])
  local size = redis.call('ZCARD', KEYS[k])
  for i = at + 1, last do
    found[#found + 1] = redis.call('ZRANK', KEYS[k], ARGV[i]) or -1
    found[#found + 1] = size
  end
  at = last + 1
end
return found
""")
"""KEYS: sequences. ARGV for each: how many uids, uid, ... Gives rank (-1 for none), size, ..."""

RANKS = Script(
    _LESS
    + """
local function rank(key, ts, uid)
  if redis.call('ZSCORE', key, uid) == ts then return redis.call('ZRANK', key, uid) end
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. ts)
  local high = low + redis.call('ZCOUNT', key, ts, ts)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if less(redis.call('ZRANGE', key, middle, middle)[1], uid) then low = middle + 1 else high = middle end
  end
  return low
end
local found, at = {}, 1
for k = 1, #KEYS do
  local last = at + 2 * tonumber(ARGV[at])
  for i = at + 1, last, 2 do found[#found + 1] = rank(KEYS[k], ARGV[i], ARGV[i + 1]) end
  at = last + 1
end
return found
"""
)
"""KEYS: sequences. ARGV for each: how many leaves, then ts, uid, ... Gives how many leaves are smaller."""

EACH = {
    command: Script(f"""
local found = {{}}
for k = 1, #KEYS do
  local said = redis.call('{command}', KEYS[k])
  for _ = 1, ARGV[k] do found[#found + 1] = said end
end
return found
""")
    for command in ("ZCARD", "HGETALL")
}
"""KEYS: keys of one kind. ARGV for each: how often it is asked for. Gives what the command says, so often."""

LEAVES = Script("""
local found, at = {}, 1
for k = 1, #KEYS do
  local last = at + 2 * tonumber(ARGV[at])
  for i = at + 1, last, 2 do
    found[#found + 1] = redis.call('ZRANGE', KEYS[k], ARGV[i], ARGV[i + 1], 'WITHSCORES')
  end
  at = last + 1
end
return found
""")
"""KEYS: sequences or answers. ARGV for each: how many spans, then first, last, ... Gives uid, ts, ... for each span."""

_BEATS = (
    _LESS
    + """
local function parts(value)
  local size = struct.unpack('>I2', value)
  return string.sub(value, 3, 2 + size), string.sub(value, 3 + size, 18 + size)
end
local function learn(key, field, value)
  local known = redis.call('HGET', key, field)
  local order, sense = parts(value)
  if known then
    local standing, said = parts(known)
    if not less(standing, order) then return false end
    redis.call('HSET', key, field, value)
    return 'later', said ~= sense
  end
  redis.call('HSET', key, field, value)
  return 'new', true
end
"""
)

LEARN = Script(
    _BEATS
    + _TICK
    + """
local stood, moved, turned = {}, false, false
for i = 1, #ARGV, 2 do
  local outcome, otherwise = learn(KEYS[1], ARGV[i], ARGV[i + 1])
  if outcome then
    stood[#stood + 1] = (i - 1) / 2
    turned = turned or otherwise
  end
end
if turned then redis.call('SET', KEYS[2], string.format('%.0f', tick(KEYS[2]))) end
return stood
"""
)
"""KEYS: facts, their generation. ARGV: key, content (see redis.weighed), ... Gives which of them stand now, from 0."""

REACT = Script(
    _BEATS
    + """
local stood, added = {}, 0
for i = 1, #ARGV, 4 do
  local key = KEYS[tonumber(ARGV[i])]
  redis.call('SADD', KEYS[1], ARGV[i + 1])
  local outcome = learn(key, ARGV[i + 2], ARGV[i + 3])
  if outcome then stood[#stood + 1] = (i - 1) / 4 end
  if outcome == 'new' then added = added + 1 end
end
if added > 0 then redis.call('HINCRBY', KEYS[2], 'reactions', added) end
return stood
"""
)
"""KEYS: messages with reactions, counts, then the reactions of each. ARGV: which KEY, message id, key, content, ..."""

UNLEARN = Script(
    _TICK
    + """
local gone = 0
for i = 1, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    if ARGV[i + 2] == '' then redis.call('HDEL', KEYS[1], ARGV[i])
    else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
    gone = gone + 1
  end
end
if gone > 0 then redis.call('SET', KEYS[2], string.format('%.0f', tick(KEYS[2]))) end
"""
)
"""KEYS: facts, their generation. ARGV: key, content that is to go, what is left of it (may be empty), ...

What was learnt meanwhile stays.
"""

UNREACT = Script(
    _ID
    + """
local gone, at = 0, 1
for k = 3, #KEYS do
  local last = at + tonumber(ARGV[at])
  gone = gone + redis.call('HDEL', KEYS[k], unpack(ARGV, at + 1, last))
  if redis.call('EXISTS', KEYS[k]) == 0 then redis.call('SREM', KEYS[1], id(KEYS[k])) end
  at = last + 1
end
if gone > 0 then redis.call('HINCRBY', KEYS[2], 'reactions', -gone) end
"""
)
"""KEYS: messages with reactions, counts, then the reactions of each. ARGV for each: how many, then key, ..."""

TURN = Script(_TICK + "redis.call('SET', KEYS[1], string.format('%.0f', tick(KEYS[1])))")
"""KEYS: the generation of facts or of a grouping, which moves on."""

GROUP = Script(
    _TICK
    + """
if (redis.call('GET', KEYS[2]) or '0') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], string.format('%.0f', tick(KEYS[2])))
return 1
"""
)
"""KEYS: grouping, its generation. ARGV: the generation that it follows, the grouping. Gives 1 if it is kept."""

UNGROUP = Script(
    _TICK
    + """
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], string.format('%.0f', tick(KEYS[2])))
"""
)
"""KEYS: grouping, its generation."""

_MARK = """
local function parts(value)
  local generation, since, ts, uid = string.match(value, '^(%d+) (%d+) (-?%d+) (.*)$')
  return generation, since, ts, uid
end
"""

MARK = Script(
    _LESS
    + _TICK
    + _MARK
    + """
local till = ARGV[1]
local generation = tick(KEYS[4]) - 1
for i = 2, #ARGV, 3 do
  generation = generation + 1
  local number = string.format('%.0f', generation)
  local known = redis.call('HGET', KEYS[1], ARGV[i])
  local since, ts, uid = number, ARGV[i + 1], ARGV[i + 2]
  if known then
    local _, before, other, id = parts(known)
    since = before
    local earlier, later = tonumber(other), tonumber(ts)
    if earlier < later or (earlier == later and less(id, uid)) then ts, uid = other, id end
  end
  if till ~= '' then
    redis.call('ZREM', KEYS[2], ARGV[i])
    redis.call('ZADD', KEYS[3], till, ARGV[i])
  elseif not redis.call('ZSCORE', KEYS[3], ARGV[i]) then
    redis.call('ZADD', KEYS[2], since, ARGV[i])
  end
  redis.call('HSET', KEYS[1], ARGV[i], number .. ' ' .. since .. ' ' .. ts .. ' ' .. uid)
end
redis.call('SET', KEYS[4], string.format('%.0f', generation))
"""
)
"""KEYS: marks, those that are free, those that are held, the last generation.

ARGV: until when they rest (empty: they do not), then sequence, ts, uid, ...
"""

DUE = Script(
    _MARK
    + """
local limit, now, till = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local ended = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, math.max(limit, 1000))
local free = redis.call('ZRANGE', KEYS[2], 0, limit - 1)
local names, marks, order = {}, {}, {}
for _, several in ipairs({ended, free}) do
  for _, name in ipairs(several) do
    local mark = redis.call('HGET', KEYS[1], name)
    if mark then
      local _, since = parts(mark)
      names[#names + 1], marks[name], order[name] = name, mark, tonumber(since)
    else
      redis.call('ZREM', KEYS[2], name)
      redis.call('ZREM', KEYS[3], name)
    end
  end
end
table.sort(names, function(a, b) return order[a] < order[b] end)
local found = {}
for i = 1, math.min(limit, #names) do
  found[2 * i - 1], found[2 * i] = names[i], marks[names[i]]
  if till then
    redis.call('ZREM', KEYS[2], names[i])
    redis.call('ZADD', KEYS[3], till, names[i])
  end
end
if till then
  for i = limit + 1, #names do
    if redis.call('ZREM', KEYS[3], names[i]) == 1 then
      redis.call('ZADD', KEYS[2], string.format('%.0f', order[names[i]]), names[i])
    end
  end
end
return found
"""
)
"""KEYS: marks, free, held. ARGV: limit (at least 1), now, held until (none for a look). Gives sequence, mark, ...

Where rests of more than so many end at once, those come first that ended first: all of them would take too long.
"""

HOLD = Script(
    _MARK
    + """
for i = 2, #ARGV, 4 do
  local mark = redis.call('HGET', KEYS[1], ARGV[i])
  local generation, since
  if mark then generation, since = parts(mark) end
  if generation == ARGV[i + 1] then
    redis.call('HSET', KEYS[1], ARGV[i], generation .. ' ' .. since .. ' ' .. ARGV[i + 2] .. ' ' .. ARGV[i + 3])
    redis.call('ZREM', KEYS[2], ARGV[i])
    redis.call('ZADD', KEYS[3], ARGV[1], ARGV[i])
  elseif mark and redis.call('ZREM', KEYS[3], ARGV[i]) == 1 then
    redis.call('ZADD', KEYS[2], since, ARGV[i])
  end
end
"""
)
"""KEYS: marks, free, held. ARGV: until, then sequence, generation, ts, uid, ..."""

SETTLE = Script(
    _MARK
    + """
local gone = {}
for i = 1, #ARGV, 2 do
  local mark = redis.call('HGET', KEYS[1], ARGV[i])
  local generation, since
  if mark then generation, since = parts(mark) end
  if not mark then
    gone[#gone + 1] = (i - 1) / 2
  elseif generation == ARGV[i + 1] then
    redis.call('HDEL', KEYS[1], ARGV[i])
    redis.call('ZREM', KEYS[2], ARGV[i])
    redis.call('ZREM', KEYS[3], ARGV[i])
  elseif redis.call('ZREM', KEYS[3], ARGV[i]) == 1 then
    redis.call('ZADD', KEYS[2], since, ARGV[i])
  end
end
return gone
"""
)
"""KEYS: marks, free, held. ARGV: sequence, generation, ... Gives which of them had no mark any more, from 0."""

REDACT = Script("""
local at = 1
for k = 1, #KEYS do
  local last = at + tonumber(ARGV[at])
  for i = at + 1, last do redis.call('HSET', KEYS[k], ARGV[i], redis.call('HINCRBY', KEYS[k], '', 1)) end
  at = last + 1
end
""")
"""KEYS: redactions of sequences; the nameless field is the serial. ARGV for each: how many leaves, leaf, ..."""

WORD = Script("""
local kept, at = {}, 1
for k = 3, #KEYS do
  local last = at + 3 * tonumber(ARGV[at])
  local newest = tonumber(redis.call('HGET', KEYS[k], '') or '0')
  for i = at + 1, last, 3 do
    local stands = newest == tonumber(ARGV[i]) and redis.call('HEXISTS', KEYS[1], ARGV[i + 1]) == 1
    if stands then redis.call('HSET', KEYS[2], ARGV[i + 1], ARGV[i + 2]) end
    kept[#kept + 1] = stands and 1 or 0
  end
  at = last + 1
end
return kept
""")
"""KEYS: summaries, wordings, then the redactions of each sequence.

ARGV for each: how many wordings, then serial, node, wording, ... Gives 1 for each that is kept, 0 for others.
"""

ADVANCE = Script("""
for i = 1, #ARGV, 2 do
  local known = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '0')
  if tonumber(ARGV[i + 1]) > known then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
""")
"""KEYS: the offsets of one name. ARGV: partition, position, ..."""

STRUCTURE = (
    *(REGISTER, PLACE, ENTER, LIST, LINK, LEARN, REACT, TURN, MARK, REDACT),
    *(WITHDRAW, UNPLACE, UNLINK, STRIKE, UNLEARN, UNREACT, MARKED),
    *(FIELDS, STANDS, RANKS, LEAVES, *EACH.values(), DUE, HOLD, SETTLE, WORD, GROUP, UNGROUP, ADVANCE),
)
"""All that the structure store runs."""
