#!/usr/bin/env bash
# A cluster of three nodes that loses one of them, and no job.
#
#   pip install 'penstock-queue[server]'
#   examples/three_nodes.sh [FIRST PORT]
set -euo pipefail

first=${1:-7711}
ports=("$first" $((first + 1)) $((first + 2)))
home=$(mktemp -d)
declare -A nodes

stop() { kill "${nodes[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$home"; }
trap stop EXIT

url() { echo "penstock://127.0.0.1:$1?retry_for=30s"; }

for port in "${ports[@]}"; do
  penstock serve --dir "$home/$port" --port "$port" --iproto-port 0 --cluster-node-timeout 2000 >"$home/$port.log" &
  nodes[$port]=$!
done

# Each node has to meet one other node. They introduce each other.
for port in "${ports[@]:1}"; do
  penstock cluster meet "127.0.0.1:$port" --url "$(url "$first")"
done
until [ "$(penstock cluster info --url "$(url "$first")" --json | grep -c '"nodes": 3')" = 1 ]; do sleep 0.2; done

# A disque tube has copies of each job on several nodes. The put is answered when all copies exist.
penstock cli --url "$(url "$first")" ADDJOB letters "dear ann" 5000 REPLICATE 3 RETRY 1 >/dev/null
echo "a job has three copies"

{ kill -9 "${nodes[$first]}" && wait "${nodes[$first]}"; } 2>/dev/null || true
echo "the node that had it queued is gone"

echo "another node delivered: $(penstock take letters --url "$(url "${ports[1]}")" --timeout 30s --ack --body)"
