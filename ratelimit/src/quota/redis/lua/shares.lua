
-- Fair shares of an application's bucket -------------------------------------------------------------------------------
-- Of all tenants together, in field "=": slot slot_ms capacity level next_level wanted tenants until
--   level is λ or false; wanted is what all tenants want, kept as a sum; until is when the key was last told to expire.
-- Of each tenant: weight floor ceiling behind taken interactive sum wants (holder, demand, at, …); ceiling may be false,
-- sum is what its holders want together.
-- A call reads and writes its own tenant's alone. All of them are read where a slot begins, and where λ is found: no more
-- often than the pure centre's pace allows.

local shares = {}

local HEAD_FORM, TENANT_FORM, WANT_FORM = '<I7I4I7dI7dI4I7', '<HI7dI7I7I7I7B', '<c32I6I6'
local TENANT_BYTES, WANT_BYTES = 46, 44
-- The same as TENANT_FORM, with taken between them.
local TO_TAKEN_FORM, FROM_TAKEN_FORM = '<HI7dI7', '<I7I7B'

-- What may be false is −1 in bytes.
local function read_tenant(bytes)
  local weight, least, ceiling, behind, taken, interactive, _, count, at = read(TENANT_FORM, bytes)
  local wants = {}
  for place = 1, 3 * count, 3 do
    wants[place], wants[place + 1], wants[place + 2], at = read(WANT_FORM, bytes, at)
  end
  return {
    weight = weight, floor = least, ceiling = ceiling >= 0 and ceiling, behind = behind, taken = taken,
    interactive = interactive, wants = wants,
  }
end

