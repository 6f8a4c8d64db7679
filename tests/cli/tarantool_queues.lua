-- A Tarantool with the spaces of tarantool/queue and of xqueue, and with tasks of every type and state. Neither module
-- is needed: these are the layouts that they have in the database.
-- Arguments: port, directory, number of tasks.
local port, dir, count = tonumber(arg[1]), arg[2], tonumber(arg[3])
local decimal, fiber, uuid = require('decimal'), require('fiber'), require('uuid')

box.cfg({listen = '127.0.0.1:' .. port, work_dir = dir, wal_mode = 'none', log = 'tarantool.log'})
box.schema.user.create('mover', {password = 'se:cret'})
box.schema.user.grant('mover', 'read,write', 'universe')
box.schema.user.create('stranger', {password = 'x'})

local function space(name, format, key)
    local made = box.schema.space.create(name, {format = format})
    made:create_index('primary', {parts = key or {1, format and format[1].type or 'unsigned'}})
    return made
end

local queues = space('_queue', {
    {name = 'tube_name', type = 'string'}, {name = 'tube_id', type = 'unsigned'}, {name = 'space', type = 'string'},
    {name = 'type', type = 'string'}, {name = 'opts', type = '*'},
})

local timed = {
    {name = 'task_id', type = 'unsigned'}, {name = 'status', type = 'string'}, {name = 'next_event', type = 'unsigned'},
    {name = 'ttl', type = 'unsigned'}, {name = 'ttr', type = 'unsigned'}, {name = 'pri', type = 'unsigned'},
    {name = 'created', type = 'unsigned'},
}

local function with(fields, ...)
    local all = {}
    for _, field in ipairs(fields) do table.insert(all, field) end
    for _, name in ipairs({...}) do table.insert(all, {name = name, type = name == 'utube' and 'string' or '*'}) end
    return all
end

local formats = {
    fifo = with({timed[1], timed[2]}, 'data'),
    utube = with({timed[1], timed[2]}, 'utube', 'data'),
    fifottl = with(timed, 'data'),
    limfifottl = with(timed, 'data'),
    utubettl = with(timed, 'utube', 'data'),
}

local function tube(name, type, opts)
    queues:insert({name, queues:len(), name, type, opts or setmetatable({}, {__serialize = 'map'})})
    return space(name, formats[type])
end

local function data(i)
    local kinds = {
        'text ' .. i, i, -i, i + 0.5, {to = 'ann', list = {1, {2, {three = i}}}}, {i, 'two', box.NULL}, box.NULL, true,
        uuid.fromstr(string.format('c8f0fa1f-da29-438c-a040-%012x', i)), decimal.new(i .. '.10'),
        {id = uuid.fromstr(string.format('c8f0fa1f-da29-438c-a040-%012x', i)), price = decimal.new('-0.001')},
        'not \xff UTF-8 ' .. i, 18446744073709551615ULL, '',
    }
    return kinds[i % 14 + 1] == nil and box.NULL or kinds[i % 14 + 1]
end

local YEARS = 3153600000 * 1000000ULL
local function times(i)
    local now = fiber.time64()
    local state = ({'r', 'r', 't', '!', '~'})[i % 5 + 1]
    local ttl = i % 3 == 0 and YEARS or (i % 13 == 0 and 1 or 100000000 + i) * 1000000ULL
    local created = now - 60 * 1000000ULL
    local next_event = state == '~' and now + (50000 + i) * 1000000ULL or created + ttl
    return state, next_event, ttl, i % 4 == 0 and YEARS or (30 + i) * 1000000ULL, i % 9, created
end

local fifo, utube = tube('fifo', 'fifo'), tube('micro', 'utube', {storage_mode = 'default'})
local fifottl = tube('timed', 'fifottl', {ttl = 3600, ttr = 60, pri = 5})
local utubettl, limited = tube('microtimed', 'utubettl'), tube('limited', 'limfifottl', {capacity = 1000000})
tube('volatile', 'fifo', {temporary = true}):insert({0, 'r', 'gone with the process'})
queues:insert({'odd', queues:len(), 'odd', 'my_driver', {}})
space('odd'):insert({0, 'r', 'of a driver'})

local numbered = space('numbered', {
    {name = 'id', type = 'unsigned'}, {name = 'status', type = 'string'}, {name = 'runat', type = 'number'},
    {name = 'priority', type = 'integer'}, {name = 'tube', type = 'string'}, {name = 'payload', type = 'any', is_nullable = true},
    {name = 'note', type = 'string', is_nullable = true},
})
numbered:create_index('xq', {parts = {2, 'string', 4, 'integer', 1, 'unsigned'}})
numbered:create_index('run', {parts = {3, 'number', 1, 'unsigned'}})
local named = space('named', {
    {name = 'key', type = 'string'}, {name = 'status', type = 'string'}, {name = 'payload', type = 'any', is_nullable = true},
})
named:create_index('xq', {parts = {2, 'string', 1, 'string'}})
space('plain', {{name = 'id', type = 'unsigned'}, {name = 'text', type = 'string'}}):insert({1, 'no queue'})

box.begin()
for n = 1, math.floor(count / 7) do
    local i = n + math.floor(n / 6)  -- With gaps.
    local state, next_event, ttl, ttr, pri, created = times(i)
    local plain = ({'r', 't', '!'})[i % 3 + 1]
    fifo:insert({i, plain, data(i)})
    utube:insert({i, plain, 'user ' .. i % 20, data(i)})
    fifottl:insert({i, state, next_event, ttl, ttr, pri, created, data(i)})
    limited:insert({i, state, next_event, ttl, ttr, pri, created, data(i)})
    utubettl:insert({i, state, next_event, ttl, ttr, pri, created, 'user ' .. i % 20, data(i)})
    local status = ({'R', 'T', 'W', 'B', 'R', 'Z', 'D'})[i % 7 + 1]
    local runat = status == 'W' and fiber.time() + 50000 + i or (i % 2 == 0 and status == 'R') and fiber.time() + 90000 or 0
    numbered:insert({i, status, runat, i % 5 - 2, 'tube ' .. i % 3, data(i), i % 2 == 0 and 'note' or box.NULL})
    named:insert({uuid.fromstr(string.format('%08x-da29-438c-a040-c8f0fa1fda29', i * 7919)):str(), ({'R', 'T', 'B'})[i % 3 + 1], data(i)})
end
box.commit()
print('ready')
io.stdout:flush()
