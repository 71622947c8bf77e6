# What scenarios share: a cluster of this one guest under the units of packaging/, and words to ask it. Sourced.
set -euo pipefail

steps=/sys/fs/cgroup/system.slice/sluice-steps.service

say() { echo "--- $*"; }
fail() {
    echo "FAILED: $*"
    journalctl --no-pager -o cat -n 25 -u 'sluice-*'
    exit 1
}

# trial WHAT FUNCTION: each is done even where an earlier one failed; `verdict` is the last line of a scenario.
failed=()
trial() {
    say "$1"
    set +e
    (
        set -e
        "$2"
    )
    local code=$?
    set -e
    [ "$code" = 0 ] && return
    failed+=("$1")
    # The next one begins with an empty host all the same.
    sluice get steps --state queued,running,suspended -o name | xargs -r sluice cancel >/dev/null
    eventually 60 'what is left of it to end' is_empty
}
is_empty() { [ -z "$(find "$steps" -maxdepth 2 -name 'attempt-*')" ]; }
verdict() {
    [ ${#failed[@]} = 0 ] || {
        say 'what failed'
        printf '%s\n' "${failed[@]}"
        exit 1
    }
    say 'all of it holds'
}

# block NAME [LINES]: runs the commands of a block of a page, or some of them, as an admin of this host would. LINES is an
# address of sed, such as `2` or `2,4`.
block() {
    local commands
    commands=$(commands_of "$1" | sed -n "${2:-1,$}p")
    echo "$commands" >&2
    bash -euo pipefail -c "$commands"
}
# A block of `console` shows after `$ ` what to type, and then what is printed.
commands_of() { if grep -q '^\$ ' "/scenario/blocks/$1"; then with_our_name "$1" | sed -n 's/^\$ //p'; else with_our_name "$1"; fi; }
shown_by() { with_our_name "$1" | sed '/^\$ /d'; }
with_our_name() { sed -E 's/gpu-[0-9]+/guest/g' "/scenario/blocks/$1"; }

# eventually SECONDS WHAT COMMAND...: until the command succeeds.
eventually() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "waited for $what"
        sleep 0.2
    done
}

cluster_up() {
    local host=/etc/sluice/tls
    runuser -u sluice-coordinator -- sluice-coordinator init
    runuser -u sluice-coordinator -- sluice-coordinator issue-node guest --out /var/lib/sluice/coordinator/guest
    install -d -o sluice-agent -m 700 "$host"
    install -o sluice-agent -m 600 /var/lib/sluice/coordinator/guest/* "$host"
    cat >/etc/sluice/coordinator.toml <<TOML
quic = "127.0.0.1:7443"
open_to_all_local_users = true
TOML
    cat >/etc/sluice/agent.toml <<TOML
coordinators = ["127.0.0.1:7443"]
node = "guest"
$(agent_config)
[tls]
ca = "$host/ca.pem"
cert = "$host/node.pem"
key = "$host/node.key"
TOML
    useradd --create-home step
    supervisor_config >/etc/sluice/supervisor.toml
    mkdir -p /root/.config/sluice
    echo '{"http": "127.0.0.1:7070", "subject": "default"}' >/root/.config/sluice/context.json
    systemctl start sluice-coordinator sluice-agent
    eventually 60 'the node to be ready' node_is_ready
}

# What a scenario adds to the agent's config, and the whole of the supervisor's.
agent_config() { :; }
supervisor_config() {
    cat <<TOML
agent_user = "sluice-agent"
default_user = "step"
shared_users = ["step"]
pids_max = 60
# A device that every kernel has, in place of a GPU's.
gpu_devices = ["/dev/full"]
TOML
}

export HOME=/root

node_is_ready() { sluice get node guest -o json | jq -e '.state == "ready"'; }

# submit OPTIONS... -- COMMAND...: prints the step's id.
submit() { sluice submit -o name "$@" | sed 's,^step/,,'; }

pid_of() { systemctl show -P MainPID "sluice-$1"; }

# field STEP FILTER: what jq makes of the step, such as `.state`.
field() { sluice get step "$1" -o json | jq -r "$2"; }
is_state() { [ "$(field "$1" .state)" = "$2" ]; }
# reaches STEP STATE [SECONDS]
reaches() { eventually "${3:-60}" "step $1 to be $2" is_state "$1" "$2"; }

# The group of a step's only attempt, and one of its files.
group() { find "$steps" -maxdepth 2 -type d -name "attempt-$1*"; }
read_file() { cat "$(group "$1")/$2"; }
key() { read_file "$1" "$2" | awk -v key="$3" '$1 == key { print $2 }'; }
has_no_group() { [ -z "$(group "$1")" ]; }
is_frozen() { [ "$(key "$1" cgroup.events frozen)" = 1 ]; }
is_at_least() { [ "$("${@:2}")" -ge "$1" ]; }
# 64 MiB in the megabytes in which memory is granted, rounded up, and then down to whole pages.
is_the_memory() { [ "$(read_file "$1" memory.max)" -eq $((68000000 / 4096 * 4096)) ]; }
# The last line of a step that counts.
counted() { sluice logs "$1" | tail -n 1; }
