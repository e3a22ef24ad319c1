
-- Operations -----------------------------------------------------------------------------------------------------------
-- KEYS: mark, names, expiries of the application, then of each bucket b, z, and s if it is an app's.
-- ARGV: a head, which begins with the revision, and what each function says. RULE is a rule's bytes; a number that may be
-- missing is 0 where it is, and one more than it is where it is not.
-- An answer is { epoch, word, … } as the pure centre's; all leases of an answer are one string of bytes.

-- This moment; or nil and an error.
local function moment(args)
  if not floor then get_ready() end
  if byte(args[1]) > REVISION then
    return nil, redis.error_reply('TGREVISION this library is of revision ' .. REVISION)
  end
  local time = clock()
  local now = time[1] * 1000 + floor(time[2] / 1000)
  if this_life(now).evicts then return nil, redis.error_reply('TGEVICTS maxmemory-policy is not noeviction') end
  return now
end

local function application(keys, now)
  return {
    mark = keys[1], names = keys[2], expiries = keys[3], channel = keys[1] .. 'v', now = now, buckets = {},
    epoch = false, is_look = false,
  }
end

-- The application at this moment; or nil and an error.
local function begin(keys, args)
  local now, err = moment(args)
  if not now then return nil, err end
  return application(keys, now)
end

local function lessee_of(holder, tenant) return { holder = holder, tenant = tenant, field = holder .. ':' .. tenant } end

