
-- A register ------------------------------------------------------------------------------------------------------------
-- One value per provider, written by whoever has read the latest. {q:PROVIDER}:breaker is a STRING: the version in seven
-- bytes, then the value. A version is the microsecond of its write, or one more than the version it follows: one that a
-- key had before it was lost does not come again, unless the clock goes back just as far.
-- KEYS: the one. ARGV[1]: <B of the revision.
-- All of it is in one block, since it has nothing in common with the rest but the clock.

do
  local VALUE_MAX = 49152
  local TTL_MS_MAX = 86400000

  -- What is there, and the server's time in ms; or nil and an error.
  local function look(keys, args)
    if not floor then get_ready() end
    if byte(args[1]) > REVISION then
      return nil, redis.error_reply('TGREVISION this library is of revision ' .. REVISION)
    end
    local time = clock()
    local micros = time[1] * 1000000 + time[2]
    local kept = call('GET', keys[1])
    if kept and #kept >= 7 then
      return { version = read('<I7', kept), bytes = sub(kept, 8), micros = micros, now = floor(micros / 1000) }
    end
    return { version = 0, bytes = '', micros = micros, now = floor(micros / 1000) }
  end

  -- Answer: version now value
  local function register_read(keys, args)
    local kept, err = look(keys, args)
    if not kept then return err end
    return { kept.version, kept.now, kept.bytes }
  end

  -- ARGV[1]: <BI7I4 with the expected version and the life in ms; ARGV[2]: the value. Answer: 1 version, or 0 and what is
  -- there, as of a read.
  local function register_write(keys, args)
    local kept, err = look(keys, args)
    if not kept then return err end
    local _, expected, ttl = read('<BI7I4', args[1])
    if kept.version ~= expected then return { 0, kept.version, kept.now, kept.bytes } end
    if #args[2] > VALUE_MAX then return redis.error_reply('ERR the value is too long') end
    local version = min(max(kept.version + 1, kept.micros), EXACT)
    call('SET', keys[1], write('<I7', version) .. args[2], 'PX', format('%d', max(1, min(ttl, TTL_MS_MAX))))
    return { 1, version }
  end

  redis.register_function{
    function_name = 'tidegate_quota_v2_register_read', callback = register_read, flags = { 'no-writes' },
  }
  redis.register_function('tidegate_quota_v2_register_write', register_write)
end
