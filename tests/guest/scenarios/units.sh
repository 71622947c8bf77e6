# The daemons as units: each can be restarted, upgraded, killed and left to hang while a step runs, and the step runs on.
. /scenario/cluster.sh

is_active() { [ "$(systemctl is-active "sluice-$1")" = active ]; }
has_replaced() { is_active "$2" && [ "$(pid_of "$2")" != "$1" ] && [ "$(pid_of "$2")" != 0 ]; }
# What a step counts goes on from where it was.
counted() { sluice logs "$1" | tail -n 1; }
counts_on() { [ "$(counted "$1")" -gt "$2" ]; }

say 'up'
cluster_up
systemctl enable -q sluice-coordinator sluice-agent sluice-supervisor sluice-steps
systemctl --no-pager --no-legend list-units 'sluice-*'
for unit in steps supervisor agent coordinator; do is_active "$unit" || fail "$unit is not active"; done
sluice get nodes -o wide

say 'a step that counts'
step=$(submit --cpus 0.1 -- sh -c 'n=0; while sleep 0.1; do n=$((n + 1)); echo $n; done')
reaches "$step" running
eventually 30 'the step to count' counts_on "$step" 3
systemd-cgls --no-pager --xattr=no --cgroup-id=no /system.slice | grep -A4 sluice-s

for unit in agent supervisor coordinator; do
    say "restart of $unit"
    seen=$(counted "$step") old=$(pid_of "$unit")
    systemctl restart "sluice-$unit"
    has_replaced "$old" "$unit" || fail "$unit did not restart"
    eventually 60 'the node to be ready' node_is_ready
    is_state "$step" running || fail "the step is $(field "$step" .state) after the restart of $unit"
    eventually 30 'the step to count on' counts_on "$step" "$seen"

    say "kill of $unit"
    seen=$(counted "$step") old=$(pid_of "$unit")
    kill -KILL "$old"
    eventually 30 "$unit to be started anew" has_replaced "$old" "$unit"
    eventually 60 'the node to be ready' node_is_ready
    is_state "$step" running || fail "the step is $(field "$step" .state) after the kill of $unit"
    eventually 30 'the step to count on' counts_on "$step" "$seen"
done

say 'a reload takes labels in and refuses a mistake'
old=$(pid_of agent) seen=$(counted "$step")
cp /etc/sluice/agent.toml /etc/sluice/agent.toml.before
has_label() { sluice get nodes -o wide | grep -q "$1"; }
printf '\n[labels]\nrack = "7"\n' >>/etc/sluice/agent.toml
systemctl reload sluice-agent
eventually 30 'the label to be told' has_label rack=7
printf 'bad value = 1\n' >>/etc/sluice/agent.toml
systemctl reload sluice-agent && fail 'a config with a mistake was taken in'
is_active agent || fail 'the agent is not active after a reload that was refused'
cp /etc/sluice/agent.toml.before /etc/sluice/agent.toml
systemctl reload sluice-agent
has_no_label() { ! has_label rack=7; }
eventually 30 'the label to go' has_no_label
[ "$(pid_of agent)" = "$old" ] || fail 'the agent was restarted'
old=$(pid_of coordinator)
systemctl reload sluice-coordinator
is_active coordinator && [ "$(pid_of coordinator)" = "$old" ] || fail 'the coordinator was restarted'
eventually 30 'the step to count on' counts_on "$step" "$seen"

old=$(pid_of supervisor)
cp /etc/sluice/supervisor.toml /etc/sluice/supervisor.toml.before
printf '\ndefault_usr = "step"\n' >>/etc/sluice/supervisor.toml
systemctl reload sluice-supervisor && fail 'a config of the supervisor with a mistake was taken in'
is_active supervisor && [ "$(pid_of supervisor)" = "$old" ] || fail 'the supervisor is another one'
cp /etc/sluice/supervisor.toml.before /etc/sluice/supervisor.toml

say 'upgrade of the supervisor in place'
short=$(submit --cpus 0.1 -- sh -c 'while [ ! -e /tmp/go ]; do sleep 0.2; done; exit 7')
reaches "$short" running
old=$(pid_of supervisor) seen=$(counted "$step")
cp /usr/bin/sluice-supervisor /usr/bin/sluice-supervisor.new
mv /usr/bin/sluice-supervisor.new /usr/bin/sluice-supervisor
systemctl reload sluice-supervisor
is_new() { [ "$(stat -L -c %i "/proc/$old/exe")" = "$(stat -c %i /usr/bin/sluice-supervisor)" ]; }
eventually 30 'the new program to run' is_new
[ "$(pid_of supervisor)" = "$old" ] || fail 'another process took over'
touch /tmp/go
reaches "$short" failed
[ "$(field "$short" .exit.code)" = 7 ] || fail "its end was not seen: $(field "$short" .exit)"
eventually 30 'the step to count on' counts_on "$step" "$seen"

say 'numbers in the output: all, once, in order'
sluice logs "$step" | awk '$1 != NR { print "line " NR " says " $1; bad = 1 } END { print NR " lines"; exit bad }'

say 'a supervisor that hangs is found out by the watchdog'
mkdir -p /run/systemd/system/sluice-supervisor.service.d
printf '[Service]\nWatchdogSec=5\n' >/run/systemd/system/sluice-supervisor.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart sluice-supervisor
old=$(pid_of supervisor) seen=$(counted "$step")
kill -STOP "$old"
eventually 60 'the watchdog to bite' has_replaced "$old" supervisor
systemctl show -P NRestarts sluice-supervisor
eventually 30 'the step to count on' counts_on "$step" "$seen"
is_state "$step" running || fail 'the step did not outlive the watchdog'

say 'a reload, as the page on operations shows it'
sed -i '1i address = "10.0.0.7"\nlog_filter = "info,sluice_agent=info"' /etc/sluice/agent.toml
printf '\n[labels]\nrack = "7"\n' >>/etc/sluice/agent.toml
block reload 1
is_as_shown() { [ "$(block reload 2)" = "$(shown_by reload)" ]; }
eventually 30 'the lines that the page shows' is_as_shown

say 'a restore: the step that runs is adopted'
mkdir /backups
chown sluice-coordinator /backups
runuser -u sluice-coordinator -- sluice-coordinator backup /backups/sluice-2026-11-22
rm -r /var/lib/sluice/coordinator/*
seen=$(counted "$step")
block restore
eventually 60 'the node to be ready' node_is_ready
eventually 30 'the step to count on' counts_on "$step" "$seen"

say 'a lost disk: the step that runs is adopted by the keys alone'
systemctl stop sluice-coordinator
find /var/lib/sluice/coordinator -mindepth 1 -maxdepth 1 ! -name tls ! -name warrants.key -exec rm -r {} +
block lost-disk
eventually 60 'the node to be ready' node_is_ready
eventually 60 'the step to be adopted' is_state "$step" running
seen=$(counted "$step")
eventually 30 'the step to count on' counts_on "$step" "$seen"

say 'all of it holds'
