# The packages on a host with a real init, as an admin meets them: installed, made a cluster that hosts join by a token,
# restarted and upgraded under load, rebooted, drained, removed and purged. The guest is a host of its own cluster; two
# more are agents in network namespaces.
. /scenario/cluster.sh

trial_dir=/srv/trial
net=10.9.0
packages=(sluice sluice-agent sluice-coordinator)

# apt-get asks nothing, and the page finds the packages of build N where a checkout has them.
export DEBIAN_FRONTEND=noninteractive
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/90guest
use_build() {
    mkdir -p /srv/checkout/target
    ln -sfn "/scenario/deb/$1" /srv/checkout/target/deb
    cd /srv/checkout
}

# install_build N BLOCK...
install_build() {
    use_build "$1"
    for name in "${@:2}"; do block "$name" '/^apt-get/'; done </dev/null >"/tmp/apt.$1" 2>&1 ||
        { cat "/tmp/apt.$1"; fail "build $1 is not installed"; }
    # What dpkg asks, or says about a file that somebody has changed, would stop an upgrade that nobody watches.
    ! grep -iE 'conffile|error|fail' "/tmp/apt.$1" || fail 'apt had something to say'
    dpkg-query -W "${packages[@]}"
}
is_active() { systemctl is-active -q "sluice-$1"; }
is_off() { ! systemctl is-active -q "$1" && ! systemctl is-enabled -q "$1"; }
is_ready() { sluice get node "$1" -o json | jq -e '.state == "ready"'; }
has_replaced() { is_active "$2" && [ "$(pid_of "$2")" != "$1" ] && [ "$(pid_of "$2")" != 0 ]; }
counts_on() { [ "$(counted "$1")" -gt "$2" ]; }
# on NODE OPTIONS... -- COMMAND...: a step on that host.
on() {
    local others
    others=$(sluice get nodes -o name | sed 's,^node/,,' | grep -vx "$1" || true)
    # shellcheck disable=SC2086
    [ -z "$others" ] || sluice cordon $others >/dev/null
    submit "${@:2}"
    # shellcheck disable=SC2086
    [ -z "$others" ] || sluice uncordon $others >/dev/null
}
counting='n=0; while sleep 0.5; do n=$((n + 1)); echo $n; done'
has_all_lines() { sluice logs "$1" | awk '$1 != NR { print "line " NR " says " $1; bad = 1 } END { print NR " lines, each once"; exit bad }'; }

nothing_starts_by_itself() {
    for unit in coordinator agent supervisor steps; do is_off "sluice-$unit" || fail "sluice-$unit is on"; done
    systemctl list-unit-files --no-legend 'sluice-*'
    [ "$(stat -c %U /var/lib/sluice/coordinator)" = sluice-coordinator ]
    [ "$(stat -c %U:%a /var/lib/sluice/agent)" = sluice-agent:700 ]
}

# The files in /etc/sluice as they are shipped, but for the user of steps.
first_host() {
    printf '127.0.0.1 localhost\n%s guest\n' "$net.254" >/etc/hosts
    useradd --create-home step
    printf 'default_user = "step"\nshared_users = ["step"]\n' >>/etc/sluice/supervisor.toml
    block install-coordinator '2,$'
    # The package has made the token and root's way in.
    [ "$(stat -c '%U %a' /etc/sluice/api-token)" = 'sluice-coordinator 600' ] || fail 'the token is not private'
    sluice auth whoami | grep -q '^admin' || fail 'root is not an admin by the context of the package'
    ! runuser -u step -- sluice auth whoami || fail 'a user of this machine is let in without a token'
    sluice login http://127.0.0.1:7070 --token-file /etc/sluice/api-token --subject default
    block join-host 1 | block join-host 2
    block start-host 1
    eventually 180 'the node to be ready' node_is_ready
    block start-host 2
    for unit in steps supervisor agent coordinator; do is_active "$unit" || fail "$unit is not active"; done
    find /var/lib/sluice/agent/tls -type f -printf '%p %u %m\n' | sort
    [ -z "$(find /var/lib/sluice/agent ! -user sluice-agent)" ] || fail 'a file is not the agent`s'
}

