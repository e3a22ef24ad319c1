
-- Rules: 42 bytes, and what follows from them --------------------------------------------------------------------------
--   cfgver kind cap lease guard skew a b c
--   FIXED        a window, b offset              ANCHORED, SLIDING   a window, b slots
--   CALENDAR     a, b, c bounds                  BUCKET              a window, b burst

local rule = {}

local RULE_BYTES = 42
local RULE_FORM = '<I4BI4I4I4I4I7I7I7'
local METER_OF = { [0] = WINDOW, SLOTS, WINDOW, SLOTS, DEBT, HELD }
-- Rules come again and again, and there are few. What is known of them is forgotten as a whole when there are many.
local RULES_MAX = 1000
local known_rules, rules_known = {}, 0

local function memory_of(r)
  if r.kind == FIXED then return r.a end
  if r.kind == CALENDAR then return max(r.b - r.a, r.c - r.b) end
  if r.kind == CONCURRENCY then return r.lease end
  if r.kind == BUCKET then return div_ceil(r.b * r.a, r.cap) + r.late end
  return r.a + div_ceil(r.a, r.b) + r.late
end

-- A debt of unit is one unit, per_ms drains in each ms, and a debt may not come to be over most.
local function set_pace(r)
  local late = r.cap * r.late
  local most = r.b * r.a - late
  if most >= r.a then
    r.unit, r.per_ms, r.most = r.a, r.cap, most
  else
    r.unit, r.per_ms, r.most = r.a + late, r.cap * r.b, r.a + late
  end
end

function rule.read(bytes)
  local r = known_rules[bytes]
  if r then return r end
  r = { bytes = bytes }
  r.cfgver, r.kind, r.cap, r.lease, r.guard, r.skew, r.a, r.b, r.c = read(RULE_FORM, bytes)
  r.late = r.lease + r.guard
  r.window = r.a
  if r.kind == CONCURRENCY then r.window = r.lease elseif r.kind == CALENDAR then r.window = r.b - r.a end
  r.slot = (r.kind == ANCHORED or r.kind == SLIDING) and div_ceil(r.a, r.b) or r.window
  r.memory = memory_of(r)
  r.burst = r.kind == BUCKET and r.b or r.cap
  r.meter = METER_OF[r.kind]
  r.is_rate = r.kind ~= CONCURRENCY
  -- Whether what was counted in the last span of time still counts in this one.
  r.continuous = r.meter == SLOTS or r.meter == DEBT
  r.span = clamp(r.window, 1000, 60000)
  r.share_slot = clamp(div(r.window, 10), 10, 1000)
  -- Thousandths of a unit per second, of concurrency of a slot.
  r.rate = r.kind == CONCURRENCY and r.cap * 1000 or (muldiv(r.cap, 1000000, r.window))
  if r.kind == BUCKET then
    set_pace(r)
    r.whole = div(r.most, r.unit)
  end
  if rules_known >= RULES_MAX then known_rules, rules_known = {}, 0 end
  known_rules[bytes], rules_known = r, rules_known + 1
  return r
end

-- How many units a block may be part of.
function rule.whole(r, cap)
  if r.kind ~= BUCKET then return cap end
  return min(r.whole, cap)
end

-- Begin and end of the window of this moment; nil outside of all.
function rule.bounds(r, now)
  if r.kind == FIXED then
    local start = now - (now + r.a - r.b) % r.a
    return start, start + r.a
  end
  if now >= r.a and now < r.b then return r.a, r.b end
  if now >= r.b and now < r.c then return r.b, r.c end
  return nil
end
