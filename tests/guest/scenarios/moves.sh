# What a step holds on a GPU is moved to the host's memory when it is suspended, under a limit of memory that is raised by as
# much and is what it was afterwards. The GPU and its driver are stand-ins; kernel, groups and limits are not.
. /scenario/cluster.sh

standin=/srv/standin
# What the step is seen to hold there, and the most of its memory while that is moved.
held=$((600 * 1024 * 1024))

[ -e /scenario/standin/libsluice_cuda_standin.so ] || fail 'the stand-ins are not there: cargo build --workspace'

agent_config() { echo 'nvml_library = "/scenario/standin/libsluice_nvml_standin.so"'; }
supervisor_config() {
    cat <<TOML
agent_user = "sluice-agent"
default_user = "step"
shared_users = ["step"]
cuda_library = "/scenario/standin/libsluice_cuda_standin.so"
TOML
}

gpu_up() {
    install -d -m 1777 "$standin"
    jq --arg at "$standin" '.gpus |= .[:1] | .gpus[0].holds =
        [{pid_file: "\($at)/pid", used_mib: 600, linger_ms: 0, moved_by: $at}]' \
        /scenario/standin/l40sx4.json >"$standin/host.json"
    mkdir -p /etc/systemd/system/sluice-agent.service.d
    printf '[Service]\nEnvironment=SLUICE_NVML_STANDIN=%s/host.json\n' "$standin" \
        >/etc/systemd/system/sluice-agent.service.d/standin.conf
    systemctl daemon-reload
}

# A step that counts, of 64 MiB, which is seen on the GPU.
on_the_gpu() {
    submit --gpus 1 --cpus 0.2 --memory 64MiB --on-preempt suspend --env "CUDA_STANDIN=$standin" -- sh -c \
        "echo \$\$ >$standin/pid.new; mv $standin/pid.new $standin/pid; n=0; while sleep 0.1; do n=\$((n + 1)); echo \$n; done"
}
counts_on() { eventually 60 'the step to count on' is_at_least $(($2 + 3)) counted "$1"; }
is_raised() { [ "$(read_file "$1" memory.max)" -ge $((68000000 + held - 4096)) ]; }

moved() {
    local step seen
    step=$(on_the_gpu)
    reaches "$step" running
    counts_on "$step" 0
    is_the_memory "$step"
    sluice suspend "$step" >/dev/null
    reaches "$step" suspended
    is_frozen "$step"
    echo "memory.max while it is moved: $(read_file "$step" memory.max); asked of the driver: $(cut -d' ' -f1 "$standin/calls" | xargs)"
    is_raised "$step"
    seen=$(counted "$step")
    sleep 1
    [ "$(counted "$step")" = "$seen" ]
    sluice resume "$step" >/dev/null
    reaches "$step" running
    counts_on "$step" "$seen"
    echo "memory.max afterwards: $(read_file "$step" memory.max); oom_kill: $(key "$step" memory.events oom_kill)"
    eventually 10 'the limit to be what it was' is_the_memory "$step"
    [ "$(key "$step" memory.events oom_kill)" = 0 ]
    sluice logs "$step" | awk '$1 != NR { exit 1 }'
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    eventually 10 'the group to be gone' has_no_group "$step"
}

# The raised limit outlives the supervisor that has raised it, and the next one takes it back.
moved_under_another() {
    local step seen how
    step=$(on_the_gpu)
    reaches "$step" running
    counts_on "$step" 0
    sluice suspend "$step" >/dev/null
    reaches "$step" suspended
    for how in 'restart sluice-supervisor' 'kill -s KILL sluice-supervisor' 'restart sluice-agent'; do
        # shellcheck disable=SC2086
        systemctl $how
        eventually 60 'the supervisor to be back' systemctl is-active -q sluice-supervisor
        eventually 60 'the node to be ready' node_is_ready
        is_state "$step" suspended
        is_frozen "$step"
        is_raised "$step"
    done
    seen=$(counted "$step")
    sluice resume "$step" >/dev/null
    reaches "$step" running
    counts_on "$step" "$seen"
    eventually 10 'the limit to be what it was' is_the_memory "$step"
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    eventually 10 'the group to be gone' has_no_group "$step"
}

# What cannot be moved is stopped, and starts anew under its own limit when its caller wants it back.
refused() {
    local step pid
    step=$(on_the_gpu)
    reaches "$step" running
    counts_on "$step" 0
    pid=$(cat "$standin/pid")
    echo 'refuse checkpoint' >"$standin/faults"
    sluice suspend "$step" >/dev/null
    reaches "$step" queued
    [ ! -d "/proc/$pid" ]
    rm "$standin/faults"
    sluice resume "$step" >/dev/null
    reaches "$step" running
    eventually 60 'it to run anew' is_another "$pid"
    is_the_memory "$step"
    # Whole, because a reader that leaves early fails the writer.
    [ "$(sluice get events -o json | grep -c not_suspended)" -ge 1 ]
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
}
is_another() { [ "$(cat "$standin/pid")" != "$1" ]; }

say 'up'
gpu_up
cluster_up
sluice get node guest -o json | jq -c '.inventory | .capabilities, [.gpus[].model]'
trial 'moved and brought back' moved
trial 'moved, and the daemons restart and die' moved_under_another
trial 'what is refused' refused
verdict
