# Leases are kept whatever becomes of the supervisor, while the host is cut off: no step runs when its host is given up.
. /scenario/cluster.sh

# The least that the coordinator takes for these. From its first start: a lease that was given holds for as long as it was
# given.
mkdir -p /run/systemd/system/sluice-coordinator.service.d
cat >/run/systemd/system/sluice-coordinator.service.d/terms.conf <<UNIT
[Service]
Environment=SLUICE_LEASE=10s SLUICE_STOP_LIMIT=5s SLUICE_HEARTBEAT=1s SLUICE_UNREACHABLE_AFTER=5s SLUICE_LOST_AFTER=35s
UNIT
systemctl daemon-reload
cluster_up
# This scenario is a unit, and is to see rescue mode to its end.
mkdir -p /run/systemd/system/scenario.service.d
printf '[Unit]\nIgnoreOnIsolate=yes\n' >/run/systemd/system/scenario.service.d/isolate.conf
systemctl daemon-reload

is_active() { [ "$(systemctl is-active "sluice-$1")" = active ]; }
node_is() { sluice get node guest -o json | jq -e --arg state "$1" '.state == $state'; }
runs() { [ -n "$(find "$steps" -path "*attempt-$1*" -name cgroup.events -exec grep -l "populated 1" {} + 2>/dev/null)" ]; }
has_failures() { [ "$(systemctl show -P NRestarts sluice-supervisor)" -ge 7 ]; }

# A step that ignores SIGTERM, and has a daemon that does.
stubborn() {
    step=$(submit --cpus 0.1 --grace 2s -- sh -c 'trap "" TERM; setsid sleep 1000 & while :; do sleep 0.2; done')
    reaches "$step" running
}
# The agent says nothing any more, and nobody finds that out.
cut() { cut=$(pid_of agent) && kill -STOP "$cut" && at=$SECONDS; }
heal() { kill -CONT "$cut"; }
# The step ends before its host is given up. On a busy machine a question takes its time: so the step is looked at alone, and
# the host when the step has ended.
ends_in_time() {
    while runs "$step"; do
        [ $((SECONDS - at)) -lt 300 ] || fail 'the step runs on'
        sleep 0.2
    done
    local ended=$((SECONDS - at))
    echo "ended $ended s after the cut"
    [ "$ended" -lt 35 ] || ! node_is lost >/dev/null || fail 'the host was lost before'
    journalctl --no-pager -o short-precise -u sluice-steps -u sluice-keeper --since "-${ended}s" |
        grep -m 1 'killed by the keeper' | sed 's/.*sluice-sup/sluice-sup/' || true
}
# Everybody is there again and tells how it ended.
settles() {
    eventually 90 'the supervisor to be active' is_active supervisor
    eventually 90 'the node to be ready' node_is_ready
    sluice cancel "$step" >/dev/null || true
    eventually 90 'nothing of it to be left' has_no_group "$step"
}
ended_as() { field "$step" '.attempts[0].exit.message' | grep lease; }

scores() {
    stubborn
    local unit
    for unit in supervisor agent coordinator steps; do
        echo "$unit $(cat "/proc/$(pid_of "$unit")/oom_score_adj")"
    done
    for unit in supervisor agent coordinator; do [ "$(cat "/proc/$(pid_of "$unit")/oom_score_adj")" = -900 ]; done
    [ "$(cat "/proc/$(pid_of steps)/oom_score_adj")" = -1000 ]
    local pid
    for pid in $(cat "$(group "$step")/cgroup.procs"); do
        # One that has just ended has none.
        [ "$(cat "/proc/$pid/oom_score_adj" 2>/dev/null || echo 0)" = 0 ]
    done
    settles
}

stopped() {
    stubborn
    cut
    kill -STOP "$(pid_of supervisor)"
    ends_in_time
    kill -CONT "$(pid_of supervisor)"
    heal
    settles
    ended_as
}

cannot_start() {
    stubborn
    cp /etc/sluice/supervisor.toml /etc/sluice/supervisor.toml.good
    echo 'no_such_key = 1' >>/etc/sluice/supervisor.toml
    cut
    kill -KILL "$(pid_of supervisor)"
    ends_in_time
    eventually 60 'more failed starts than a unit usually has' has_failures
    [ "$(systemctl is-failed sluice-supervisor)" != failed ] || fail 'the unit is failed for good'
    cp /etc/sluice/supervisor.toml.good /etc/sluice/supervisor.toml
    heal
    settles
    ended_as
}

