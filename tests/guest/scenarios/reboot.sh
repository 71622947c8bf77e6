# The host is rebooted while a step runs: what ran is said to have ended with the boot, and is started again once.
. /scenario/cluster.sh

counts() { [ "$(sluice logs "$1" | tail -n 1)" -ge 3 ]; }
is_over() { [ "$(field "$1" '.attempts[0].exit')" != null ]; }

if [ ! -e /var/lib/step ]; then
    say 'a step that counts'
    cluster_up
    systemctl enable -q sluice-coordinator sluice-agent sluice-supervisor sluice-steps
    step=$(submit --cpus 0.1 -- sh -c 'n=0; while sleep 0.1; do n=$((n + 1)); echo $n; done')
    eventually 60 'the step to count' counts "$step"
    echo "$step" >/var/lib/step
    sync
    say 'reboot'
    systemctl reboot --force
    exec sleep infinity
fi

say 'after the reboot'
step=$(cat /var/lib/step)
eventually 120 'the node to be ready' node_is_ready
eventually 60 'the attempt to end' is_over "$step"
field "$step" '.attempts[] | "attempt \(.number): \(.exit)"'
field "$step" '.attempts[0].exit.message' | grep -q rebooted || fail 'the attempt did not end with the boot of its host'
eventually 60 'the next attempt to count' counts "$step"
sluice cancel "$step" >/dev/null
reaches "$step" cancelled
[ "$(field "$step" '.attempts | length')" = 2 ] || fail 'it did not run twice'

say 'all of it holds'
