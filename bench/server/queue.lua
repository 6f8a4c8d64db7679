-- Tarantool with a queue, for the bench: its `queue` module if it is installed, else the least that one must do.
--   tarantool queue.lua PORT
box.cfg({ listen = '127.0.0.1:' .. arg[1], wal_mode = 'none', log_level = 2, memtx_memory = 512 * 1024 * 1024 })
box.schema.user.grant('guest', 'super', nil, nil, { if_not_exists = true })

local found, module = pcall(require, 'queue')
if found then
    queue = module
    queue.create_tube('bench', 'fifo', { if_not_exists = true })
    return
end

local space = box.schema.space.create('bench', { if_not_exists = true })
space:create_index('id', { parts = { 1, 'unsigned' }, if_not_exists = true })
space:create_index('state', { parts = { 2, 'string', 1, 'unsigned' }, if_not_exists = true })
local taken = {}
local tube = {}

function tube:put(data)
    local last = space.index.id:max()
    return space:insert({ last and last[1] + 1 or 0, 'r', data })
end

function tube:take()
    local first = space.index.state:min({ 'r' })
    if first == nil or first[2] ~= 'r' then
        return
    end
    taken[first[1]] = box.session.id()
    return space:update(first[1], { { '=', 2, 't' } })
end

function tube:ack(id)
    if taken[id] ~= box.session.id() then
        error('Task was not taken')
    end
    taken[id] = nil
    return space:delete(id)
end

queue = { tube = { bench = tube } }
