
-- What an operator sees ------------------------------------------------------------------------------------------------

-- List: head <BH of revision limit; after. The names of buckets behind a name, or from the first where it is empty.
local function list(keys, args)
  local app, err = begin(keys, args)
  if not app then return err end
  local _, limit = read('<BH', args[1])
  local from = args[2] ~= '' and '(' .. args[2] or '-'
  local names = call('ZRANGE', app.names, from, '+', 'BYLEX', 'LIMIT', 0, limit)
  return { enter_life(app, app.now, true).id, 'names', names }
end

local function by_units(one_view, other)
  if one_view.units ~= other.units then return one_view.units > other.units end
  return one_view.holder < other.holder
end

-- Who holds live leases, the largest first: holder units ttl, …
local function holder_views(b, now)
  local flat = call('HSCAN', b.place.b, 0, 'COUNT', SCANNED_MAX)[2]
  local views, by_holder, is_rate = {}, {}, b.rule.is_rate
  for at = 1, #flat, 2 do
    local field = flat[at]
    if byte(field, 33) == 58 then
      local e, holder = entry.read(flat[at + 1]), sub(field, 1, 32)
      local units = is_rate and (e.gen < b.void and 0 or e.units) or slots_in(b, e)
      if units > 0 and now < entry.ends(e) then
        local view = by_holder[holder]
        if not view then
          view = { holder = holder, units = 0, ttl = 0 }
          by_holder[holder], views[#views + 1] = view, view
        end
        view.units, view.ttl = view.units + units, max(view.ttl, entry.ends(e) - now)
      end
    end
  end
  table.sort(views, by_units)
  local shown = {}
  for at = 1, min(#views, HOLDERS_SHOWN_MAX) do
    shown[#shown + 1], shown[#shown + 2], shown[#shown + 3] = views[at].holder, views[at].units, views[at].ttl
  end
  return shown
end

local function room_of(b, now)
  local cap = bucket.cap(b)
  if not b.rule.is_rate then return less(cap, b.meter.held) end
  return (meter.room(b.meter, b.rule, cap, 0, 0, now)) or 0
end

-- Why one unit would be refused to somebody who is not there yet: word ms why, or false.
local function refusal(b, learn, now)
  if learn then return { 'learning', learn, '' } end
  local park = bucket.park(b, now)
  if park then return { 'parked', park, b.release.why } end
  local ask = { holder = string.rep('0', 32), tenant = '-', interactive = true }
  local leg = { least = 1, want = 1, unspent = 0 }
  local units, retry, why = bucket.plan(b, ask, leg, now)
  if units then return {} end
  return { 'denied', retry, why }
end

-- Describe: head <B. Changes nothing: what is over is taken off in what is shown.
local function describe(keys, args)
  local app, err = begin(keys, args)
  if not app then return err end
  app.is_look = true
  load_all(app, keys, lessee_of(string.rep('0', 32), '-'))
  local b, now = app.buckets[1], app.now
  if not b.is_there then return { app.epoch.id, 'no-bucket' } end
  bucket.advance(b, nil, now)
  if b.is_app then b.shares = shares.load(b.place.s, '-') end
  local r, learn = b.rule, learning(app.epoch, b.rule, now)
  return {
    app.epoch.id, 'bucket', name_of(b.place),
    { r.cfgver, r.kind, r.cap, r.lease, r.guard, r.skew, r.a, r.b, r.c },
    { meter.used(b.meter), room_of(b, now), b.gen, b.seen or -1, bucket.park(b, now) or -1, bucket.alpha(b),
      b.shares and b.shares.level or -1, b.shares and b.shares.tenants or 0, learn or -1 },
    b.release and b.release.why or '',
    holder_views(b, now),
    refusal(b, learn, now),
  }
end

redis.register_function('tidegate_quota_v2_acquire', acquire)
redis.register_function('tidegate_quota_v2_give_back', give_back)
redis.register_function('tidegate_quota_v2_renew', renew)
redis.register_function('tidegate_quota_v2_penalise', penalise)
redis.register_function('tidegate_quota_v2_observe', observe)
redis.register_function('tidegate_quota_v2_settle', settle)
redis.register_function('tidegate_quota_v2_release', release_park)
redis.register_function('tidegate_quota_v2_reset', reset)
redis.register_function('tidegate_quota_v2_nothing', nothing)
redis.register_function{ function_name = 'tidegate_quota_v2_list', callback = list, flags = { 'no-writes' } }
redis.register_function{ function_name = 'tidegate_quota_v2_describe', callback = describe, flags = { 'no-writes' } }