# A bridge of our own, with the guest and two namespaces on it.
network_up() {
    ip link add sluice0 type bridge
    ip addr add "$net.254/24" dev sluice0
    ip link set sluice0 up
    for n in 2 3; do
        ip netns add "h$n"
        ip link add "v$n" type veth peer name eth0 netns "h$n"
        ip link set "v$n" master sluice0 up
        ip -n "h$n" addr add "$net.$n/24" dev eth0
        ip -n "h$n" link set lo up
        ip -n "h$n" link set eth0 up
    done
}
# daemon HOST NAME OPTIONS... COMMAND...: a unit of its own in that network.
daemon() { systemd-run -q --collect --unit "trial-$1-$2" -p "NetworkNamespacePath=/run/netns/$1" "${@:3}"; }
hosts_up() {
    for host in h2 h3; do
        local dir=$trial_dir/$host
        daemon "$host" supervisor -p Delegate=yes -p KillMode=process \
            sluice-supervisor --state-dir "$dir/supervisor" --config "$dir/supervisor.toml"
        daemon "$host" agent -p User=sluice-agent sluice-agent --config "$dir/agent.toml"
        eventually 180 "$host to be ready" is_ready "$host"
    done
}
two_more_join() {
    sluice token create --uses 2 >"$trial_dir/line"
    for host in h2 h3; do
        local dir=$trial_dir/$host
        mkdir -p "$dir/supervisor"
        install -d -o sluice-agent -m 700 "$dir/agent"
        cp /etc/sluice/supervisor.toml "$dir/"
        cat >"$dir/agent.toml" <<TOML
state_dir = "$dir/agent"
supervisor_socket = "$dir/supervisor/supervisor.sock"
node = "$host"
address = "$net.${host#h}"
reserve = { cpu_count = 1 }
TOML
        ip netns exec "$host" sluice-agent --config "$dir/agent.toml" join <"$trial_dir/line"
    done
    ! sluice-agent --state-dir /tmp/fourth --node h4 join <"$trial_dir/line" || fail 'a used-up token let a host in'
    hosts_up
    sluice get nodes -o wide
    sluice token list
}

limits_bite() {
    local step percent before after
    step=$(on guest --cpus 0.5 --memory 64MiB -- sh -c 'tail /dev/zero')
    reaches "$step" failed
    field "$step" '"\(.reason) \(.exit)"'
    field "$step" .reason | grep -q out_of_memory
    step=$(on guest --cpus 0.25 --memory 64MiB -- sh -c 'while :; do :; done')
    reaches "$step" running
    is_the_memory "$step"
    before=$(key "$step" cpu.stat usage_usec)
    sleep 6
    after=$(key "$step" cpu.stat usage_usec)
    percent=$(((after - before) / 60000))
    echo "$percent % of a processor where 25 were granted; held back $(key "$step" cpu.stat nr_throttled) times"
    [ "$percent" -le 40 ] && [ "$(key "$step" cpu.stat nr_throttled)" -gt 0 ]
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
}

# The agent writes a new certificate from within its hardened unit; its link stays.
fingerprint() { sha256sum </var/lib/sluice/agent/tls/node.pem; }
as_coordinator() { runuser -u sluice-coordinator -- sluice-coordinator "$@"; }
has_renewed() { [ "$(fingerprint)" != "$1" ] && as_coordinator ca list | grep -qE 'issues; .* 3 nodes'; }
another_authority() {
    local seen pid
    seen=$(fingerprint) pid=$(pid_of agent)
    as_coordinator ca rotate
    eventually 90 'the agents to have new certificates' has_renewed "$seen"
    as_coordinator ca list
    as_coordinator ca retire
    eventually 180 'the node to be ready' node_is_ready
    [ "$(pid_of agent)" = "$pid" ] || fail 'the agent was restarted'
    systemctl restart sluice-agent
    eventually 180 'the node to be ready' node_is_ready
}

# A host whose access was ended joins anew by the file that the shipped agent.toml names.
is_away() { sluice get node guest -o json | jq -e '.state == "unreachable"'; }
joins_by_file() {
    local file=/var/lib/sluice/agent/join-token
    sluice revoke node guest
    eventually 30 'the link to be cut' is_away
    systemctl stop sluice-agent
    rm -r /var/lib/sluice/agent/tls
    sluice token create --node guest >"$file"
    chown sluice-agent "$file"
    systemctl start sluice-agent
    eventually 180 'the node to be ready' node_is_ready
    [ ! -e "$file" ] || fail 'the secret is still there'
    [ "$(stat -c %U:%a /var/lib/sluice/agent/tls/node.pem)" = sluice-agent:600 ]
}

