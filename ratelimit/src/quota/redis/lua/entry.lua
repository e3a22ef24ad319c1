
-- Entries: what one lessee has of one bucket ---------------------------------------------------------------------------
-- As the pure centre's, and: era, of which era of concurrency its slots are (bucket.lua), look, its score in z or 0.

local entry = {}

function entry.blank()
  return {
    seq = 0, settle_seq = 0, units = 0, closed = true, gen = 0, granted = 0, ttl = 0,
    wid = 0, tally = 0, before = 0, credited = 0, era = 0, look = 0,
  }
end

local ENTRY_FORM = '<I7I7I4BI7I6I4I7I7I7I7I7I7'
-- What a lessee asks for, behind the RULE: seq least want unspent demand wid tally before heard
local LEG_FORM = '<I7I4I4I4I7I7I7I7I7'
-- What it is answered: units ttl gen wid tally before
local LEASE_FORM = '<I4I4I7I7I7I7'

function entry.read(bytes)
  local seq, settle_seq, units, closed, gen, granted, ttl, wid, tally, before, credited, era, look =
    read(ENTRY_FORM, bytes)
  return {
    seq = seq, settle_seq = settle_seq, units = units, closed = closed == 1, gen = gen, granted = granted, ttl = ttl,
    wid = wid, tally = tally, before = before, credited = credited, era = era, look = look,
  }
end

function entry.write(e)
  return write(ENTRY_FORM, e.seq, e.settle_seq, e.units, e.closed and 1 or 0, e.gen, e.granted, e.ttl,
    e.wid, e.tally, e.before, e.credited, e.era, e.look)
end

function entry.ends(e) return e.granted + e.ttl end

function entry.lease(e, units, ttl) return write(LEASE_FORM, units, ttl, e.gen, e.wid, e.tally, e.before) end

local function granted_in(tally_wid, tally, before, wid, continuous)
  if tally_wid == wid then return tally end
  if continuous and tally_wid == wid + 1 then return before end
  return 0
end

-- Takes up what the lessee remembers; how much of it was not known here and still counts, and whether it is changed.
function entry.heal(e, told_wid, told, told_before, wid, continuous)
  -- Nearly always what is told is what is known.
  if told_wid == e.wid and told <= e.tally and told_before <= e.before then return 0, false end
  local missing = 0
  local windows = { wid }
  if continuous then
    if wid > 0 then windows[2] = wid - 1 end
    if told_wid > wid then windows[#windows + 1] = told_wid end
  end
  for _, window in ipairs(windows) do
    missing = missing + less(granted_in(told_wid, told, told_before, window, continuous),
                             granted_in(e.wid, e.tally, e.before, window, continuous))
  end
  if missing == 0 and told_wid <= e.wid then return 0, false end
  local newest, before = max(told_wid, e.wid), 0
  local function most(window)
    return max(granted_in(told_wid, told, told_before, window, continuous),
               granted_in(e.wid, e.tally, e.before, window, continuous))
  end
  local units = most(newest)
  if continuous and newest > 0 then before = most(newest - 1) end
  if newest ~= e.wid then e.closed, e.credited = true, 0 end
  e.wid, e.tally, e.before = newest, units, before
  return missing, true
end

-- Counts units that are granted in the window wid.
function entry.count(e, units, wid, continuous)
  local before = 0
  if e.wid == wid then before = e.before
  elseif continuous and e.wid + 1 == wid then before = e.tally end
  if e.wid ~= wid then e.tally, e.credited = 0, 0 end
  e.wid, e.tally, e.before = wid, e.tally + units, before
end
