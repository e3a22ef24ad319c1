
-- The steady case ------------------------------------------------------------------------------------------------------
-- An acquire of buckets and entries that are there, of rates, under rules that are known, in windows and slots of shares
-- that go on, with nothing parked, lost, late or due: nearly every one. It does what the general way does (ops.lua), bit by
-- bit, on numbers in local variables instead of tables of them, and writes the bytes that change: less than half of the
-- time. Whatever is not steady is nil here, nothing is written then, and the general way is gone from the beginning.
--
-- A leg is a call that makes the next leg's: what it reads and plans on the way in, it counts on the way out, when it is
-- known that all legs are granted, or that one is denied.

local steady = {}

-- By kind of meter: what may be granted, as meter.room, and the meter at this moment. Nil where it is not steady, else
--   units ttl   or   0 ms why,   then one two three four of the meter, where its parts begin in bytes, and how many
local room = {}

room[WINDOW] = function(r, now, cap, credit, _, start, stop, used)
  if now < start or now >= stop then return nil end
  local open, close = start + r.skew, less(stop, r.guard + r.skew)
  if now < open then return 0, open - now, 'guard', start, stop, used, 0, 0, 0 end
  if now >= close then return 0, stop + r.skew - now, 'guard', start, stop, used, 0, 0, 0 end
  return less(cap + credit, used), min(r.lease, close - now), nil, start, stop, used, 0, 0, 0
end

-- The part that units of that time are in: its place and units, if it still counts.
local function part_in(bytes, first, parts, r, granted)
  local place, found, units
  for at = first + (parts - 1) * PART_BYTES, first, -PART_BYTES do
    local ends, count = read(PART_FORM, bytes, at)
    if ends <= granted then break end
    place, found, units = at, ends, count
  end
  if place and found <= granted + 2 * r.slot then return place, units end
  return nil
end

room[SLOTS] = function(r, now, cap, credit, granted, previous, stop, counted, _, bytes, first, parts)
  local from = less(now, r.window)
  if r.kind == ANCHORED and stop ~= 0 then from = max(from, stop <= now and stop or less(stop, r.a)) end
  while parts > 0 do
    local ends, units = read(PART_FORM, bytes, first)
    if ends + r.late > from then break end
    counted, first, parts = counted - units, first + PART_BYTES, parts - 1
  end
  local credited = 0
  if credit > 0 then
    local place, units = part_in(bytes, first, parts, r, granted)
    credited = place and min(units, credit) or 0
  end
  return less(cap + credited, counted), r.lease, nil, previous, stop, counted, 0, first, parts
end

room[DEBT] = function(r, now, cap, credit, granted, owed, at, unit, clear)
  local per_ms = r.per_ms
  if unit ~= r.unit then return nil end
  if owed > 0 then
    local drained = less(now, at) * per_ms
    if drained >= owed then clear = at + div_ceil(owed, per_ms) end
    owed = less(owed, drained)
  end
  local left = owed
  if credit > 0 then left = owed - min(less(credit * unit, less(now, granted) * per_ms), owed) end
  local units = floor(less(min(r.most, cap * unit), left) / unit)
  if owed == 0 and less(now, clear) >= r.late then units = max(units, cap) end
  return units, r.lease, nil, owed, now, unit, clear, 0, 0
end

-- By kind of meter: counts units that are granted, and takes off what is counted anew: one two three four, and the bytes
-- of the parts and how many, where there are any.
local count = {}

count[WINDOW] = function(_, _, units, credit, _, start, stop, used)
  return start, stop, sat(less(used, credit) + units), 0, '', 0
end

