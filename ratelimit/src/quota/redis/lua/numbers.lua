
-- Integers -------------------------------------------------------------------------------------------------------------

-- ⌊a / c⌋. Exact: below 2^53 a quotient that is no integer is further from one than its rounding error.
local function div(a, c) return floor(a / c) end

-- ⌈a / c⌉
local function div_ceil(a, c)
  local q = div(a, c)
  if q * c < a then return q + 1 end
  return q
end

-- ⌊a·b / c⌋ and the remainder, also where a·b is not exact: b is taken in digits that are small enough.
local function muldiv(a, b, c)
  local p = a * b
  if p <= EXACT then
    local q = div(p, c)
    return q, p - q * c
  end
  local _, bits = math.frexp(c)
  if bits > 50 then return floor(p / c), 0 end
  local base = 2 ^ (52 - bits)
  local whole = div(a, c)
  local part, digits, rest = a - whole * c, {}, b
  while rest > 0 do
    digits[#digits + 1] = rest % base
    rest = floor(rest / base)
  end
  local q, left = 0, 0
  for at = #digits, 1, -1 do
    local value = left * base + part * digits[at]
    local digit = div(value, c)
    q, left = q * base + digit, value - digit * c
  end
  return whole * b + q, left
end

local function muldiv_ceil(a, b, c)
  local q, left = muldiv(a, b, c)
  if left > 0 then return q + 1 end
  return q
end

local function clamp(value, least, most) return max(least, min(value, most)) end

-- a − b, but not below 0.
local function less(a, b)
  if a > b then return a - b end
  return 0
end

local function sat(value) return min(value, EXACT) end
