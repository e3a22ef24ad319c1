
-- Lives of the server ----------------------------------------------------------------------------------------------------
-- What a server granted last is not always known to the one that follows it: a replica that takes over, or the same one
-- started again, may have lost a suffix of it, or everything. The process that answers is named by its run_id, which is
-- taken once: a replica runs no function, and a library that is loaded into another process begins without this.

local life = nil

-- How long what a server says of its memory is believed: an operator may change it while it runs.
local POLICY_MS = 1000

local function this_life(now)
  if life and now >= life.looked and now < life.looked + POLICY_MS then return life end
  local about = about_server()
  if not life then
    life = { id = tonumber(sub(string.match(about, 'run_id:(%x+)'), 1, 13), 16), since = now }
    life.word = format('%d', life.id)
  end
  life.looked = now
  -- A server that drops keys for want of memory forgets what it granted, and does not say so.
  life.evicts = string.match(about, 'maxmemory_policy:(%S+)') ~= 'noeviction' and
                string.match(about, 'maxmemory:(%d+)') ~= '0'
  return life
end

-- Since when the application listens, where it was asked in this life before: 0 where it does not; nil in another life.
local function listens_since(key)
  local mark, word = call('GET', key), life.word
  if mark == word then return 0 end
  if mark and sub(mark, 1, #word + 1) == word .. ' ' then return tonumber(sub(mark, #word + 2)) end
  return nil
end

-- What is known of an application: id of the life, and since when it listens for what it may have forgotten, or nil.
-- The mark is written where it is another's; publishing that makes holders tell what they have.
local function enter_life(app, now, is_look)
  local this = this_life(now)
  local mark = call('GET', app.mark)
  if mark == this.word then return { id = this.id } end
  local id, at
  if mark then
    id, at = string.match(mark, '^(%d+) ?(%d*)$')
    if id == this.word then
      local since = tonumber(at)
      -- No lease is as long as this: nobody has anything to tell any more.
      if now >= since + LEASE_MS_MAX and not is_look then call('SET', app.mark, this.word, 'KEEPTTL') end
      return { id = this.id, since = since }
    end
  end
  -- Without a mark it is a new application, unless the server is new, too: then nobody can tell.
  local is_lost = mark or now < this.since + LEASE_MS_MAX
  local since = is_lost and now or nil
  if not is_look then
    local word = is_lost and format('%d %d', this.id, now) or this.word
    if mark then call('SET', app.mark, word, 'KEEPTTL')
    else call('SET', app.mark, word, 'PX', 2 * SLACK_MS) end
    if is_lost then call('SPUBLISH', app.channel, 'epoch ' .. this.word) end
  end
  return { id = this.id, since = since }
end

-- Until what may be forgotten of buckets of this rule is known again; nil if it is.
local function learning(epoch, r, now)
  if not epoch.since then return nil end
  local ms = epoch.since + r.lease - now
  if ms > 0 then return ms end
  return nil
end