count[SLOTS] = function(r, now, units, credit, granted, previous, stop, counted, _, bytes, first, parts)
  if credit > 0 then
    local place, there = part_in(bytes, first, parts, r, granted)
    if place then
      local left = less(there, credit)
      counted = counted - there + left
      bytes = sub(bytes, first, place - 1) .. (left > 0 and write(PART_FORM, (read('<I7', bytes, place)), left) or '') ..
        sub(bytes, place + PART_BYTES)
      if left == 0 then parts = parts - 1 end
      first = 1
    end
  end
  if units == 0 then return previous, stop, counted, 0, sub(bytes, first), parts end
  local ends, last = (floor(now / r.slot) + 1) * r.slot, #bytes - PART_BYTES + 1
  if parts > 0 then
    local last_ends, there = read(PART_FORM, bytes, last)
    if last_ends >= ends then
      local kept = sub(bytes, first, last - 1)
      return previous, stop, counted + units, 0, kept .. write(PART_FORM, last_ends, there + units), parts
    end
  end
  return previous, stop, counted + units, 0, sub(bytes, first) .. write(PART_FORM, ends, units), parts + 1
end

count[DEBT] = function(r, now, units, credit, granted, owed, at, unit, clear)
  if credit > 0 then owed = owed - min(less(credit * unit, less(now, granted) * r.per_ms), owed) end
  if owed == 0 then clear = at end
  return sat(owed + units * unit), at, unit, clear, '', 0
end

-- How many holders have leases, this one counted.
local function holders_in(bytes, holders, own, now)
  local live = 1
  for at = HOLDERS_AT, HOLDERS_AT + (holders - 1) * HOLDER_BYTES, HOLDER_BYTES do
    if at ~= own and read('<I6', bytes, at + 32) > now then live = live + 1 end
  end
  return live
end

-- Where something of so many bytes is in a row of others; nil where it is not.
local function place_of(what, bytes, first, size, many)
  local at = find(bytes, what, first, true)
  if at and (at - first) % size == 0 and at < first + size * many then return at end
  return nil
end

-- The tenant's share: nil where it is not steady; else what is left of it or false, in how many ms to ask again, and what
-- is kept: head and tenant as far as taken, taken, and the rest.
function steady.share(key, r, ask, demand, now)
  local raw, holder = call('HMGET', key, '=', ask.tenant), ask.holder
  local head, own = raw[1], raw[2]
  if not head or not own then return nil end
  local slot, slot_ms, capacity, level, next_level, wanted, tenants, until_ms = read(HEAD_FORM, head)
  local weight, least, ceiling, behind, taken, interactive, sum, wants = read(TENANT_FORM, own)
  if floor(now / slot_ms) ~= slot or slot_ms ~= r.share_slot or now + SHARES_MS > until_ms then return nil end
  local place = place_of(holder, own, TENANT_BYTES + 1, WANT_BYTES, wants)
  if not place then return nil end
  wanted = wanted - min(sum, ceiling >= 0 and ceiling or EXACT)
  sum = sum - read('<I6', own, place + 32) + demand
  weight, least, ceiling = ask.weight, 0, -1
  if ask.floor > 0 then least = muldiv(r.rate, ask.floor, 1000) end
  if ask.ceiling < 1000 then ceiling = max(muldiv(r.rate, ask.ceiling, 1000), 1) end
  local most = ceiling >= 0 and ceiling or EXACT
  wanted = wanted + min(sum, most)
  if floor(wanted * slot_ms / 1000) > capacity and (level < 0 or now >= next_level) then return nil end
  if ask.interactive then interactive = now end
  local left, retry = false, 0
  local rate = level < 0 and ceiling or min(max(level * weight, least), most)
  if rate >= 0 then
    local due = muldiv(rate, slot_ms, 1000)
    local kept = (ask.interactive or interactive + DEMAND_MS <= now) and 0 or floor(due * RESERVE_PERCENT / 100)
    left = less(due, behind + taken + kept)
    if left == 0 then
      local slots = less(floor((behind + taken) / max(due, 1)), 1)
      retry = max((slot + 1) * slot_ms - now, 1) + min(slots * slot_ms, AHEAD_MS_MAX)
    end
  end
  return left, retry, taken, write(HEAD_FORM, slot, slot_ms, capacity, level, next_level, wanted, tenants, until_ms),
    write(TO_TAKEN_FORM, weight, least, ceiling, behind),
    write(FROM_TAKEN_FORM, interactive, sum, wants) .. sub(own, TENANT_BYTES + 1, place + 31) ..
      write('<I6I6', demand, now) .. sub(own, place + WANT_BYTES)