# Steps that count, one whose end falls between two builds, and restarts and an upgrade beneath them.
restarted_and_upgraded() {
    local steps_=() seen=() short other pid exe i
    for i in 0 1 2; do steps_+=("$(on guest --cpus 0.1 --memory 32MiB -- sh -c "$counting")"); done
    other=$(on h2 --cpus 0.1 -- sh -c "$counting")
    for i in "${steps_[@]}" "$other"; do reaches "$i" running; done
    for i in "${steps_[@]}"; do eventually 60 'the step to count' counts_on "$i" 3; done

    for unit in agent supervisor; do
        seen=() pid=$(pid_of $unit)
        for i in "${steps_[@]}"; do seen+=("$(counted "$i")"); done
        systemctl restart "sluice-$unit"
        has_replaced "$pid" "$unit" || fail "$unit did not restart"
        eventually 180 'the node to be ready' node_is_ready
        for i in 0 1 2; do eventually 60 'the step to count on' counts_on "${steps_[$i]}" "${seen[$i]}"; done
    done

    # A supervisor sees the ends of what it has started, and what it was when it was an older one.
    short=$(on guest --cpus 0.1 -- sh -c 'while [ ! -e /tmp/go ]; do sleep 0.2; done; exit 7')
    reaches "$short" running
    seen=()
    for i in "${steps_[@]}"; do seen+=("$(counted "$i")"); done
    local agent coordinator
    agent=$(pid_of agent) coordinator=$(pid_of coordinator) pid=$(pid_of supervisor) exe=$(stat -L -c %i "/proc/$pid/exe")
    install_build 2 upgrade
    grep -q '^default_user' /etc/sluice/supervisor.toml || fail 'what was written into supervisor.toml is gone'
    has_replaced "$agent" agent || fail 'the old agent runs on'
    has_replaced "$coordinator" coordinator || fail 'the old coordinator runs on'
    [ "$(pid_of supervisor)" = "$pid" ] || fail 'another supervisor took over'
    is_new() { [ "$(stat -L -c %i "/proc/$pid/exe")" = "$(stat -c %i /usr/bin/sluice-supervisor)" ]; }
    eventually 30 'the supervisor to be its newer self' is_new
    [ "$exe" != "$(stat -L -c %i "/proc/$pid/exe")" ]
    touch /tmp/go
    reaches "$short" failed
    [ "$(field "$short" .exit.code)" = 7 ] || fail "its end was not seen: $(field "$short" .exit)"
    for i in 0 1 2; do eventually 60 'the step to count on' counts_on "${steps_[$i]}" "${seen[$i]}"; done
    for i in "${steps_[@]}" "$other"; do
        is_state "$i" running
        [ "$(field "$i" '.attempts | length')" = 1 ] || fail "$i was started again"
        has_all_lines "$i"
        sluice cancel "$i" >/dev/null
        reaches "$i" cancelled
    done
    journalctl -o cat -u sluice-supervisor | grep -iE 'upgrad|newer|taken over' | tail -n 3
}

reboot_under_a_step() {
    local step
    step=$(on guest --cpus 0.1 -- sh -c "$counting")
    eventually 60 'the step to count' counts_on "$step" 3
    echo "$step" >"$trial_dir/step"
    sync
    systemctl reboot --force
    exec sleep infinity
}
is_over() { [ "$(field "$1" '.attempts[0].exit')" != null ]; }
after_the_reboot() {
    local step
    step=$(cat "$trial_dir/step")
    eventually 180 'the node to be ready' node_is_ready
    for unit in steps supervisor agent coordinator; do is_active "$unit" || fail "$unit is not active"; done
    eventually 60 'the attempt to end' is_over "$step"
    field "$step" '.attempts[] | "attempt \(.number): \(.exit)"'
    field "$step" '.attempts[0].exit.message' | grep -q rebooted
    eventually 60 'the next attempt to count' counts_on "$step" 3
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
}

