-- What Tarantool's own client reads of Penstock's spaces: tarantool netbox_spaces.lua PORT
local net = require('net.box')
local json = require('json')
local c = net.connect('127.0.0.1:' .. arg[1])
assert(c:ping(), c.error or c.state)

local function tell(...)
    print(json.encode({ ... }))
end

local jobs = c.space.netbox_jobs
tell(jobs:select({ 2 }, { iterator = 'GE' }))
tell(jobs:select({ 3 }, { iterator = box.index.LT, limit = 1 }))
tell(jobs:get(1), jobs:get(99) == nil, jobs:get(1).status)
tell(jobs.index.tube_status:select({ 'b' }))
tell(jobs.index.status:select({ 'W' }, { iterator = 'REQ', limit = 1 })[1][1])
tell(jobs.index.runat:select({ 1 }, { iterator = 'GE', limit = 1 })[1][1])
tell(jobs.index.status:count({ 'W' }), jobs.index.primary:min()[1], jobs.index.primary:max()[1])
tell(c.space.netbox_tube:select({ 0 }, { iterator = 'GT' })[1][3], c.space.netbox_tube.index.status:count('r'))
local tube = c.space._queue:get('netbox_tube')
tell(tube[1], tube[4], c.space._queue.index.tube_id:get(tube[2])[1])
tell(c.space._queue_taken.index.task:select({ tube[2] })[1][3])
tell(c.space._queue_taken_2.index.task:get({ tube[2], 0 })[2], #c.space._queue_consumers:select({}, { limit = 0 }))
tell(select(2, pcall(jobs.select, jobs, { 'x' })).message)

-- A space that came later is there after the next connect.
c:call('queue.create_tube', { 'netbox_later', 'fifo' })
tell(c.space.netbox_later == nil, #c:call('box.space.netbox_later:select'))
c:close()
c = net.connect('127.0.0.1:' .. arg[1])
tell(c.space.netbox_later:select())
os.exit(0)
