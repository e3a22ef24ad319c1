
-- Writing a bucket back ------------------------------------------------------------------------------------------------

local LEVELS = { app = '0', connection = '1', region = '2', source = '3' }

-- What the bucket is called in the index and on the channel, from its key.
local function name_of(place)
  local level, scope, policy = string.match(place.b, '}:b:(%a+):([^:]+):([^:]+)$')
  return LEVELS[level] .. ' ' .. scope .. ' ' .. policy
end

-- Keys live until nothing of them matters, and so much longer that telling them so is rare.
local function keep(b, app, now)
  local place, r = b.place, b.rule
  local needed = max(now + FENCE_MS + r.lease, meter.matters_until(b.meter, r, now))
  if b.release then needed = max(needed, release.matters_until(b.release, r)) end
  if b.seen then needed = max(needed, b.seen_until) end
  if needed <= b.until_ms then return false end
  b.until_ms = needed + SLACK_MS
  local ttl = b.until_ms - now
  local name = name_of(place)
  call('ZADD', app.expiries, b.until_ms + 1000, name)
  if b.is_new then
    call('ZADD', app.names, 0, name)
    local over = call('ZRANGE', app.expiries, '-inf', now, 'BYSCORE', 'LIMIT', 0, 8)
    if #over > 0 then
      call('ZREM', app.expiries, unpack(over))
      call('ZREM', app.names, unpack(over))
    end
  end
  for _, key in ipairs({ app.mark, app.names, app.expiries }) do
    -- The first of the two is for a key that has no end yet.
    call('PEXPIRE', key, ttl, 'NX')
    call('PEXPIRE', key, ttl, 'GT')
  end
  return true
end

-- When an entry that is written has to be looked at, where that is another time than z has.
local function look_at(b, e)
  if slots_in(b, e) > 0 and not b.rule.is_rate then
    if e.look ~= entry.ends(e) then return entry.ends(e) end
  elseif e.look == 0 then
    return max(entry.ends(e), b.touched) + FENCE_MS
  end
  return nil
end

local function save_looks(b)
  for field, score in pairs(b.looked) do
    if score == 'gone' then
      call('ZREM', b.place.z, field)
      call('HDEL', b.place.b, field)
    else
      call('ZADD', b.place.z, score, field)
    end
  end
  local first = call('ZRANGE', b.place.z, 0, 0, 'WITHSCORES')
  b.next_look = tonumber(first[2]) or NEVER
end

local function save_tenants(b)
  for name, change in pairs(b.tenants) do
    local field = 't:' .. b.era .. ':' .. name
    if change ~= 0 and call('HINCRBY', b.place.b, field, change) <= 0 then
      call('HDEL', b.place.b, field)
    end
  end
end

local function announce(b, app, now)
  call('SPUBLISH', app.channel,
    format('%s %d %d', name_of(b.place), b.gen, bucket.park(b, now) or 0))
end

function bucket.save(b, app, now)
  local place = b.place
  local has_looks = false
  if b.looked then save_looks(b) end
  local fields = {}
  for field in pairs(b.dirty) do
    local e = b.entries[field]
    if e then
      local score = look_at(b, e)
      if score then
        call('ZADD', place.z, score, field)
        e.look, has_looks = score, true
        b.next_look = min(b.next_look, score)
      end
      fields[#fields + 1], fields[#fields + 2] = field, entry.write(e)
    end
  end
  local is_told = keep(b, app, now)
  call('HSET', place.b, 'm', write_bucket(b), unpack(fields))
  if b.tenants then save_tenants(b) end
  if is_told then call('PEXPIRE', place.b, b.until_ms - now) end
  if is_told or has_looks then call('PEXPIRE', place.z, b.until_ms - now) end
  if b.shares and b.shares_dirty then shares.save(b.shares, now) end
  if b.announces then announce(b, app, now) end
end

-- The dirty entry of the bucket's lessee.
function bucket.mark(b) b.dirty[b.lessee.field] = true end
