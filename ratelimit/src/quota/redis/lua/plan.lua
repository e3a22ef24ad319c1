
-- What an ask may have of a bucket -------------------------------------------------------------------------------------
-- Each gives units, credit, when the credited was granted, ttl; or nil, in how many ms to ask again, and why.

-- Units that are kept for interactive calls.
local function reserve(b, now)
  local r = b.rule
  if b.is_app or b.interactive == 0 or b.interactive + r.span <= now then return 0 end
  local whole = div(rule.whole(r, bucket.cap(b)) * RESERVE_PERCENT, 100)
  if b.meter.kind == WINDOW then
    -- Towards the end of a window it is not kept for what no longer comes.
    local open, close = meter.opening(b.meter, r)
    return min((muldiv(whole, less(close, now), max(less(close, open), 1))), whole)
  end
  return whole
end

local function block_of(b, whole, holder, now)
  return max(div(div(whole * BLOCK_PERCENT, 100), bucket.count_holders(b, holder, now)), 1)
end

local function plan_rate(b, ask, leg, now)
  local r, cap = b.rule, bucket.cap(b)
  local credit, granted = bucket.creditable(b, leg.unspent, now)
  local room, ttl, why = meter.room(b.meter, r, cap, credit, granted, now)
  if not room then return nil, ttl, why end
  local needed = max(leg.least, credit, leg.want > 0 and 1 or 0)
  if room < needed then return nil, meter.retry(b.meter, r, cap, needed - credit, now), 'exhausted' end
  -- What is counted anew was paced and shared when it was granted first.
  local fresh = needed - credit
  local most = min(leg.want, room, max(block_of(b, rule.whole(r, cap), ask.holder, now), needed))
  if b.release then
    local paced = now >= b.release.paced and max(fresh, 1) or 0
    if paced < fresh then return nil, b.release.paced - now, 'paced' end
    most = min(most, credit + paced)
  end
  if not ask.interactive then
    local left = less(room, reserve(b, now))
    if left < needed and fresh > 0 then
      return nil, min(meter.retry(b.meter, r, cap, needed, now), 1000), 'reserved'
    end
    most = min(most, max(left, needed))
  end
  local left = b.shares and shares.left(b.shares, ask.interactive, now)
  if left then
    if left == 0 and fresh > 0 then return nil, shares.retry(b.shares, now), 'share' end
    most = min(most, max(credit + div_ceil(left, 1000), needed))
  end
  return max(most, needed), credit, granted, ttl
end

local function plan_slots(b, ask, leg, now)
  local cap = bucket.cap(b)
  local free = bucket.free_slots(b, cap)
  local most = min(leg.want, free, max(leg.unspent + block_of(b, cap, ask.holder, now), leg.least))
  local retry = meter.retry(b.meter, b.rule, cap, leg.least, now)
  if most < leg.least then return nil, retry, 'exhausted' end
  if not ask.interactive then
    local left = less(free, reserve(b, now))
    if left < leg.least and leg.least > leg.unspent then return nil, retry, 'reserved' end
    most = min(most, max(left, leg.least))
  end
  local share = bucket.share_of_slots(b)
  if share then
    if share < leg.least and leg.least > leg.unspent then return nil, retry, 'share' end
    most = min(most, max(share, min(leg.unspent, leg.least)))
  end
  return max(most, leg.unspent), 0, 0, b.rule.lease
end

function bucket.plan(b, ask, leg, now)
  if leg.least > b.rule.burst then return nil, b.rule.window, 'over-cap' end
  if b.rule.is_rate then return plan_rate(b, ask, leg, now) end
  return plan_slots(b, ask, leg, now)
end

-- What a tenant's share is in this bucket's units.
function bucket.worth(b, ask)
  local r = b.rule
  local rate = r.rate
  local ceiling = ask.ceiling < 1000 and max(muldiv(rate, ask.ceiling, 1000), 1)
  return { weight = ask.weight, floor = muldiv(rate, ask.floor, 1000), ceiling = ceiling, interactive = ask.interactive }
end

-- Of a long window a quarter of what is planned for later may be had early, an eighth of that in each slot.
local function ahead(r, room, planned)
  if r.window < LONG_WINDOW then return 0 end
  return div(less(room, div(planned, 4) * 3), 8)
end

-- Thousandths of a unit that this slot may grant: what the rate refills, and what was left of before, of which
-- unclaimed in the last slot.
local function capacity(b, unclaimed, now)
  local r, cap, slot = b.rule, bucket.cap(b), b.rule.share_slot
  local units = meter.room(b.meter, r, cap, 0, 0, now)
  if not units then return 0 end
  local room, milli = units * 1000, 0
  if b.meter.kind == WINDOW then
    local open, close = meter.opening(b.meter, r)
    local left = max(less(close, now), 1)
    local planned = muldiv(cap * 1000, less(left, slot), max(less(close, open), 1))
    milli = max(less(room, planned), (muldiv(room, min(slot, left), left)), ahead(r, room, planned))
  elseif b.meter.kind == SLOTS then
    local even = muldiv(cap * 1000, slot, r.a + r.slot + r.late)
    -- All of the room at once would leave the rest of the window without. What the last slot left is this one's.
    milli = min(room, max(even + min(unclaimed, even), ahead(r, room, cap * 1000)))
  elseif b.meter.kind == DEBT then
    -- What has gathered is shared out by halves.
    local refill = muldiv(r.cap * 1000, slot, r.a)
    milli = refill + div(less(room, refill), 2)
  else
    milli = cap * slot
  end
  return (muldiv(milli, bucket.alpha(b), ALPHA_WHOLE))
end

-- Remembers what is wanted of an application's bucket. False if too many want something.
function bucket.share(b, ask, leg, now)
  if not b.is_app then return true end
  b.shares = b.shares or shares.new(b.place.s, ask.tenant)
  b.shares_dirty = true
  if not shares.want(b.shares, ask.holder, bucket.worth(b, ask), leg.demand, now) then return false end
  shares.turn(b.shares, b.rule.share_slot, capacity, b, now)
  return true
end