-- Loads the buckets and goes to the moment: the server's clock, or a later one that a bucket has seen.
local function load_all(app, keys, lessee)
  local key, count = 4, #keys
  while key < count do
    local place = { b = keys[key], z = keys[key + 1] }
    key = key + 2
    local third = keys[key]
    if third and find(third, '}:s:', 1, true) then place.s, key = third, key + 1 end
    local b = bucket.load(place, lessee)
    app.buckets[#app.buckets + 1] = b
    if b.is_there and b.touched > app.now then app.now = b.touched end
  end
  app.epoch = enter_life(app, app.now, app.is_look)
end

local function save_all(app)
  for _, b in ipairs(app.buckets) do
    if b.rule then bucket.save(b, app, app.now) end
  end
end

-- Takes the bucket to this moment, made where it is not there; false if there are too many.
local function enter(app, b, r)
  if not b.is_there then
    if call('ZCARD', app.names) >= BUCKETS_MAX then return false end
    bucket.make(b, r, app.now)
    b.is_there = true
  end
  bucket.advance(b, r, app.now)
  return true
end

local function full(app, at) return { app.epoch.id, 'denied', at - 1, 1000, 'full' } end

-- Acquire: head <BBHHH of revision interactive weight floor ceiling; holder, tenant, legs --------------------------------
-- A leg: RULE, and LEG_FORM

local function read_legs(args)
  local legs = {}
  for at = 4, #args do
    local bytes = args[at]
    local seq, least, want, unspent, demand, wid, tally, before, heard = read(LEG_FORM, bytes, RULE_BYTES + 1)
    legs[at - 3] = {
      rule = rule.read(sub(bytes, 1, RULE_BYTES)), seq = seq, least = least, want = want, unspent = unspent,
      demand = demand, wid = wid, tally = tally, before = before, heard = heard,
    }
  end
  return legs
end

-- Takes up what the lessee says about itself.
local function hear(app, b, ask, leg)
  local now = app.now
  if not enter(app, b, leg.rule) then return false end
  if ask.interactive then b.interactive = now end
  bucket.hear(b, leg.heard)
  meter.reach(b.meter, b.rule, leg.wid, now)
  local e = bucket.own(b)
  if not e then return false end
  if b.rule.is_rate then
    local wid, continuous = bucket.wid(b, now), b.rule.continuous
    local missing, is_changed = entry.heal(e, leg.wid, leg.tally, leg.before, wid, continuous)
    meter.debit(b.meter, b.rule, missing, now)
    if is_changed then bucket.mark(b) end
  end
  return bucket.share(b, ask, leg, now)
end

-- What is not to be granted, because it was granted or is late.
local function replay(app, legs)
  local known, leases = 0, ''
  for at, leg in ipairs(legs) do
    local b = app.buckets[at]
    local e = bucket.own(b)
    local ends = entry.ends(e)
    if leg.seq < e.seq then return { app.epoch.id, 'stale', at - 1, e.seq } end
    if leg.seq == e.seq then
      if e.closed or e.gen ~= b.gen or app.now >= ends then return { app.epoch.id, 'stale', at - 1, e.seq } end
      known = known + 1
      leases = leases .. entry.lease(e, e.units, ends - app.now)
    end
  end
  if known == 0 then return nil end
  if known == #legs then return { app.epoch.id, 'replayed', leases } end
  -- Of some legs only: it is not the acquire that was granted.
  for at, leg in ipairs(legs) do
    if bucket.own(app.buckets[at]).seq == leg.seq then return { app.epoch.id, 'stale', at - 1, leg.seq } end
  end
end

-- Why nothing at all is granted: what is not known, then what is parked; the longest of all legs.
local function wait(app, legs)
  local learn, learn_at, park, park_at
  for at in ipairs(legs) do
    local b = app.buckets[at]
    local ms = learning(app.epoch, b.rule, app.now)
    if ms and (not learn or ms >= learn) then learn, learn_at = ms, at end
    ms = bucket.park(b, app.now)
    if ms and (not park or ms > park) then park, park_at = ms, at end
  end
  if learn then return { app.epoch.id, 'learning', learn_at - 1, learn } end
  if park then return { app.epoch.id, 'parked', park_at - 1, park, app.buckets[park_at].release.why } end
  return nil
end

local function grant(app, b, ask, leg, plan)
  local now, r, e = app.now, b.rule, bucket.own(b)
  local credit = plan.credit
  meter.credit(b.meter, r, credit, plan.granted)
  meter.debit(b.meter, r, plan.units, now)
  local fresh = plan.units - credit
  if fresh > 0 and r.is_rate then
    if b.release then release.debit(b.release, r, fresh, now) end
    if b.shares then shares.take(b.shares, fresh) end
  end
  e.credited = e.credited + credit
  if b.rule.is_rate then
    entry.count(e, plan.units, bucket.wid(b, now), b.rule.continuous)
    e.units, e.era = plan.units, 0
  else
    bucket.set_slots(b, e, plan.units)
  end
  e.seq, e.closed, e.gen, e.granted, e.ttl = leg.seq, false, b.gen, now, plan.ttl
  bucket.note_holder(b, ask.holder, now + plan.ttl, now)
  bucket.mark(b)
  return entry.lease(e, plan.units, plan.ttl)
end

local function acquire(keys, args)
  local now, err = moment(args)
  if not now then return err end
  local _, interactive, weight, least, ceiling = read('<BBHHH', args[1])
  local lessee = lessee_of(args[2], args[3])
  local ask = {
    holder = args[2], tenant = args[3], field = lessee.field, interactive = interactive == 1,
    weight = weight, floor = least, ceiling = ceiling,
  }
  local since = listens_since(keys[1])
  if since then
    local leases, no = steady.legs(1, 4, keys, args, now, since, ask)
    if leases then return { life.id, 'granted', leases } end
    if no then return { life.id, 'denied', no.at - 1, max(no.retry, 1), no.why } end
  end
  local app, legs = application(keys, now), read_legs(args)
  load_all(app, keys, lessee)
  for at, leg in ipairs(legs) do
    local b = app.buckets[at]
    if b.is_app then b.shares = shares.load(b.place.s, ask.tenant) end
    if not hear(app, b, ask, leg) then
      save_all(app)
      return full(app, at)
    end
  end
  local no = replay(app, legs) or wait(app, legs)
  local plans = {}
  local longest
  for at, leg in ipairs(no and {} or legs) do
    local units, credit, granted, ttl = bucket.plan(app.buckets[at], ask, leg, app.now)
    if units then
      plans[at] = { units = units, credit = credit, granted = granted, ttl = ttl }
    elseif not longest or credit > longest then
      longest = credit
      no = { app.epoch.id, 'denied', at - 1, max(credit, 1), granted }
    end
  end
  local reply = no
  if not no then
    local leases = ''
    for at, leg in ipairs(legs) do leases = leases .. grant(app, app.buckets[at], ask, leg, plans[at]) end
    reply = { app.epoch.id, 'granted', leases }
  end
  save_all(app)
  return reply
end

-- Give back: head <B; holder, tenant, legs of seq gen wid units ------------------------------------------------------------

local function give_back_one(app, b, leg)
  local now, e = app.now, b.entries[b.lessee.field]
  local seq, gen, wid, units = read('<I7I7I7I4', leg)
  if not e or e.seq ~= seq or e.closed or units > e.units or units == 0 then return 0 end
  if b.rule.is_rate then
    if e.gen ~= gen or e.wid ~= wid then return 0 end
    local credit, granted = bucket.creditable(b, units, now)
    if credit == 0 then return 0 end
    meter.credit(b.meter, b.rule, credit, granted)
    if b.is_app then
      b.shares = shares.load(b.place.s, b.lessee.tenant)
      if b.shares then
        shares.give_back(b.shares, credit)
        b.shares_dirty = true
      end
    end
    e.credited, e.units = e.credited + units, e.units - units
  else
    bucket.set_slots(b, e, slots_in(b, e) - units)
  end
  e.closed = true
  bucket.mark(b)
  return units
end

local function give_back(keys, args)
  local app, err = begin(keys, args)
  if not app then return err end
  local credited = 0
  load_all(app, keys, lessee_of(args[2], args[3]))
  for at, b in ipairs(app.buckets) do
    if b.is_there then
      bucket.advance(b, nil, app.now)
      credited = credited + give_back_one(app, b, args[at + 3])
    end
  end
  save_all(app)
  return { app.epoch.id, 'done', credited }
end

-- Renew: head <B; holder, tenant, legs of RULE, seq held heard -----------------------------------------------------------

local function renew_one(app, b, seq, held, heard)
  local now = app.now
  bucket.hear(b, heard)
  local cap = bucket.cap(b)
  if b.is_app then b.shares = shares.load(b.place.s, b.lessee.tenant) end
  local share = bucket.share_of_slots(b) or cap
  local usable = bucket.park(b, now) and 0 or min(held, share, cap)
  local e = bucket.own(b)
  bucket.set_slots(b, e, held)
  e.seq, e.closed, e.gen, e.granted, e.ttl = seq, false, b.gen, now, b.rule.lease
  bucket.note_holder(b, b.lessee.holder, entry.ends(e), now)
  bucket.mark(b)
  return entry.lease(e, usable, e.ttl)
end

local function renew(keys, args)
  local app, err = begin(keys, args)
  if not app then return err end
  load_all(app, keys, lessee_of(args[2], args[3]))
  local reply
  for at, b in ipairs(app.buckets) do
    local leg = args[at + 3]
    local e = enter(app, b, rule.read(sub(leg, 1, RULE_BYTES))) and bucket.own(b)
    if not e then reply = full(app, at)
    elseif read('<I7', leg, RULE_BYTES + 1) < e.seq then reply = { app.epoch.id, 'stale', at - 1, e.seq } end
    if reply then break end
  end
  if not reply then
    local leases = ''
    for at, b in ipairs(app.buckets) do
      local seq, held, heard = read('<I7I4I7', args[at + 3], RULE_BYTES + 1)
      leases = leases .. renew_one(app, b, seq, held, heard)
    end
    reply = { app.epoch.id, 'renewed', leases }
  end
  save_all(app)
  return reply
end

-- What providers and operators say: of one bucket ----------------------------------------------------------------------

-- The application and its bucket; or nil and an error.
local function one(keys, args, lessee)
  local app, err = begin(keys, args)
  if not app then return nil, err end
  load_all(app, keys, lessee)
  return app, app.buckets[1]
end

-- Penalise: head <B; RULE, delta why gen or missing
local function penalise(keys, args)
  local app, b = one(keys, args)
  if not app then return b end
  if not enter(app, b, rule.read(sub(args[2], 1, RULE_BYTES))) then return full(app, 1) end
  local delta, why, gen = read('<I7BI7', args[2], RULE_BYTES + 1)
  if b.release and gen > 0 and gen - 1 < b.gen then
    release.extend(b.release, app.now, delta, WHY[why])
  else
    bucket.fence(b, app.now)
    b.release = release.penalised(b.release, app.now, delta, WHY[why])
  end
  b.announces = true
  save_all(app)
  return { app.epoch.id, 'parked-for', less(b.release.until_ms, app.now), b.gen }
end

local function observe_one(b, now, wid_of, limit, remaining, reset)
  local r, m, wid = b.rule, b.meter, bucket.wid(b, now)
  local is_recent = wid_of == wid or r.continuous and wid_of + 1 == wid
  if not is_recent or not r.is_rate and not limit then return end
  if m.kind == SLOTS and reset then
    meter.learn_end(m, r, reset, now)
    meter.advance(m, r, now)
  end
  local whole = r.burst
  if limit and limit < whole then
    b.seen = b.seen and min(b.seen, limit) or limit
    b.seen_until = m.kind == WINDOW and m.stop or now + r.window
  end
  if remaining and (limit or whole) >= remaining then
    meter.raise_to(m, r, (limit or whole) - remaining, now)
  end
end

-- Observe: head <B; RULE, wid, limit, remaining and reset or missing
local function observe(keys, args)
  local app, b = one(keys, args)
  if not app then return b end
  if not enter(app, b, rule.read(sub(args[2], 1, RULE_BYTES))) then return full(app, 1) end
  local before = meter.used(b.meter)
  local wid, limit, remaining, reset = read('<I7I7I7I7', args[2], RULE_BYTES + 1)
  observe_one(b, app.now, wid, limit > 0 and limit - 1, remaining > 0 and remaining - 1, reset > 0 and reset - 1)
  save_all(app)
  return { app.epoch.id, 'done', less(meter.used(b.meter), before) }
end

local function settle_one(app, b, seq, wid, age, estimate, actual)
  local now, e = app.now, bucket.own(b)
  if not e or seq <= e.settle_seq or not b.rule.is_rate then return 0 end
  e.settle_seq = seq
  bucket.mark(b)
  if b.is_app then b.shares = shares.load(b.place.s, b.lessee.tenant) end
  b.shares_dirty = true
  if actual >= estimate then
    -- What is over the estimate is a debt, whenever it was.
    meter.debit(b.meter, b.rule, actual - estimate, now)
    if b.shares then shares.take(b.shares, actual - estimate) end
    return actual - estimate
  end
  local units = min(estimate - actual, less(e.tally + e.before, e.credited))
  if units == 0 or not (b.rule.continuous or wid == bucket.wid(b, now)) then return 0 end
  e.credited = e.credited + units
  meter.credit(b.meter, b.rule, units, less(now, age))
  if b.shares then shares.give_back(b.shares, units) end
  return units
end

-- Settle: head <B; holder, tenant, seq wid age estimate actual
local function settle(keys, args)
  local app, b = one(keys, args, lessee_of(args[2], args[3]))
  if not app then return b end
  if not b.is_there then return { app.epoch.id, 'done', 0 } end
  bucket.advance(b, nil, app.now)
  local units = settle_one(app, b, read('<I7I7I7I4I4', args[4]))
  save_all(app)
  return { app.epoch.id, 'done', units }
end

-- Release: head <B
local function release_park(keys, args)
  local app, b = one(keys, args)
  if not app then return b end
  if not b.is_there then return { app.epoch.id, 'no-bucket' } end
  bucket.advance(b, nil, app.now)
  if b.release then b.release.until_ms, b.release.clean = app.now, app.now end
  b.announces = true
  save_all(app)
  return { app.epoch.id, 'done', 0 }
end

-- Reset: head <B. As a new bucket, but for the fences of its lessees.
local function reset(keys, args)
  local app, b = one(keys, args)
  if not app then return b end
  if not b.is_there then return { app.epoch.id, 'no-bucket' } end
  bucket.advance(b, nil, app.now)
  local used, held = meter.used(b.meter), b.meter.held
  b.meter = meter.new(b.rule)
  meter.advance(b.meter, b.rule, app.now)
  -- Slots come back when nobody keeps them, and not before.
  if held then b.meter.held = held end
  bucket.fence(b, app.now)
  b.void, b.release, b.seen = b.gen, false, false
  if b.is_app then call('DEL', b.place.s) end
  save_all(app)
  return { app.epoch.id, 'done', used }
end

-- Nothing: which life it is, for an operation that is not well formed
local function nothing(keys, args)
  local app, err = begin(keys, args)
  if not app then return err end
  return { enter_life(app, app.now).id, 'nothing' }
end
