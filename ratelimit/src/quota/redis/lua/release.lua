
-- Parks, and how a bucket is released after one ------------------------------------------------------------------------
--   until why alpha clean paced

local release = {}

function release.extend(l, now, delta, why)
  local until_ms = now + min(delta, PARK_MS_MAX)
  if until_ms > l.until_ms then l.until_ms, l.why = until_ms, why end
  l.clean = max(l.clean, l.until_ms)
end

-- The penalty that begins a release.
function release.penalised(before, now, delta, why)
  local l = {
    until_ms = before and before.until_ms or 0,
    why = before and before.why or why,
    alpha = max(floor((before and before.alpha or ALPHA_WHOLE) / 2), ALPHA_MIN),
    clean = now,
    paced = before and before.paced or 0,
  }
  release.extend(l, now, delta, why)
  return l
end

-- Goes to this moment; false once the release is over.
function release.advance(l, r, now)
  local length = r.span
  local spans = div(less(now, l.clean), length)
  l.alpha = min(l.alpha + min(spans, 10) * ALPHA_STEP, ALPHA_WHOLE)
  l.clean = l.clean + spans * length
  return l.alpha < ALPHA_WHOLE or now < l.until_ms
end

-- Spaces what comes next from what is granted now.
function release.debit(l, r, units, now)
  local apart = muldiv_ceil(units * 1000, min(r.window, LONG_WINDOW), r.cap * max(l.alpha, 1))
  l.paced = now + min(apart, PARK_MS_MAX)
end

function release.matters_until(l, r)
  return max(l.until_ms, l.paced, l.clean + div_ceil(ALPHA_WHOLE - l.alpha, ALPHA_STEP) * r.span)
end
