# The guest itself: a kernel with the controllers of cgroup v2, and systemd as the first process.
set -eu
[ "$(cat /proc/1/comm)" = systemd ]
echo "controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
for controller in cpuset cpu io memory pids; do
    grep -qw "$controller" /sys/fs/cgroup/cgroup.controllers
done
echo "units: $(systemctl is-system-running || true)"
for program in sluice sluice-agent sluice-coordinator sluice-supervisor sluice-helper; do "$program" --version; done
sluice-agent detect
