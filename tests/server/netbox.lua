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
c:close()
os.exit(0)
