#!lua name=tidegate_quota_v2
--[[
Leases of providers' limits: the centre that several nodes share. It decides what the pure centre of
`ratelimit/src/quota/core` decides, operation by operation; where the two differ, that one is right. Names of functions
and fields are that one's. The comments there say why a rule is as it is; here they say how it is kept.

Everything of one application has one hash tag, {q:PROVIDER:APPLICATION}, so that one call sees and changes all of it:

  {q:…}:e                          STRING  which life of the server the application was last asked in: "ID" alone, or
                                           "ID SINCE" where what was granted before may be lost
  {q:…}:i                          ZSET    the application's buckets by name, all with score 0
  {q:…}:x                          ZSET    the same names by when their keys have surely expired
  {q:…}:b:LEVEL:SCOPE:POLICY       HASH    one bucket:  m               rule, fences, park, meter
                                                        HOLDER:TENANT   a lessee's entry
                                                        t:ERA:TENANT    slots that a tenant holds (concurrency of an app)
  {q:…}:z:LEVEL:SCOPE:POLICY       ZSET    its lessees by when they have to be looked at again: slots come back then, and
                                           entries of which nothing matters any more are dropped
  {q:…}:s:LEVEL:SCOPE:POLICY       HASH    fair shares of an app's bucket:  =       slot and level
                                                                            TENANT  what it wants and has had
  {q:…}:ev                         sharded channel: "LEVEL SCOPE POLICY GEN MS" of a park or a new gen, "epoch ID" of a
                                           life that may have lost something

A bucket's name, as in i, x and on the channel, is "LEVEL SCOPE POLICY" with the level as a digit: sorted as the pure
centre sorts. All keys come in KEYS. Integers come and are kept as bytes, the lowest first, in forms that stand beside the
functions that read them: an operation costs a fifth less than with msgpack. ARGV[1] begins with the revision that
the asker needs at least.

A library of version 2 does not read what one of version 1 has kept, and none of that was ever released.

TIME is read once in each call. Every number is an integer within 2^53, every time is in ms. Keys expire by themselves,
not before nothing of them matters.
]]

-- Grows with each change of this text. An asker that needs a higher one loads its own.
local REVISION = 1

local EXACT = 9007199254740992
local NEVER = EXACT
-- Constants of the pure centre, with its names.
local FENCE_MS = 120000
local LESSEES_MAX = 65536
local BUCKETS_MAX = 1000000
local BLOCK_PERCENT = 5
local RESERVE_PERCENT = 15
local PARK_MS_MAX = 93600000
local LEASE_MS_MAX, GUARD_MS_MAX = 60000, 60000
local ALPHA_WHOLE, ALPHA_MIN, ALPHA_STEP = 1000, 62, 100
local LONG_WINDOW = 600000
local DEMAND_MS = 3000
local AHEAD_MS_MAX = 1000
local TENANTS_MAX = 16384
local WANTS_MAX = 64
local HOLDERS_SHOWN_MAX = 32
-- Constants of this form of it.
local SLACK_MS = 60000        -- keys live so much longer, and are told so only every so often
local SHARES_MS = 10000       -- shares are kept so long after the last ask: longer than a demand holds
local LOOKS_MAX = 128         -- lessees looked at in one call, at most
local HOLDERS_MAX = 256       -- holders that are told apart when a block is divided
local SCANNED_MAX = 4096      -- lessees that a description adds up

local FIXED, ANCHORED, CALENDAR, SLIDING, BUCKET, CONCURRENCY = 0, 1, 2, 3, 4, 5
local WINDOW, SLOTS, DEBT, HELD = 1, 2, 3, 4

-- A library sees no global while it is loaded, and looking one up later goes through two tables: these are set in the
-- first call.
local floor, min, max, sub, byte, find, format, ipairs, pairs, tonumber, unpack, concat, read, write, call

local function get_ready()
  floor, min, max = math.floor, math.min, math.max
  sub, byte, find, format = string.sub, string.byte, string.find, string.format
  local globals = _G
  ipairs, pairs, tonumber, unpack = globals.ipairs, globals.pairs, globals.tonumber, globals.unpack
  concat = table.concat
  read, write, call = struct.unpack, struct.pack, redis.call
end

-- The only reading of a clock.
local function clock() return call('TIME') end

-- The only reading of who this server is, and of whether it keeps what it is given.
local function about_server() return call('INFO', 'server', 'memory') end
