#!/bin/sh
# Three agents, each in a network namespace of its own, join a new cluster by one token and run a step each.
#
#   tests/join/three-agents.sh [DIR]
#
# From a fresh clone, as root, with `ip` and cargo. Builds what it needs, says what it sees, and takes away what it made:
# files are below a temporary folder, which stays where something went wrong, or below DIR, which stays. Exit 0 is that all
# three joined, ran a step, and that the one whose access was ended is out.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-$(mktemp -d /tmp/sluice-join.XXXXXX)}
mkdir -p "$dir"
tag=slj$$
bridge=$tag-br
net=10.$((100 + $$ % 100)).$(($$ % 250))
pids=""

cleanup() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    for pid in $pids; do wait "$pid" 2>/dev/null || true; done
    for n in 1 2 3; do ip netns del "$tag-$n" 2>/dev/null || true; done
    ip link del "$bridge" 2>/dev/null || true
    if [ -z "$kept" ]; then rm -rf "$dir"; fi
}
kept=yes
trap cleanup EXIT INT TERM

say() { printf '\n== %s\n' "$*"; }

# Waits until a command succeeds, for at most a minute.
until_true() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || { echo "gave up waiting for: $*" >&2; exit 1; }
        sleep 0.2
    done
}

say "build"
(cd "$root" && cargo build --locked -q -p sluice-coordinator -p sluice-agent -p sluice-supervisor -p sluice-helper -p sluice)
bin=${CARGO_TARGET_DIR:-$root/target}/debug

say "a network with three hosts on it: $net.0/24"
ip link add "$bridge" type bridge
ip addr add "$net.254/24" dev "$bridge"
ip link set "$bridge" up
for n in 1 2 3; do
    ip netns add "$tag-$n"
    ip link add "$tag-v$n" type veth peer name eth0 netns "$tag-$n"
    ip link set "$tag-v$n" master "$bridge" up
    ip -n "$tag-$n" addr add "$net.$n/24" dev eth0
    ip -n "$tag-$n" link set lo up
    ip -n "$tag-$n" link set eth0 up
done

say "a cluster"
"$bin/sluice-coordinator" init --data-dir "$dir/coordinator"
cat >"$dir/coordinator.toml" <<TOML
quic = "$net.254:7443"
http = "127.0.0.1:0"
data_dir = "$dir/coordinator"
TOML
"$bin/sluice-coordinator" --config "$dir/coordinator.toml" >"$dir/ready" 2>"$dir/coordinator.log" &
pids="$pids $!"
until_true grep -q '^ready' "$dir/ready"
http=$(sed -n 's/.*"http":"\([^"]*\)".*/\1/p' "$dir/ready")
export SLUICE_CONTEXT="$dir/context.json"
"$bin/sluice" login "http://$http" --token-file "$dir/coordinator/api-token" --subject default

say "one token for three hosts"
umask 077
"$bin/sluice" token create --uses 3 --ttl 10m --label shown=here >"$dir/line"

for n in 1 2 3; do
    host="$dir/host-$n"
    mkdir -p "$host/run" "$host/state"
    cat >"$host/agent.toml" <<TOML
state_dir = "$host/state"
supervisor_socket = "$host/run/supervisor.sock"
address = "$net.$n"
TOML
    printf 'default_user = "root"\nallow_root = true\n' >"$host/supervisor.toml"
    ip netns exec "$tag-$n" "$bin/sluice-agent" --config "$host/agent.toml" --node "host-$n" join <"$dir/line"
    ip netns exec "$tag-$n" "$bin/sluice-supervisor" --state-dir "$host/run" --config "$host/supervisor.toml" \
        2>"$host/supervisor.log" &
    pids="$pids $!"
    ip netns exec "$tag-$n" "$bin/sluice-agent" --config "$host/agent.toml" 2>"$host/agent.log" &
    pids="$pids $!"
done

all_ready() { [ "$("$bin/sluice" get nodes --state ready -o name | wc -l)" -eq 3 ]; }
until_true all_ready
"$bin/sluice" get nodes -o wide
"$bin/sluice" token list

say "a fourth host finds the token used up"
if ip netns exec "$tag-1" "$bin/sluice-agent" --state-dir "$dir/fourth" --node host-4 join <"$dir/line"; then
    echo "it joined" >&2
    exit 1
fi

say "a step on each"
for n in 1 2 3; do
    "$bin/sluice" cordon host-1 host-2 host-3 >/dev/null
    "$bin/sluice" uncordon "host-$n" >/dev/null
    "$bin/sluice" run --cpus 1 -- ip -4 -o addr show eth0 | grep "$net.$n/24"
done

say "the access of one is ended"
"$bin/sluice" uncordon host-1 host-2 >/dev/null
"$bin/sluice" revoke node host-3
one_out() { "$bin/sluice" get nodes --state unreachable -o name | grep -q host-3; }
until_true one_out
until_true grep -q "access of node .host-3. was ended" "$dir/host-3/agent.log"
"$bin/sluice" get nodes

[ $# -gt 0 ] || kept=
say "all of it was seen"
