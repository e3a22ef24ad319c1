
-- Buckets --------------------------------------------------------------------------------------------------------------
-- As the pure centre's, and
--   holders   holder, end, …: until when each has leases, to divide blocks by
--   era       the gen since which slots of concurrency are counted; 0 of rates. Entries of another era hold none
--   void      leases of a gen before this are closed: a reset
--   next_look when the first of z has to be looked at
--   until_ms  until when its keys were told to live

local bucket = {}

-- Behind the RULE: what changes with every ask: gen touched interactive seen seen_until void next_look until; meter; how
-- many holders and parts there are
local HOT_FORM = '<I7I6I6I4I6I7I7I7I7I7I7I7HB'
-- what hardly ever does: era; release, all 0 where there is none
local COLD_FORM = '<I7I6BHI6I6'
local COLD_AT, HOLDERS_AT = RULE_BYTES + 82, RULE_BYTES + 110
local QUIET = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
-- holders and parts.
local HOLDER_FORM, PART_FORM = '<c32I6', '<I7I7'
local HOLDER_BYTES, PART_BYTES = 38, 14
local WHY = { 'provider', 'exhausted', 'operator', provider = 1, exhausted = 2, operator = 3 }

-- All that a bucket may have: a table that is made with its fields is made faster.
local function blank_bucket(place, lessee)
  return {
    place = place, lessee = lessee, is_app = place.s, is_there = false, is_new = false,
    rule = false, gen = 0, touched = 0, interactive = 0, seen = false, seen_until = 0, era = 0, void = 0,
    next_look = NEVER, until_ms = 0, holders = false, meter = false, release = false,
    entries = {}, dirty = {}, looked = false, is_cut = false, tenants = false, shares = false, shares_dirty = false,
    announces = false,
  }
end

local function read_bucket(b, bytes)
  local one, two, three, four, holders, parts, park, why, alpha, clean, paced, at
  b.is_there = true
  b.rule = rule.read(sub(bytes, 1, RULE_BYTES))
  b.gen, b.touched, b.interactive, b.seen, b.seen_until, b.void, b.next_look, b.until_ms,
    one, two, three, four, holders, parts = read(HOT_FORM, bytes, RULE_BYTES + 1)
  b.era, park, why, alpha, clean, paced, at = read(COLD_FORM, bytes, COLD_AT)
  -- A limit of 0 is one, too.
  b.seen = b.seen > 0 and b.seen - 1
  b.meter = meter.read(b.rule.meter, one, two, three, four)
  if why > 0 then b.release = { until_ms = park, why = WHY[why], alpha = alpha, clean = clean, paced = paced } end
  local list = {}
  for place = 1, 2 * holders, 2 do list[place], list[place + 1], at = read(HOLDER_FORM, bytes, at) end
  b.holders = list
  list = b.meter.parts
  for place = 1, 2 * parts, 2 do list[place], list[place + 1], at = read(PART_FORM, bytes, at) end
end

