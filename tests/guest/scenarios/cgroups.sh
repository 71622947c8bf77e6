# Limits, kills and accounts of steps by a kernel that has every controller: what a step may use bites, what it became is
# said, and nothing of it is left.
. /scenario/cluster.sh

grep_log() { journalctl -o cat -u sluice-supervisor | grep -q "$1"; }
# An hour of nothing, as something that cannot be mistaken.
idle='exec sleep 3600'

limits_are_set() {
    local step
    step=$(submit --cpus 0.5 --memory 64MiB -- sh -c "$idle")
    reaches "$step" running
    for file in cpu.max cpu.weight memory.max memory.swap.max memory.oom.group pids.max; do
        echo "$file: $(read_file "$step" $file 2>&1)"
    done
    [ "$(read_file "$step" cpu.max)" = '50000 100000' ]
    [ "$(read_file "$step" cpu.weight)" = 50 ]
    is_the_memory "$step"
    [ "$(read_file "$step" pids.max)" = 60 ]
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    eventually 10 'the group to be gone' has_no_group "$step"
}

memory_bites() {
    local step
    step=$(submit --cpus 0.5 --memory 64MiB -- sh -c 'tail /dev/zero')
    reaches "$step" failed
    field "$step" '"\(.reason) \(.exit)"'
    field "$step" .reason | grep -q out_of_memory
    eventually 10 'the group to be gone' has_no_group "$step"
    [ -z "$(pgrep -x tail)" ]
}

# One process of several is taken; the step is what ran out of memory, and all of it ends.
memory_of_a_child_bites() {
    local step
    step=$(submit --cpus 0.5 --memory 64MiB -- sh -c 'sleep 3600 & tail /dev/zero; sleep 3600')
    reaches "$step" failed
    field "$step" '"\(.reason) \(.exit)"'
    field "$step" .reason | grep -q out_of_memory
    eventually 10 'the group to be gone' has_no_group "$step"
    [ -z "$(pgrep -x tail)" ]
}

processor_bites() {
    local step before after start end
    step=$(submit --cpus 0.25 -- sh -c 'while :; do :; done')
    reaches "$step" running
    eventually 20 'the kernel to hold it back' is_at_least 5 key "$step" cpu.stat nr_throttled
    start=$(date +%s%N) before=$(key "$step" cpu.stat usage_usec)
    sleep 6
    end=$(date +%s%N) after=$(key "$step" cpu.stat usage_usec)
    local percent=$(((after - before) * 100 / ((end - start) / 1000)))
    echo "$percent % of a processor where 25 were granted; held back $(key "$step" cpu.stat nr_throttled) times"
    # A busy machine may give it less, nothing may give it much more.
    [ "$percent" -ge 5 ] && [ "$percent" -le 35 ]
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
}

fork_bomb() {
    local step other
    step=$(submit --cpus 0.5 --memory 256MiB --grace 2s -- bash -c 'bomb() { bomb | bomb & }; bomb; while :; do sleep 1; done')
    eventually 60 'the bomb to reach its limit' is_at_least 1 key "$step" pids.events max
    echo "processes: $(read_file "$step" pids.current) of $(read_file "$step" pids.max), refused $(key "$step" pids.events max) times"
    other=$(submit --cpus 0.1 -- true)
    reaches "$other" succeeded
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    eventually 20 'the group to be gone' has_no_group "$step"
}

# A daemon of its own session, forked twice, that ignores signals, outlives the process that started it by nothing.
daemon() {
    local step pid
    step=$(submit --cpus 0.1 --grace 2s -- bash -c 'trap "" TERM HUP INT; (setsid sleep 3600 & echo $! >/tmp/daemon) & wait; sleep 1')
    reaches "$step" succeeded
    pid=$(cat /tmp/daemon)
    eventually 10 'the group to be gone' has_no_group "$step"
    [ ! -d "/proc/$pid" ]
}

# What nobody asked to be frozen is not left so.
is_thawed() { ! is_frozen "$1"; }
frozen() {
    local step
    step=$(submit --cpus 0.1 -- sh -c "$idle")
    reaches "$step" running
    echo 1 >"$(group "$step")/cgroup.freeze"
    eventually 10 'the freeze to be seen' grep_log "step=$step .*state=Frozen"
    eventually 10 'the group to be thawed' is_thawed "$step"
    is_state "$step" running
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    eventually 10 'the group to be gone' has_no_group "$step"
}

# Frozen by its caller, a step counts nothing and holds its place; then it goes on.
suspended() {
    local step seen
    step=$(submit --cpus 0.1 -- sh -c 'n=0; while sleep 0.1; do n=$((n + 1)); echo $n; done')
    eventually 30 'the step to count' is_at_least 3 counted "$step"
    sluice suspend "$step" >/dev/null
    reaches "$step" suspended
    is_frozen "$step"
    seen=$(counted "$step")
    sleep 2
    [ "$(counted "$step")" = "$seen" ]
    sluice resume "$step" >/dev/null
    reaches "$step" running
    eventually 30 'the step to count on' is_at_least $((seen + 3)) counted "$step"
    sluice logs "$step" | awk '$1 != NR { exit 1 }'
    sluice suspend "$step" >/dev/null
    reaches "$step" suspended
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    eventually 10 'the group to be gone' has_no_group "$step"
}

