// Producer and worker in Node.js. Penstock speaks the Redis protocol, so any Redis client works.
//
//   penstock serve &
//   npm install && node worker.mjs

import { createClient } from 'redis';

const address = process.env.PENSTOCK_URL ?? 'penstock://127.0.0.1:7711';
const client = createClient({ url: address.replace('penstock://', 'redis://') });
client.on('error', (error) => console.error(error.message));
await client.connect();

// A session with a grace time: if the connection is lost, this worker keeps its jobs for 30 seconds.
await client.sendCommand(['IDENTIFY', 'GRACE', '30s']);
await client.sendCommand(['TUBE', 'CREATE', 'orders', 'TYPE', 'fifottl', 'TTR', '30s', 'RETRY', '3x const(1s) then bury']);

for (const order of [1, 2, 3]) {
  await client.sendCommand(['PUT', 'orders', JSON.stringify({ order }), 'AS', 'json']);
}

for (;;) {
  const taken = await client.sendCommand(['TAKE', 'orders', 'COUNT', '10', 'TIMEOUT', '200ms']);
  if (taken.length === 0) break;
  for (const fields of taken) {
    // In RESP 2, a map is a list of names and values.
    const job = {};
    for (let at = 0; at < fields.length; at += 2) job[fields[at]] = fields[at + 1];
    try {
      console.log('order', JSON.parse(job.body).order);
      await client.sendCommand(['ACK', job.id]);
    } catch (error) {
      await client.sendCommand(['JOB', 'NACK', job.id, 'REASON', String(error)]);
    }
  }
}
await client.close();