# What runs on the host that is drained goes on elsewhere.
runs_elsewhere() { is_state "$1" running && [ "$(field "$1" '.placements[0].node')" != guest ]; }
drained() {
    local step
    hosts_up
    step=$(on guest --cpus 0.1 --grace 2s -- sh -c "$counting")
    eventually 60 'the step to count' counts_on "$step" 3
    sluice drain guest --reason 'to be removed' --wait
    eventually 60 'the step to run elsewhere' runs_elsewhere "$step"
    field "$step" '"it runs on \(.placements[0].node)"'
    is_empty
    sluice get nodes
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    sluice uncordon guest
}

# Whoever does not drain is told, and nothing runs on. The holder of the groups, whose stop would end what runs, may be dead.
removed_without_holder() {
    removes no-holder
    installed_again
}
removed() {
    removes holder
    installed_again
}
installed_again() {
    install_build 2 install-host
    systemctl enable -q --now sluice-agent
    eventually 180 'the node to be ready' node_is_ready
}
removes() {
    local step pid
    step=$(on guest --cpus 0.1 -- sh -c 'echo $$; exec sleep 3600')
    reaches "$step" running
    eventually 30 'its number' counts_on "$step" 1
    pid=$(counted "$step")
    kill -0 "$pid"
    [ "$1" = holder ] || kill -KILL "$(pid_of steps)"
    apt-get remove -q sluice-agent </dev/null >/tmp/removed 2>&1 || { cat /tmp/removed; fail 'sluice-agent is not removed'; }
    grep 'steps that run on this host' /tmp/removed
    has_ended() { ! kill -0 "$pid"; }
    eventually 30 'the step to end with the package' has_ended
    has_no_tree() { [ ! -d "$steps" ]; }
    eventually 30 'the tree of groups to be gone' has_no_tree
    ! systemctl list-units --no-legend --all 'sluice-agent*' 'sluice-s*' | grep -v 'not-found' | grep . || fail 'units are left'
    [ -d /var/lib/sluice/supervisor ] && [ -e /var/lib/sluice/agent/tls/node.pem ] && [ -e /etc/sluice/agent.toml ]
    sluice get nodes
}

left() {
    # Of users and groups, of dpkg's past, of this trial, and of the second disk.
    find / -xdev -iname '*sluice*' \
        -not -path '/proc/*' -not -path '/sys/*' -not -path '/scenario*' -not -path "$trial_dir*" -not -path '/root/*' \
        -not -path '/var/log/*' -not -path '/var/backups/*' -not -path '/tmp/*'
    systemctl list-units --no-legend --all 'sluice-*' | grep -v not-found || true
    systemctl list-unit-files --no-legend 'sluice-*'
    pgrep -a sluice || true
}
purged() {
    block uninstall </dev/null
    systemctl stop 'trial-*'
    apt-get purge -y -q "${packages[@]}" </dev/null >/tmp/purged 2>&1 || { cat /tmp/purged; fail 'not purged'; }
    ! grep -iE 'error|fail|not empty' /tmp/purged || fail 'apt had something to say'
    local found
    found=$(left)
    [ -z "$found" ] || fail "left behind: $found"
    ! systemctl --no-legend --failed | grep -i sluice || fail 'a unit has failed'
}

if [ ! -e "$trial_dir" ]; then
    mkdir -p "$trial_dir"
    say 'install'
    install_build 1 install-coordinator install-host
    trial 'nothing starts by itself' nothing_starts_by_itself
    network_up
    trial 'a cluster, and its first host by a token' first_host
    trial 'two more hosts by one token' two_more_join
    trial 'limits bite' limits_bite
    trial 'another authority' another_authority
    trial 'access ended, and joined anew by a file' joins_by_file
    trial 'restarted and upgraded under load' restarted_and_upgraded
    [ ${#failed[@]} = 0 ] || verdict
    say 'reboot'
    reboot_under_a_step
fi
# Nothing remembers it over a boot.
[ -e /run/netns/h2 ] || network_up
trial 'after the reboot' after_the_reboot
trial 'drained' drained
trial 'removed while the holder is dead' removed_without_holder
trial 'removed' removed
[ ${#failed[@]} = 0 ] || verdict
say 'purged'
purged
verdict