end

-- The longest of what is denied.
local function later(no, at, retry, why)
  if no and no.retry >= retry then return no end
  return { at = at, retry = retry, why = why }
end

-- Until there would be room: not often asked, and so by the general way.
local function retry_in(r, now, cap, units, one, two, three, four, bytes, first, parts)
  local m = meter.read(r.meter, one, two, three, four)
  for at = first, first + (parts - 1) * PART_BYTES, PART_BYTES do
    m.parts[#m.parts + 1], m.parts[#m.parts + 2] = read(PART_FORM, bytes, at)
  end
  return meter.retry(m, r, cap, units, now)
end

-- Units that are kept for interactive calls, where there are any.
local function reserve_of(r, whole, start, stop, now)
  local kept = floor(whole * RESERVE_PERCENT / 100)
  if r.meter ~= WINDOW then return kept end
  local open, close = start + r.skew, less(stop, r.guard + r.skew)
  return (min((muldiv(kept, less(close, now), max(less(close, open), 1))), kept))
end

-- Until when anything of a bucket matters once so many units are granted: as keep (save.lua), or a little later.
local function matters_until(r, now, units, one, two, four)
  local fences = now + FENCE_MS + r.lease
  if r.meter == WINDOW then return max(fences, two) end
  local told = max(fences, now + 2 * r.memory)
  if r.meter == SLOTS then return told end
  return max(told, now + div_ceil(one + units * r.unit, r.per_ms) + r.late, four + r.late)
end

-- The leg `at` and those that follow, whose keys begin at `key`: their leases as bytes; or nil and what is denied; or nil.
function steady.legs(at, key, keys, args, now, since, ask, no)
  local told = args[at + 3]
  if not told then
    if no then return nil, no end
    return ''
  end
  local b, shares_key = keys[key], keys[key + 2]
  local is_app = shares_key and find(shares_key, '}:s:', 1, true)
  local raw, rule_bytes = call('HMGET', b, 'm', ask.field), sub(told, 1, RULE_BYTES)
  local r, bytes, own = rule.read(rule_bytes), raw[1], raw[2]
  if not own or not bytes or not r.is_rate or sub(bytes, 1, RULE_BYTES) ~= rule_bytes or
     sub(bytes, COLD_AT, HOLDERS_AT - 1) ~= QUIET then return nil end
  local seq, least, want, unspent, demand, told_wid, told_units, told_before, heard = read(LEG_FORM, told, RULE_BYTES + 1)
  local gen, touched, interactive, seen, seen_until, void, next_look, until_ms, one, two, three, four, holders, parts =
    read(HOT_FORM, bytes, RULE_BYTES + 1)
  local last_seq, settle_seq, units, closed, last_gen, granted, ttl, wid, tally, before, credited, _, look =
    read(ENTRY_FORM, own)
  if since + r.lease > now or touched > now or now >= next_look or heard > gen or seq <= last_seq or last_gen < void or look == 0 or
     told_wid ~= wid or told_units > tally or told_before > before or least > r.burst then return nil end
  if r.meter == WINDOW and wid > now then return nil end
  local own_at = place_of(ask.holder, bytes, HOLDERS_AT, HOLDER_BYTES, holders)
  if not own_at then return nil end
  -- What may be granted.
  local cap, continuous = r.burst, r.continuous
  if seen > 0 then
    if seen_until <= now then seen = 0 else cap = min(cap, seen - 1) end
  end
  if ask.interactive then interactive = now end
  local wid_now = continuous and floor(now / r.memory) or one
  local credit = 0
  if unspent > 0 and closed == 0 and last_gen == gen and unspent <= units and (continuous or wid == wid_now) and
     credited + unspent <= tally then credit = unspent end
  local free, lease, why, first
  free, lease, why, one, two, three, four, first, parts = room[r.meter](r, now, cap, credit, granted, one, two, three,
    four, bytes, HOLDERS_AT + holders * HOLDER_BYTES, parts)
  if not free then return nil end
  local needed = max(least, credit, want > 0 and 1 or 0)
  local fresh = needed - credit
  local live = holders > 1 and holders_in(bytes, holders, own_at, now) or 1
  local whole = r.kind == BUCKET and min(r.whole, cap) or cap
  local most = min(want, free, max(floor(floor(whole * BLOCK_PERCENT / 100) / live), 1, needed))
  if why then
    no = later(no, at, lease, why)
  elseif free < needed then
    no = later(no, at, retry_in(r, now, cap, fresh, one, two, three, four, bytes, first, parts), 'exhausted')
  elseif not ask.interactive and not is_app and interactive > 0 and interactive + r.span > now then
    local left = less(free, reserve_of(r, whole, one, two, now))
    if left < needed and fresh > 0 then
      no = later(no, at, min(retry_in(r, now, cap, needed, one, two, three, four, bytes, first, parts), 1000), 'reserved')
      why = true
    end
    most = min(most, max(left, needed))
  end
  local left, retry, taken, head, to_taken, from_taken
  if is_app then
    left, retry, taken, head, to_taken, from_taken = steady.share(shares_key, r, ask, demand, now)
    if left == nil then return nil end
    if left and not why and free >= needed then
      if left == 0 and fresh > 0 then no = later(no, at, retry, 'share') end
      most = min(most, max(credit + div_ceil(left, 1000), needed))
    end
  end
  most = max(most, needed)
  if matters_until(r, now, most, one, two, four) > until_ms or seen > 0 and seen_until > until_ms then return nil end

  -- What is granted, once the others are known.
  local leases, denied = steady.legs(at + 1, is_app and key + 3 or key + 2, keys, args, now, since, ask, no)
  if leases then
    local rest
    one, two, three, four, rest, parts = count[r.meter](r, now, most, credit, granted, one, two, three, four, bytes,
      first, parts)
    credited = credited + credit
    if wid ~= wid_now then
      before = continuous and wid + 1 == wid_now and tally or 0
      wid, tally, credited = wid_now, 0, 0
    end
    tally = tally + most
    local ends = max(read('<I6', bytes, own_at + 32), now + lease)
    call('HSET', b,
      'm', rule_bytes .. write(HOT_FORM, gen, now, interactive, seen, seen_until, void, next_look, until_ms, one, two,
        three, four, holders, parts) .. sub(bytes, COLD_AT, own_at + 31) .. write('<I6', ends) ..
        sub(bytes, own_at + HOLDER_BYTES, HOLDERS_AT + holders * HOLDER_BYTES - 1) .. rest,
      ask.field, write(ENTRY_FORM, seq, settle_seq, most, 0, gen, now, lease, wid, tally, before, credited, 0, look))
    leases = write(LEASE_FORM, most, lease, gen, wid, tally, before) .. leases
    if is_app then taken = taken + (most - credit) * 1000 end
  elseif denied then
    call('HSET', b, 'm', rule_bytes .. write(HOT_FORM, gen, now, interactive, seen, seen_until, void, next_look, until_ms,
      one, two, three, four, holders, parts) .. sub(bytes, COLD_AT, HOLDERS_AT + holders * HOLDER_BYTES - 1) ..
      (parts > 0 and sub(bytes, first) or ''))
  else
    return nil
  end
  if is_app then call('HSET', shares_key, '=', head, ask.tenant, to_taken .. write('<I7', taken) .. from_taken) end
  return leases, denied
end