local function write_tenant(t)
  local wants, sum = t.wants, 0
  for at = 2, #wants, 3 do sum = sum + wants[at] end
  local bytes = write(TENANT_FORM, t.weight, t.floor, t.ceiling or -1, t.behind, t.taken, t.interactive, sum, #wants / 3)
  for at = 1, #wants, 3 do bytes = bytes .. write(WANT_FORM, wants[at], wants[at + 1], wants[at + 2]) end
  return bytes
end

function shares.new(key, name)
  return {
    key = key, name = name, slot = 0, slot_ms = 0, capacity = 0, level = false, next_level = 0,
    wanted = 0, tenants = 0, until_ms = 0, own = false,
  }
end

-- The shares as one tenant sees them; nil where there are none.
function shares.load(key, name)
  local raw = call('HMGET', key, '=', name)
  if not raw[1] then return nil end
  local s = shares.new(key, name)
  s.slot, s.slot_ms, s.capacity, s.level, s.next_level, s.wanted, s.tenants, s.until_ms =
    read(HEAD_FORM, raw[1])
  if s.level < 0 then s.level = false end
  s.own = raw[2] and read_tenant(raw[2])
  return s
end

function shares.save(s, now)
  local expires = now + SHARES_MS > s.until_ms
  if expires then s.until_ms = now + 2 * SHARES_MS end
  local head = write(HEAD_FORM, s.slot, s.slot_ms, s.capacity, s.level or -1, s.next_level, s.wanted, s.tenants,
    s.until_ms)
  if s.own then
    call('HSET', s.key, '=', head, s.name, write_tenant(s.own))
  else
    call('HSET', s.key, '=', head)
  end
  if expires then call('PEXPIRE', s.key, 2 * SHARES_MS) end
end

local function wanted_of(t)
  local units = 0
  for at = 2, #t.wants, 3 do units = units + t.wants[at] end
  return min(units, t.ceiling or EXACT)
end

-- Thousandths of a unit per second, or of a slot; nil where nothing bounds it.
local function per_second(t, level)
  if not level then return t.ceiling or nil end
  return min(max(level * t.weight, t.floor), t.ceiling or EXACT)
end

local function allowance(t, level, slot_ms)
  local rate = per_second(t, level)
  if not rate then return nil end
  return (muldiv(rate, slot_ms, 1000))
end

-- Remembers what a tenant wants. False if there are too many tenants.
function shares.want(s, holder, ask, demand, now)
  local t = s.own
  if not t then
    if s.tenants >= TENANTS_MAX then return false end
    t = { behind = 0, taken = 0, interactive = 0, wants = {} }
    s.own, s.tenants = t, s.tenants + 1
  else
    s.wanted = s.wanted - wanted_of(t)
  end
  t.weight, t.floor, t.ceiling = ask.weight, ask.floor, ask.ceiling
  if ask.interactive then t.interactive = now end
  local wants, place, oldest = t.wants, nil, nil
  for at = 1, #wants, 3 do
    if wants[at] == holder then place = at end
    if not oldest or wants[at + 2] < wants[oldest + 2] then oldest = at end
  end
  if not place then place = #wants >= 3 * WANTS_MAX and oldest or #wants + 1 end
  wants[place], wants[place + 1], wants[place + 2] = holder, demand, now
  s.wanted = s.wanted + wanted_of(t)
  return true
end

-- All tenants by name, the own one as it is in memory.
local function everybody(s)
  local flat, all = call('HGETALL', s.key), {}
  for at = 1, #flat, 2 do
    if flat[at] ~= '=' then all[flat[at]] = read_tenant(flat[at + 1]) end
  end
  all[s.name] = s.own or nil
  return all
end

local function by_bend(one, other)
  if one[1] ~= other[1] then return one[1] < other[1] end
  return one[2] < other[2]
end

-- The largest λ at which all claims together are within capacity.
local function level_of(all, capacity)
  local bends, total = {}, 0
  for _, t in pairs(all) do
    local most, weight = wanted_of(t), max(t.weight, 1)
    local least = min(t.floor, most)
    bends[#bends + 1] = { div_ceil(least, weight), weight }
    bends[#bends + 1] = { div_ceil(most, weight), -weight }
    total = total + least
  end
  table.sort(bends, by_bend)
  local at, slope = 0, 0
  for _, bend in ipairs(bends) do
    local rise = (bend[1] - at) * max(slope, 0)
    if total + rise > capacity then break end
    total, at, slope = total + rise, bend[1], slope + bend[2]
  end
  if slope > 0 then return at + div(less(capacity, total), slope) end
  return at
end

-- Goes on to another slot: everybody's. How much was taken in the last one.
local function begin_slot(s, all, slot, slot_ms, now)
  local passed = slot_ms == s.slot_ms and less(slot, s.slot) or 1
  local gone, changed = {}, {}
  s.slot, s.slot_ms = slot, slot_ms
  s.wanted, s.tenants = 0, 0
  local taken = 0
  for name, t in pairs(all) do
    local kept = {}
    taken = taken + t.taken
    for at = 1, #t.wants, 3 do
      if t.wants[at + 2] + DEMAND_MS > now then
        kept[#kept + 1], kept[#kept + 2], kept[#kept + 3] = t.wants[at], t.wants[at + 1], t.wants[at + 2]
      end
    end
    local due = allowance(t, s.level, slot_ms)
    local behind = due and less(t.behind + t.taken, due * passed) or 0
    local is_changed = behind ~= t.behind or t.taken ~= 0 or #kept ~= #t.wants
    t.wants, t.behind, t.taken = kept, behind, 0
    if #kept == 0 and behind == 0 then
      gone[#gone + 1], all[name] = name, nil
      if name == s.name then s.own = false end
    else
      s.wanted, s.tenants = s.wanted + wanted_of(t), s.tenants + 1
      if is_changed and name ~= s.name then
        changed[#changed + 1], changed[#changed + 2] = name, write_tenant(t)
      end
    end
  end
  -- In parts: a call takes only so many arguments.
  for at = 1, #gone, 1000 do call('HDEL', s.key, unpack(gone, at, min(at + 999, #gone))) end
  for at = 1, #changed, 1000 do call('HSET', s.key, unpack(changed, at, min(at + 999, #changed))) end
  return taken
end

-- Goes to the slot of this moment, in which capacity(b, unclaimed, now) may be granted.
function shares.turn(s, slot_ms, capacity, b, now)
  local slot, all = div(now, slot_ms), nil
  if slot ~= s.slot or slot_ms ~= s.slot_ms then
    all = everybody(s)
    local taken = begin_slot(s, all, slot, slot_ms, now)
    s.capacity, s.level = capacity(b, less(s.capacity, taken), now), false
  end
  if floor(s.wanted * slot_ms / 1000) <= s.capacity then return end
  if s.level and now < s.next_level then return end
  s.level = level_of(all or everybody(s), div(s.capacity * 1000, slot_ms))
  s.next_level = now + max(div(s.tenants, 16), div(slot_ms, 16))
end

-- Thousandths of a unit that the tenant may still take in this slot; nil where nothing bounds it.
function shares.left(s, interactive, now)
  if not s.own then return nil end
  local due, kept = allowance(s.own, s.level, s.slot_ms), 0
  if not due then return nil end
  if not interactive and s.own.interactive + DEMAND_MS > now then
    kept = div(due * RESERVE_PERCENT, 100)
  end
  return less(due, s.own.behind + s.own.taken + kept)
end

function shares.level(s) return s.own and per_second(s.own, s.level) or nil end

-- Until a later slot has something for the tenant.
function shares.retry(s, now)
  local next_ms = max((s.slot + 1) * s.slot_ms - now, 1)
  if not s.own then return next_ms end
  local due = max(allowance(s.own, s.level, s.slot_ms) or 0, 1)
  local slots = less(div(s.own.behind + s.own.taken, due), 1)
  return next_ms + min(slots * s.slot_ms, AHEAD_MS_MAX)
end

function shares.take(s, units)
  if s.own then s.own.taken = s.own.taken + units * 1000 end
end

function shares.give_back(s, units)
  if s.own then s.own.taken = less(s.own.taken, units * 1000) end
end