local function write_bucket(b)
  local l, m, holders = b.release, b.meter, b.holders
  local one, two, three, four = meter.write(m)
  local parts = m.parts and #m.parts / 2 or 0
  local pieces = {
    b.rule.bytes,
    write(HOT_FORM, b.gen, b.touched, b.interactive, b.seen and b.seen + 1 or 0, b.seen_until, b.void, b.next_look,
      b.until_ms, one, two, three, four, #holders / 2, parts),
    write(COLD_FORM, b.era,
      l and l.until_ms or 0, l and WHY[l.why] or 0, l and l.alpha or 0, l and l.clean or 0, l and l.paced or 0),
  }
  for at = 1, #holders, 2 do pieces[#pieces + 1] = write(HOLDER_FORM, holders[at], holders[at + 1]) end
  for at = 1, 2 * parts, 2 do pieces[#pieces + 1] = write(PART_FORM, m.parts[at], m.parts[at + 1]) end
  return concat(pieces)
end

-- Takes what is stored, with one lessee's entry if there is one; b.is_there says whether there is anything.
-- place: { b, z, s or nil }: an app's has shares
function bucket.load(place, lessee)
  local b = blank_bucket(place, lessee)
  if not lessee then
    local bytes = call('HGET', place.b, 'm')
    if bytes then read_bucket(b, bytes) end
    return b
  end
  local raw = call('HMGET', place.b, 'm', lessee.field)
  if raw[1] then read_bucket(b, raw[1]) end
  if raw[2] then b.entries[lessee.field] = entry.read(raw[2]) end
  return b
end

function bucket.make(b, r, now)
  b.is_new = true
  b.rule, b.gen, b.touched, b.interactive = r, now, now, 0
  b.seen, b.seen_until, b.era, b.void, b.next_look, b.until_ms = false, 0, 0, 0, NEVER, 0
  b.holders, b.meter = {}, meter.new(r)
  if r.kind == CONCURRENCY then b.era = now end
end

-- Voids every lease, and says so.
function bucket.fence(b, now)
  b.gen = max(now, b.gen + 1)
  b.announces = true
end

function bucket.wid(b, now) return meter.wid(b.meter, b.rule, now) end

local function entry_at(b, field)
  local e = b.entries[field]
  if e == nil then
    local raw = call('HGET', b.place.b, field)
    e = raw and entry.read(raw) or false
    b.entries[field] = e
  end
  return e or nil
end

-- Slots that an entry holds: none of another era.
local function slots_in(b, e)
  if e.era == b.era then return e.units end
  return 0
end

-- Counts a lessee's slots as so many, in the bucket and with its tenant.
local function set_slots(b, field, e, units)
  local change = units - slots_in(b, e)
  e.units, e.era = units, b.era
  if change == 0 then return end
  b.meter.held = max(b.meter.held + change, 0)
  if b.is_app then
    local name = sub(field, 34)
    b.tenants = b.tenants or {}
    b.tenants[name] = (b.tenants[name] or 0) + change
  end
end

-- Looks at lessees whose time has come: slots come back, and entries of which nothing matters are dropped.
local function look(b, now)
  local due = call('ZRANGE', b.place.z, '-inf', now, 'BYSCORE', 'LIMIT', 0, LOOKS_MAX)
  local is_rate, wid, continuous = b.rule.is_rate, bucket.wid(b, now), b.rule.continuous
  b.looked = b.looked or {}
  for _, field in ipairs(due) do
    local e = entry_at(b, field)
    if not e then
      b.looked[field] = 'gone'
    else
      if not is_rate and slots_in(b, e) > 0 and entry.ends(e) <= now then set_slots(b, field, e, 0) end
      local again = entry.ends(e) + FENCE_MS
      if is_rate and e.tally > 0 and e.wid + (continuous and 1 or 0) >= wid then
        local told = continuous and (e.wid + 2) * b.rule.memory or b.meter.stop
        again = max(again, told)
      end
      if again <= now then
        b.looked[field] = 'gone'
        -- The lessee who asks goes on with a blank one.
        b.entries[field] = false
      else
        e.look, b.looked[field], b.dirty[field] = again, again, true
      end
    end
  end
  b.is_cut = #due == LOOKS_MAX
end

local function adopt(b, r, now)
  local old = b.rule
  local is_later_day = r.kind == CALENDAR and old.kind == CALENDAR and r.cfgver == old.cfgver and
    (r.a > old.a or r.a == old.a and (r.b > old.b or r.b == old.b and r.c > old.c))
  if r.cfgver <= old.cfgver and not is_later_day then return end
  meter.advance(b.meter, old, now)
  local used = old.kind == CONCURRENCY and 0 or meter.used(b.meter)
  local is_same = r.meter == b.meter.kind
  if not is_same then
    b.meter = meter.new(r)
    meter.advance(b.meter, r, now)
    meter.debit(b.meter, r, used, now)
  end
  if not is_same or r.cap < old.cap or r.burst < old.burst then bucket.fence(b, now) end
  if not is_same then b.era = r.kind == CONCURRENCY and b.gen or 0 end
  if r.cfgver > old.cfgver then b.seen = false end
  b.rule = r
end

-- Takes up a newer rule, and goes to this moment.
function bucket.advance(b, r, now)
  if r and r ~= b.rule then adopt(b, r, now) end
  meter.advance(b.meter, b.rule, now)
  if b.release and not release.advance(b.release, b.rule, now) then b.release = false end
  if b.seen and b.seen_until <= now then b.seen = false end
  if now >= b.next_look then look(b, now) end
  local e = b.lessee and b.entries[b.lessee.field]
  if e and e.gen < b.void then
    e.closed = true
    if b.rule.is_rate then e.units = 0 end
  end
  b.touched = now
end

-- Goes on from a gen that a holder has heard of. It was lost here, and with it what it voided.
function bucket.hear(b, gen)
  if gen > b.gen then
    b.gen = gen
    b.announces = true
  end
end

-- The lessee's entry, blank where there is none; nil where there are too many.
function bucket.own(b)
  local field = b.lessee.field
  local e = b.entries[field]
  if e then return e end
  if not b.is_new and call('HLEN', b.place.b) > LESSEES_MAX then return nil end
  e = entry.blank()
  b.entries[field] = e
  return e
end

function bucket.park(b, now)
  if b.release and now < b.release.until_ms then return b.release.until_ms - now end
  return nil
end

function bucket.alpha(b) return b.release and b.release.alpha or ALPHA_WHOLE end

-- What may be granted at most at once.
function bucket.cap(b)
  local cap = b.rule.burst
  if b.rule.kind == CONCURRENCY then cap = max(div(b.rule.cap * bucket.alpha(b), ALPHA_WHOLE), 1) end
  return b.seen and min(cap, b.seen) or cap
end

-- What of a lease's unspent units is credited when they are counted anew: how many, and of when.
function bucket.creditable(b, unspent, now)
  local e = b.entries[b.lessee.field]
  if not e or e.closed or e.gen ~= b.gen or unspent > e.units then return 0, 0 end
  if not b.rule.continuous and e.wid ~= bucket.wid(b, now) then return 0, 0 end
  if e.credited + unspent > e.tally then return 0, 0 end
  return unspent, e.granted
end

-- How many holders have leases, this one counted.
function bucket.count_holders(b, holder, now)
  local count, holders = 1, b.holders
  for at = 1, #holders, 2 do
    if holders[at + 1] > now and holders[at] ~= holder then count = count + 1 end
  end
  return count
end

function bucket.note_holder(b, holder, ends, now)
  local holders, kept, is_noted = b.holders, {}, false
  if #holders == 2 and holders[1] == holder then
    holders[2] = max(holders[2], ends)
    return
  end
  for at = 1, #holders, 2 do
    local is_it = holders[at] == holder
    if is_it or holders[at + 1] > now then
      kept[#kept + 1], kept[#kept + 2] = holders[at], is_it and max(holders[at + 1], ends) or holders[at + 1]
      is_noted = is_noted or is_it
    end
  end
  if not is_noted and #kept < 2 * HOLDERS_MAX then kept[#kept + 1], kept[#kept + 2] = holder, ends end
  b.holders = kept
end

-- Slots that the lessee's tenant may use here of its fair share; nil where there is none.
function bucket.share_of_slots(b)
  local level = b.shares and shares.level(b.shares)
  if not level then return nil end
  return less(max(div(level, 1000), 1), bucket.held_elsewhere(b))
end

function bucket.held_by(b, name)
  return tonumber(call('HGET', b.place.b, 't:' .. b.era .. ':' .. name) or 0) +
    (b.tenants and b.tenants[name] or 0)
end

function bucket.held_elsewhere(b)
  local e = b.entries[b.lessee.field]
  return max(bucket.held_by(b, b.lessee.tenant) - (e and slots_in(b, e) or 0), 0)
end

function bucket.free_slots(b, cap)
  local e = b.entries[b.lessee.field]
  return less(cap, b.meter.held - (e and slots_in(b, e) or 0))
end

function bucket.set_slots(b, e, units) set_slots(b, b.lessee.field, e, units) end
