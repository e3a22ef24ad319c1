
-- Meters: what counts against a limit ----------------------------------------------------------------------------------
--   WINDOW  start stop used          SLOTS  previous stop parts (end, units, end, units, …)
--   DEBT    owed at unit clear       HELD   held: slots that all lessees hold

local meter = {}

function meter.new(r)
  local kind = r.meter
  if kind == WINDOW then return { kind = kind, start = 0, stop = 0, used = 0 } end
  if kind == SLOTS then return { kind = kind, previous = 0, stop = 0, parts = {} } end
  if kind == DEBT then return { kind = kind, owed = 0, at = 0, unit = 0, clear = 0 } end
  return { kind = kind, held = 0 }
end

-- Four numbers. Of parts, those that count nothing are gone, and the third number is what the others count.
function meter.write(m)
  if m.kind == WINDOW then return m.start, m.stop, m.used, 0 end
  if m.kind == SLOTS then
    local kept, sum, parts = {}, 0, m.parts
    for at = 1, #parts, 2 do
      if parts[at + 1] > 0 then
        kept[#kept + 1], kept[#kept + 2] = parts[at], parts[at + 1]
        sum = sum + parts[at + 1]
      end
    end
    m.parts = kept
    return m.previous, m.stop, sum, 0
  end
  if m.kind == DEBT then return m.owed, m.at, m.unit, m.clear end
  return m.held, 0, 0, 0
end

function meter.read(kind, one, two, three, four)
  if kind == WINDOW then return { kind = kind, start = one, stop = two, used = three } end
  if kind == SLOTS then return { kind = kind, previous = one, stop = two, parts = {} } end
  if kind == DEBT then return { kind = kind, owed = one, at = two, unit = three, clear = four } end
  return { kind = kind, held = one }
end

-- What arrives up to here does not count.
local function since(m, r, now)
  local sliding = less(now, r.window)
  if r.kind ~= ANCHORED or m.stop == 0 then return sliding end
  if m.stop <= now then return max(sliding, m.stop) end
  return max(sliding, less(m.stop, r.a))
end

local function advance_slots(m, r, now)
  local from, late, parts = since(m, r, now), r.late, m.parts
  local kept
  for at = 1, #parts, 2 do
    local counts = parts[at + 1] > 0 and parts[at] + late > from
    if not counts and not kept then
      kept = {}
      for before = 1, at - 1 do kept[before] = parts[before] end
    elseif counts and kept then
      kept[#kept + 1], kept[#kept + 2] = parts[at], parts[at + 1]
    end
  end
  if kept then m.parts = kept end
end

local function advance_debt(m, r, now)
  local unit, per_ms = r.unit, r.per_ms
  if m.unit ~= unit then
    m.owed = sat(muldiv_ceil(m.owed, unit, max(m.unit, 1)))
    m.unit = unit
  end
  if m.owed > 0 then
    local drained = less(now, m.at) * per_ms
    if drained >= m.owed then m.clear = m.at + div_ceil(m.owed, per_ms) end
    m.owed = less(m.owed, drained)
  end
  m.at = now
end

function meter.advance(m, r, now)
  if m.kind == WINDOW then
    -- A window that has not begun was told by a holder: the clock that it began by was ahead of this one.
    if now < m.start then return end
    local start, stop = rule.bounds(r, now)
    if start and (start ~= m.start or stop ~= m.stop) then
      if m.stop <= start then m.used = 0 end
      m.start, m.stop = start, stop
    end
  elseif m.kind == SLOTS then
    advance_slots(m, r, now)
  elseif m.kind == DEBT then
    advance_debt(m, r, now)
  end
end

-- Goes to a window that a lessee was granted units in and that has not begun by this clock.
function meter.reach(m, r, wid, now)
  if m.kind ~= WINDOW or wid <= now or wid <= m.start or wid - now > GUARD_MS_MAX then return end
  local start, stop = rule.bounds(r, wid)
  if start == wid then m.start, m.stop, m.used = start, stop, 0 end
end

-- Between which moments of the window units may be granted.
function meter.opening(m, r) return m.start + r.skew, less(m.stop, r.guard + r.skew) end

function meter.wid(m, r, now)
  if m.kind == WINDOW then return m.start end
  if m.kind == HELD then return 0 end
  return div(now, r.memory)
end

local function counted(m)
  local units = 0
  for at = 2, #m.parts, 2 do units = units + m.parts[at] end
  return units
end

function meter.used(m)
  if m.kind == WINDOW then return m.used end
  if m.kind == SLOTS then return counted(m) end
  if m.kind == DEBT then return div_ceil(m.owed, max(m.unit, 1)) end
  return m.held
end

-- Where units of that time are counted: the place of their part, if it still counts.
local function part_of(m, r, granted)
  for at = 1, #m.parts, 2 do
    if m.parts[at] > granted then
      if m.parts[at] <= granted + 2 * r.slot then return at end
      return nil
    end
  end
  return nil
end

-- What of a debt is taken off for units that will not be spent.
local function debt_credit(m, r, units, granted)
  local unit, per_ms = r.unit, r.per_ms
  return min(less(units * unit, less(m.at, granted) * per_ms), m.owed)
end

-- Units that may be granted under cap once the credit is taken off, and how long a lease may last; or nil, in how many
-- ms to ask again, and why.
function meter.room(m, r, cap, credit, granted, now)
  if m.kind == WINDOW then
    local open, close = meter.opening(m, r)
    if now >= m.stop then return nil, r.window, 'no-window' end
    if now < open then return nil, open - now, 'guard' end
    if now >= close then return nil, m.stop + r.skew - now, 'guard' end
    return less(cap + credit, m.used), min(r.lease, close - now)
  elseif m.kind == SLOTS then
    local at = part_of(m, r, granted)
    local credited = at and min(m.parts[at + 1], credit) or 0
    return less(cap + credited, counted(m)), r.lease
  elseif m.kind == DEBT then
    local unit, most = r.unit, r.most
    local left = m.owed - debt_credit(m, r, credit, granted)
    local units = div(less(min(most, cap * unit), left), unit)
    if m.owed == 0 and less(now, m.clear) >= r.late then units = max(units, cap) end
    return units, r.lease
  end
  return cap, r.lease
end

local function slots_retry(m, r, cap, units, now)
  local count = counted(m)
  for at = 1, #m.parts, 2 do
    count = count - m.parts[at + 1]
    if count + units <= cap then return less(m.parts[at] + r.late + r.window, now) end
  end
  return r.window
end

local function debt_retry(m, r, units, now)
  local unit, per_ms, most = r.unit, r.per_ms, r.most
  local room = most - units * unit
  if room >= 0 then return div_ceil(less(m.owed, room), per_ms) end
  if m.owed == 0 then return less(m.clear + r.late, now) end
  return div_ceil(m.owed, per_ms) + r.late
end

-- Until there would be room, if nobody else takes it.
function meter.retry(m, r, cap, units, now)
  local wait
  if m.kind == WINDOW then wait = less(m.stop + r.skew, now)
  elseif m.kind == SLOTS then wait = slots_retry(m, r, cap, units, now)
  elseif m.kind == DEBT then wait = debt_retry(m, r, units, now)
  else wait = div(r.lease, 4) end
  return max(wait, 1)
end

function meter.debit(m, r, units, now)
  if m.kind == WINDOW then
    m.used = sat(m.used + units)
  elseif m.kind == SLOTS then
    if units == 0 then return end
    local slot, last = r.slot, #m.parts
    local stop = (div(now, slot) + 1) * slot
    if last > 0 and m.parts[last - 1] >= stop then
      m.parts[last] = sat(m.parts[last] + units)
    else
      m.parts[last + 1], m.parts[last + 2] = stop, units
    end
  elseif m.kind == DEBT then
    local unit = r.unit
    m.owed = sat(m.owed + units * unit)
  end
end

function meter.credit(m, r, units, granted)
  if m.kind == WINDOW then
    m.used = less(m.used, units)
  elseif m.kind == SLOTS then
    local at = part_of(m, r, granted)
    if at then m.parts[at + 1] = less(m.parts[at + 1], units) end
  elseif m.kind == DEBT then
    m.owed = m.owed - debt_credit(m, r, units, granted)
    if m.owed == 0 then m.clear = m.at end
  end
end

-- Counts at least so many, as the provider says.
function meter.raise_to(m, r, used, now)
  if m.kind == DEBT then
    local unit = r.unit
    m.owed = max(m.owed, sat(used * unit))
  elseif m.kind ~= HELD then
    meter.debit(m, r, less(used, meter.used(m)), now)
  end
end

-- The provider's window ends in reset ms.
function meter.learn_end(m, r, reset, now)
  if m.kind ~= SLOTS or r.kind ~= ANCHORED or reset > r.a + r.late then return end
  local stop, late = now + min(reset, r.a), r.late
  local function is_after(known) return known == 0 or stop + late >= known + r.a end
  if is_after(m.stop) then
    m.previous, m.stop = m.stop, stop
  elseif stop < m.stop and is_after(m.previous) then
    m.stop = stop
  end
end

-- Until when what is counted can matter.
function meter.matters_until(m, r, now)
  if m.kind == WINDOW then return m.stop end
  if m.kind == HELD then return now + r.lease end
  -- What lessees were granted is told within this span of time and the one after.
  local told = now + 2 * r.memory
  if m.kind == SLOTS then
    local last = m.parts[#m.parts - 1] or now
    return max(told, last + r.late + r.a)
  end
  local per_ms = r.per_ms
  return max(told, m.at + div_ceil(m.owed, per_ms) + r.late, m.clear + r.late)
end