# Not root, nothing that it could become, and no device of a GPU that it was not granted.
confined() {
    local step seen
    step=$(submit --cpus 0.1 -- sh -c 'id -un; grep -E "Cap|NoNew" /proc/self/status; echo x >/dev/full; cat /dev/null')
    eventually 60 'the step to end' is_over "$step"
    seen=$(sluice logs "$step"; sluice logs --stderr "$step")
    echo "$seen"
    grep -qx step <<<"$seen"
    grep -qE 'NoNewPrivs:\s*1' <<<"$seen"
    ! grep -qE 'Cap(Inh|Prm|Eff|Bnd|Amb):\s*0*[1-9a-f]' <<<"$seen"
    grep -q 'full: Operation not permitted' <<<"$seen"
    is_state "$step" succeeded
}
is_over() { case $(field "$1" .state) in succeeded | failed) ;; *) false ;; esac; }

# Steps keep group and limits through restarts and deaths of the daemons, and what the limits do is still seen.
daemons_restart() {
    local step hog unit
    step=$(submit --cpus 0.1 --memory 64MiB -- sh -c "$idle")
    hog=$(submit --cpus 0.5 --memory 64MiB -- sh -c 'while [ ! -e /tmp/go ]; do sleep 0.2; done; tail /dev/zero')
    reaches "$step" running
    reaches "$hog" running
    for unit in supervisor agent; do
        systemctl restart "sluice-$unit"
        kill -KILL "$(pid_of $unit)"
        eventually 30 "$unit to be back" systemctl is-active -q "sluice-$unit"
    done
    eventually 60 'the node to be ready' node_is_ready
    is_state "$step" running
    is_state "$hog" running
    is_the_memory "$step"
    touch /tmp/go
    reaches "$hog" failed
    field "$hog" '"\(.reason) \(.exit)"'
    field "$hog" .reason | grep -q out_of_memory
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    eventually 10 'the groups to be gone' has_no_group "attempt"
}

# The unit that holds the tree is not to be stopped by hand. Where its process dies all the same, steps run on and others
# start. From systemd 254 on it is back while they run.
systemd_version() { systemctl --version | awk 'NR == 1 { print $2 }'; }
holder_dies() {
    local step other
    ! systemctl stop sluice-steps 2>/dev/null
    step=$(submit --cpus 0.1 -- sh -c "$idle")
    reaches "$step" running
    kill -KILL "$(pid_of steps)"
    sleep 3
    systemctl show -P ActiveState,SubState,Result sluice-steps
    is_state "$step" running
    [ -n "$(group "$step")" ]
    other=$(submit --cpus 0.1 -- true)
    reaches "$other" succeeded
    if [ "$(systemd_version)" -ge 254 ]; then
        eventually 60 'the holder to be back beside the step' systemctl is-active sluice-steps
        is_state "$step" running
        [ -n "$(group "$step")" ]
    fi
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    eventually 60 'the holder to be back once nothing runs' systemctl is-active sluice-steps
    other=$(submit --cpus 0.1 --memory 64MiB -- true)
    reaches "$other" succeeded
}

# Processors by weight and of its own, in the files of version 2 and in what the kernel makes of them.
processors_are_had() {
    local step
    sluice get node guest -o json | jq -e '.inventory.capabilities.cpuset == "cgroup2"'
    step=$(submit --cpus 0.5 --cpu-mode weight -- sh -c "$idle")
    reaches "$step" running
    [ "$(read_file "$step" cpu.max)" = 'max 100000' ] && [ "$(read_file "$step" cpu.weight)" = 50 ]
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    ! submit --id unable --cpus 1 --cpu-mode pinned -- true
    is_state unable rejected
    printf 'kind: pool\nname: default\nrequire: [cpuset]\n' >/tmp/pool.yaml
    sluice apply -f /tmp/pool.yaml
    step=$(submit --cpus 1 --cpu-mode pinned -- sh -c "$idle")
    reaches "$step" running
    for file in cpuset.cpus cpuset.cpus.effective cpuset.mems; do
        echo "$file: $(read_file "$step" $file)"
    done
    grep Cpus_allowed_list "/proc/$(read_file "$step" cgroup.procs | head -1)/status"
    [ "$(read_file "$step" cpuset.cpus.effective)" = "$(read_file "$step" cpuset.cpus)" ]
    [ -n "$(read_file "$step" cpuset.cpus)" ] && [ "$(read_file "$step" cpu.max)" = 'max 100000' ]
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
}

nothing_is_left() {
    eventually 20 'the tree to be empty' has_no_group ''
    find "$steps" -mindepth 1 -type d
    ! grep -l '^0::.*attempt-' /proc/[0-9]*/cgroup 2>/dev/null
    ! ps -eo stat,args | grep '^Z'
    [ "$(sluice get node guest -o json | jq '.used | map_values(select(. != 0)) | length')" = 0 ]
}

say 'up'
cluster_up
sluice get node guest -o json | jq -c .inventory.capabilities
journalctl -o cat -u sluice-supervisor | grep 'attempts run in'
trial 'limits are set' limits_are_set
trial 'memory bites' memory_bites
trial 'memory of a child bites' memory_of_a_child_bites
trial 'processor bites' processor_bites
trial 'processors are had' processors_are_had
trial 'a fork bomb' fork_bomb
trial 'a daemon that ignores signals' daemon
trial 'frozen by somebody else' frozen
trial 'suspended and resumed' suspended
trial 'confined' confined
trial 'daemons restart and die' daemons_restart
trial 'the holder dies' holder_dies
trial 'nothing is left' nothing_is_left
verdict