crash_loop() {
    stubborn
    cut
    (while :; do
        pid=$(pid_of supervisor)
        [ "$pid" = 0 ] || kill -KILL "$pid" 2>/dev/null
    done) &
    local killer=$!
    ends_in_time
    kill "$killer"
    heal
    settles
}

# The kernel kills the supervisor, and each that follows it, for want of memory.
out_of_memory() {
    stubborn
    cut
    systemctl set-property --runtime sluice-supervisor MemoryMax=1M
    ends_in_time
    eventually 30 'the kernel to say that it killed the supervisor' was_killed_for_memory
    systemctl set-property --runtime sluice-supervisor MemoryMax=infinity
    heal
    settles
    ended_as
}
was_killed_for_memory() { journalctl -k --no-pager -o cat | grep 'Killed process .*(sluice-supervis'; }

# A step holds memory as a file, which no process is charged with, and the kernel looks for whom to kill (`f` of sysrq): it
# comes to the step before it comes to a daemon, however small the step's processes are. What systemd starts again at once,
# as large as before, would be chosen for ever.
memory_filled() {
    local before
    # A socket of udev's that is used in that moment cancels its own stop.
    eventually 30 'consoles and udev to stop' systemctl stop 'getty@*' 'serial-getty@*' 'systemd-udevd*'
    before=$(daemons)
    step=$(submit --cpus 0.1 -- sh -c 'head -c 300000000 /dev/zero >/dev/shm/filled; sleep 1000 & wait')
    eventually 60 'the file to be there' is_filled
    eventually 60 'the kernel to kill the step' has_killed_the_step
    rm -f /dev/shm/filled
    reaches "$step" failed
    field "$step" .reason.message
    journalctl -k --no-pager -o cat | grep -o 'Killed process [0-9]* ([^)]*)' || true
    [ "$(daemons)" = "$before" ] || fail "daemons were killed: $before before, $(daemons) after"
}
is_filled() { [ "$(stat -c %s /dev/shm/filled)" = 300000000 ]; }
has_killed_the_step() {
    runs "$step" || return 0
    echo f >/proc/sysrq-trigger
    # Whoever is killed needs a moment to end.
    sleep 1
    ! runs "$step"
}
daemons() { for unit in supervisor agent coordinator steps; do pid_of "$unit"; done | paste -sd ' '; }

# Neither the supervisor nor the keeper that runs all the time: systemd alone is left.
only_the_timer() {
    stubborn
    cut
    kill -STOP "$(pid_of steps)" "$(pid_of supervisor)"
    ends_in_time
    kill -CONT "$(pid_of steps)" "$(pid_of supervisor)"
    heal
    settles
    ended_as
}

# Before systemd 254 the holder cannot be started again while a step runs.
no_holder() {
    stubborn
    cut
    kill -KILL "$(pid_of steps)"
    kill -STOP "$(pid_of supervisor)"
    ends_in_time
    kill -CONT "$(pid_of supervisor)"
    heal
    settles
    # Before systemd 254 not as long as a step runs.
    eventually 60 'the holder to be active' is_active steps
}

rescue() {
    stubborn
    at=$SECONDS
    systemctl isolate rescue.target
    eventually 40 'the step to end with the holder' is_over
    echo "ended $((SECONDS - at)) s after rescue mode was asked for"
    systemctl is-active sluice-keeper.timer
    back
}

# Its stop ends nothing when the holder is not active; its lease passes all the same.
rescue_without_holder() {
    stubborn
    at=$SECONDS
    systemctl stop sluice-agent sluice-supervisor
    kill -KILL "$(pid_of steps)"
    systemctl isolate rescue.target
    eventually 60 'the lease to end the step' is_over
    echo "ended $((SECONDS - at)) s after rescue mode was asked for"
    back
}
is_over() { ! runs "$step"; }
back() {
    systemctl --no-block isolate multi-user.target
    systemctl start sluice-coordinator sluice-agent
    settles
}

trial 'daemons are killed for want of memory after steps, and keepers never' scores
trial 'the supervisor is stopped' stopped
trial 'the supervisor cannot start' cannot_start
trial 'the supervisor dies whenever it has started' crash_loop
trial 'the kernel kills the supervisor for want of memory' out_of_memory
trial 'a step fills the memory' memory_filled
trial 'supervisor and keeper are stopped' only_the_timer
trial 'the holder is dead and the supervisor stopped' no_holder
trial 'rescue mode' rescue
trial 'rescue mode without the holder' rescue_without_holder
journalctl --no-pager -o cat -u sluice-steps -u sluice-keeper | grep -c 'killed by the keeper' || true
verdict
