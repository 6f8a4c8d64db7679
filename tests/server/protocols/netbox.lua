-- What Tarantool's own client does with a tube of Penstock's: tarantool netbox.lua PORT USER PASSWORD
local net = require('net.box')
local fiber = require('fiber')
local json = require('json')
local address = '127.0.0.1:' .. arg[1]
local c = net.connect(address, arg[2] and { user = arg[2], password = arg[3] } or nil)
assert(c:ping(), c.error or c.state)

local function tell(...)
    print(json.encode({ ... }))
end

tell(c:call('queue.create_tube', { 'net.box', 'fifottl', {} }).type)
tell(c:call('queue.tube.net.box:put', { { key = { 1, 2 } }, {} }))
tell(c:call('queue.tube.net.box:put', { 'text', { pri = 1, ttl = 60 } }))
tell(c:call('queue.tube.net.box:take', {}))
tell(c:call('queue.tube.net.box:ack', { 0 }))
tell(c:call('queue.tube.net.box:take', { 0 })[3])

-- Two takes that wait on one connection, and puts beside them.
local got = fiber.channel(2)
for _ = 1, 2 do
    fiber.create(function() got:put(c:call('queue.tube.net.box:take', { 10 })[3]) end)
end
fiber.sleep(0.02)
c:call('queue.tube.net.box:put', { 'first' })
c:call('queue.tube.net.box:put', { 'second' })
local both = { got:get(), got:get() }
table.sort(both)
tell(both)

tell(c:call('queue.statistics', { 'net.box' }).tasks.taken)
tell(c:eval('return queue.tube(...)', { 'net.box' }))
tell(#c:call('queue.identify', {}))
tell(select(2, pcall(c.call, c, 'queue.tube.net.box:ack', { 99 })).message)
tell(select(2, pcall(c.call, c, 'queue.nope', {})).code)

-- What a connection has taken goes back with it, and another takes it.
c:close()
c = net.connect(address, arg[2] and { user = arg[2], password = arg[3] } or nil)
tell(c:call('queue.tube.net.box:take', { 10 })[2])

-- Options that a type does not have, and values that Lua coerces.
tell(
    c:call('queue.create_tube', { 'fifo', 'fifo', { capacity = 100 } }).type,
    c:call('queue.create_tube', { 'ttl', 'fifottl', { if_not_exist = true } }).type
)
c:call('queue.tube.fifo:put', { 'x', { pri = '1' } })
c:call('queue.tube.fifo:put', { 'y', { ttr = 0 } })
tell(c:call('queue.tube.fifo:take', { 0, { stube = 's' } })[3])
c:call('queue.tube.fifo:bury', { 0 })
c:call('queue.tube.fifo:bury', { 1 })
local function kick(count) return c:call('queue.tube.fifo:kick', { count }) end
tell(kick(-1), kick('1'), kick(1.5))
tell(select('#', c:call('queue.tube.fifo:touch', { 0 })))
local function refusal(...) return select(2, pcall(c.call, c, ...)) end
local exists = refusal('queue.create_tube', { 'fifo', 'fifo' })
tell(exists.code, exists.message)
tell(refusal('queue.identify', { string.rep('\0', 16) }).message)
c:call('queue.cfg', { { in_replicaset = true } })
tell(refusal('queue.create_tube', { 'temporary', 'fifo', { temporary = true } }).message)
c:call('queue.cfg', { { in_replicaset = false } })

-- A space of xqueue.
c:call('xqueue.upgrade', { 'rows', {
    format = {
        { name = 'id', type = 'unsigned' },
        { name = 'status', type = 'string' },
        { name = 'runat', type = 'number' },
        { name = 'tube', type = 'string' },
    },
    fields = { status = 'status', runat = 'runat', tube = 'tube' },
    features = { id = 'auto_increment', keep = true },
} })
local options, changed = c:call('xqueue.upgrade', { 'rows', { tube_stats = { 'mail' } } })
assert(options.features.keep)
tell(options.tube_stats, changed)
local missing = refusal('box.space.rows:put', { { id = 1 } })
tell(missing.code, missing.message)
c:call('box.space.rows:put', { { tube = 'mail' } })
c:call('box.space.rows:take', {})
c:call('box.space.rows:bury', { 1 })
tell(c:call('box.space.rows:stats', { true }).counts)
local row, processed = c:call('box.space.rows:wait', { 1, 100 })
tell(row.status, processed)

-- Values nest 64 levels deep.
local function nested(levels)
    local value = {}
    for _ = 2, levels do value = { value } end
    return value
end
local function depth(value) return value and 1 + depth(value[1]) or 0 end
tell(depth(c:call('queue.tube.fifo:put', { nested(64) })[3]), refusal('queue.tube.fifo:put', { nested(65) }).code)
assert(c:ping())
c:close()
os.exit(0)
