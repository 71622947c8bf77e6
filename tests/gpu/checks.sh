#!/bin/bash
# Runs the checks of docs/gpu-checks.md that need no second GPU and change no setting of the GPU, on a machine with
# an NVIDIA GPU, as root: `tests/gpu/checks.sh [CHECK...]`. Programs are those of $BIN (target/release). What was
# typed and what it printed goes to stdout and to $OUT/transcript.txt; files of NVIDIA's and of the daemons lie there.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${BIN:-$root/target/release}
out=${OUT:-$root/target/gpu-checks}
compute="python3 $root/tests/gpu/compute.py"
export PATH=$bin:$PATH NO_COLOR=1 COLUMNS=160
group=/sys/fs/cgroup/gpu-checks
user=0
mkdir -p "$out"
work=$(mktemp -d)
chmod 755 "$work"
export XDG_CONFIG_HOME=$work
exec > >(tee "$out/transcript.txt") 2>&1

check() { printf '\n===== %s =====\n' "$*"; }

# Prints a command, what it prints, its status if that is not 0, and how long it took.
show() {
    printf '$ %s\n' "$1"
    local begun=$EPOCHREALTIME
    timeout "${2:-30}" bash -c "$1" </dev/null
    local status=$?
    printf '[%s%.2f s]\n' "$([ $status = 0 ] || echo "status $status, ")" \
        "$(echo "$EPOCHREALTIME - $begun" | bc 2>/dev/null || python3 -c "print($EPOCHREALTIME - $begun)")"
}

# Waits until a command succeeds, at most so many seconds, and says how long that took.
until_true() {
    local begun=$SECONDS
    until bash -c "$1" >/dev/null 2>&1; do
        if [ $((SECONDS - begun)) -ge "${2:-60}" ]; then echo "[never within ${2:-60} s: $1]"; return 1; fi
        sleep 0.05
    done
}

# Starts a step that computes, with these flags and these arguments of the program, and waits until it does.
begin() {
    show "sluice submit --id $1 --gpus 1$2 -- $compute $3; sluice wait $1 --for running"
    until_true "sluice logs $1 | grep -q round" 60
}

end() { show "sluice cancel $1; sluice wait $1"; }

# Reserves the GPU for the subject `prod`.
reserve() {
    printf 'kind: policy\npool: default\nsubject: prod\npriority: 10\nreserved: {gpu: 1}\n' >"$work/prod.yaml"
    show "sluice apply -f $work/prod.yaml"
}

machine() {
    check machine
    show 'uname -a; id -u; cat /proc/1/comm; cat /etc/os-release | head -2; python3 --version'
    show 'nvidia-smi -L; nvidia-smi --query-gpu=name,pci.bus_id,memory.total,memory.used,driver_version,mig.mode.current,persistence_mode,compute_mode --format=csv'
    show 'grep -E "cgroup|sysfs" /proc/self/mountinfo; cat /proc/self/cgroup; cat /sys/fs/cgroup/cgroup.controllers /sys/fs/cgroup/cgroup.subtree_control'
    show 'ls -l /dev/nvidia* /dev/nvidia-caps; ldconfig -p | grep -E "libcuda.so|libnvidia-ml"; cat /proc/sys/kernel/yama/ptrace_scope; ls /proc/driver/nvidia; which cuda-checkpoint'
    show 'nvidia-smi topo -m'
    nvidia-smi -q >"$out/nvidia-smi-q.txt"
}

detect() {
    check detect
    show 'sluice detect'
    show 'sluice detect -o json >'"$out"'/detect.json; wc -c '"$out"'/detect.json'
    show 'sluice doctor'
}

start_cluster() {
    check cluster
    # A control group whose controllers the cluster may hand on, as the unit of an installed host has one.
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        mkdir -p "$group"
        printf 'cgroup = "/%s"\n' "$(basename "$group")" >"$work/supervisor.toml"
        printf 'default_user = %s\nallow_root = true\nshared_users = [%s]\n' "$user" "$user" >>"$work/supervisor.toml"
        export SLUICE_SUPERVISOR_CONFIG=$work/supervisor.toml
    fi
    rm -rf "$work/data"
    sluice dev --data "$work/data" >"$work/dev.txt" 2>&1 &
    dev=$!
    until_true "sluice get nodes -o json | grep -q '\"ready\"'" 30
    show "cat $work/dev.txt"
    show 'sluice get nodes -o wide'
    node=$(sluice get nodes -o name | head -1 | cut -d/ -f2)
    show "sluice describe node $node"
}

memory() {
    check 'memory limit of a suspended step'
    local files="find $group -path '*mem*' -name memory.max -exec grep -H . {} +"
    begin mem ' --memory 4GiB' 6000
    show "$files"
    show "sluice suspend mem; sluice wait mem --for suspended; $files; sluice explain mem; sluice describe node $node | grep ^memory" 60
    show "sluice resume mem; sluice wait mem --for running; sleep 2; sluice logs mem | tail -2; $files; find $group -path '*mem*' -name memory.events -exec cat {} +" 60
    end mem
}

pinned() {
    check 'pinned processors'
    show 'printf "kind: pool\nname: default\nrequire: [cpuset]\n" | sluice apply -f -'
    show "sluice run --gpus 1 --cpus 4 --cpu-mode pinned -- sh -c 'grep Cpus_allowed_list /proc/self/status; cat /proc/self/cgroup'"
}

large() {
    check 'nearly all memory of the GPU'
    begin large '' 75000
    show 'sluice suspend large; sluice wait large --for suspended; nvidia-smi --query-gpu=memory.used --format=csv,noheader; free -m' 100
    show 'sluice resume large; sluice wait large --for running; sleep 3; sluice logs large | tail -2' 100
    end large
}

# Seconds from the command line until the first instruction of a step of `prod`.
starts() {
    local begun=$EPOCHREALTIME ran
    ran=$(sluice run --subject prod --gpus 1 -- date +%s.%N)
    python3 -c "print('$1: %.3f s' % ($ran - $begun))"
}

latency() {
    check 'a GPU is free, is suspended, or is taken back'
    reserve
    local n mode
    for n in 1 2 3 4 5; do starts free; done
    for mode in requeue suspend; do
        for n in 1 2 3 4 5; do
            sluice submit --id "v$mode$n" --on-preempt $mode --gpus 1 -- $compute 1000 >/dev/null
            until_true "sluice logs v$mode$n | grep -q round" 30
            starts "$mode"
            sluice cancel "v$mode$n" >/dev/null
            sluice wait "v$mode$n" >/dev/null
        done
    done
}

worker() {
    check 'the process that asks the driver is killed, and hangs'
    show "pgrep -af [q]uery-driver; kill -9 \$(pgrep -f [q]uery-driver); sleep 8; pgrep -af [q]uery-driver; sluice get nodes"
    show "kill -STOP \$(pgrep -f [q]uery-driver); sleep 34; sluice get nodes; sluice submit --id quiet --gpus 1 -- echo started; sluice explain quiet; sluice run -- echo 'work without GPUs goes on'; sluice describe node $node | grep -A3 -E 'Note|Unfit'" 60
    show 'sluice wait quiet; pgrep -af [q]uery-driver; sluice get nodes' 60
}

other_user() {
    check 'steps of a user who is not root'
    stop_cluster
    user='"nobody"'
    start_cluster
    show "sluice run --workdir none --gpus 1 -- sh -c 'id; timeout 3 $compute 256'"
    begin plain ' --workdir none' 2000
    show 'sluice suspend plain; sluice wait plain --for suspended; nvidia-smi --query-gpu=memory.used --format=csv,noheader' 60
    show 'sluice resume plain; sluice wait plain --for running; sleep 2; sluice logs plain | tail -2' 60
    end plain
}

speed() {
    check 'speed and size'
    show 'sluice bench --limit 20s' 150
    show 'ps -eo rss,time,args | grep "[/]sluice-" | cut -c1-100'
}

stop_cluster() {
    kill -TERM "$dev" 2>/dev/null
    wait "$dev"
    cp "$work"/data/logs/* "$out" 2>/dev/null || find "$work/data" -name '*.log' -exec cp {} "$out" \;
    tail -20 "$work/dev.txt"
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv
}

grant() {
    check grant
    show "sluice run --gpus 1 -- sh -c 'echo \$CUDA_VISIBLE_DEVICES; nvidia-smi -L'"
    show "sluice run --gpus 1 -- timeout 4 $compute 256"
    show "sluice run -- timeout 4 $compute 256"
    show "sluice run --gpus 1 -- sh -c 'unset CUDA_VISIBLE_DEVICES; nvidia-smi -L; for n in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm; do (exec 3<\$n) && echo opened \$n; done' 2>&1"
    show "sluice run -- sh -c 'nvidia-smi -L; for n in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm; do (exec 3<\$n) && echo opened \$n; done' 2>&1"
}

two() {
    check 'two steps, one GPU'
    show "sluice submit --id first --gpus 1 -- $compute 20000; sluice wait first --for running"
    show "sluice submit --id second --gpus 1 -- $compute 1000; sleep 4; sluice get steps"
    show "sluice explain second; nvidia-smi --query-compute-apps=pid,used_memory --format=csv; sluice describe node $node | head -60"
    show 'sluice logs first | tail -3'
    show "curl -s http://$(sluice context show -o json | python3 -c 'import json,sys; print(json.load(sys.stdin)["http"])')/metrics | grep ^sluice_gpu"
    show 'nvidia-smi --query-gpu=utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw,clocks.sm,pcie.link.gen.current,pcie.link.width.current --format=csv'
    show 'sluice cancel first; sluice wait second --for running; nvidia-smi --query-compute-apps=pid,used_memory --format=csv'
    show 'sleep 2; sluice logs second | tail -2; nvidia-smi --query-compute-apps=pid,used_memory --format=csv; sluice cancel second; sluice wait second; sluice describe step first | tail -25'
}

foreign() {
    check 'a program beside Sluice'
    $compute 500 >"$work/foreign.txt" &
    local pid=$!
    until_true "grep -q holds $work/foreign.txt" 20
    show "sleep 6; sluice get nodes -o wide; sluice describe node $node | head -40"
    show 'sluice submit --id polite --gpus 1 -- sh -c "echo started"; sleep 2; sluice explain polite'
    kill $pid; wait $pid 2>/dev/null
    show 'sluice wait polite; sluice describe step polite | tail -12' 60
}

suspend() {
    check suspend
    for mib in 500 8000 40000; do
        begin s$mib '' $mib
        show "sluice suspend s$mib; sluice wait s$mib --for suspended; nvidia-smi --query-compute-apps=pid,used_memory --format=csv; nvidia-smi --query-gpu=memory.used --format=csv,noheader; sluice get steps" 60
        show "sluice run --gpus 1 -- timeout 3 $compute 30000"
        show "sluice resume s$mib; sluice wait s$mib --for running; sleep 3; sluice logs s$mib | tail -3" 60
        show "sluice cancel s$mib; sluice wait s$mib; sluice describe step s$mib | tail -20"
    done
}

preempt() {
    check 'suspended by priority'
    reserve
    begin lent ' --memory 4GiB --on-preempt suspend' 4000
    show "sluice run --subject prod --gpus 1 -- sh -c 'date +%s.%N; timeout 4 $compute 1000'" 60
    show 'sluice wait lent --for running; sleep 3; sluice logs lent | tail -3; sluice describe step lent | tail -25' 60
    end lent
    begin killed '' 4000
    show "date +%s.%N; sluice run --subject prod --gpus 1 -- sh -c 'date +%s.%N'" 60
    show 'sluice cancel killed; sluice wait killed; sluice describe step killed | tail -20'
}

probe() {
    check 'checkpoint by hand'
    $compute 500 >"$work/probe.txt" &
    local pid=$!
    until_true "grep -q round $work/probe.txt" 20
    show "sluice-helper checkpoint probe $pid; sluice-helper checkpoint suspend $pid; nvidia-smi --query-compute-apps=pid,used_memory --format=csv; sluice-helper checkpoint probe $pid; tail -1 $work/probe.txt; sleep 1; sluice-helper checkpoint resume $pid; sleep 2; tail -1 $work/probe.txt"
    show "setpriv --reuid=65534 --clear-groups sluice-helper checkpoint probe $pid; sluice-helper checkpoint --library /nonexistent probe $pid; sluice-helper checkpoint probe $$"
    kill $pid; wait $pid 2>/dev/null
    setpriv --reuid=65534 --clear-groups $compute 500 >"$work/own.txt" &
    pid=$!
    until_true "grep -q round $work/own.txt" 20
    show "setpriv --reuid=65534 --clear-groups sluice-helper checkpoint suspend $pid; setpriv --reuid=65534 --clear-groups sluice-helper checkpoint resume $pid; sleep 2; tail -1 $work/own.txt"
    kill $pid; wait $pid 2>/dev/null
}

several() {
    check 'several processes of one step'
    begin pair '' '1000 2'
    until_true "test \$(sluice logs pair | grep -c round) -ge 2" 60
    show "sluice suspend pair; sleep 8; sluice get steps; sluice explain pair; nvidia-smi --query-gpu=memory.used --format=csv,noheader" 60
    show "sluice resume pair; sluice wait pair --for running; sleep 3; sluice logs pair | tail -3; sluice describe step pair | tail -20" 60
    end pair
}

torch() {
    check torch
    printf '%s\n' 'import torch, time' 'm = torch.nn.Linear(4096, 4096).cuda(); o = torch.optim.SGD(m.parameters(), 0.01)' \
        'x = torch.randn(4096, 4096, device="cuda")' 'n = 0' 'while True:' \
        '    l = (m(x) - x).pow(2).mean(); o.zero_grad(); l.backward(); o.step(); n += 1' \
        '    if n % 200 == 0: print(n, round(l.item(), 6), time.time(), flush=True)' >"$work/train.py"
    show "sluice submit --id train --gpus 1 --on-preempt suspend -- python3 $work/train.py; sluice wait train --for running"
    until_true "sluice logs train | grep -q ." 90
    show "sluice suspend train; sluice wait train --for suspended; nvidia-smi --query-gpu=memory.used --format=csv,noheader; sluice explain train" 60
    show "sluice resume train; sluice wait train --for running; sleep 3; sluice logs train | tail -4; sluice describe step train | tail -20" 60
    end train
}

crash() {
    check 'kill -9 of the supervisor while memory is moved'
    begin tough '' 20000
    show "sluice suspend tough; sleep 0.3; kill -9 \$(pgrep -of 'sluice-supervisor --state'); sluice wait tough --for suspended; sluice get steps; sluice get nodes; nvidia-smi --query-gpu=memory.used --format=csv,noheader" 60
    show "sluice resume tough; sluice wait tough --for running; sleep 3; sluice logs tough | tail -3; sluice describe step tough | tail -20" 60
    end tough
}

cuda_present() { ldconfig -p | grep -q libcuda.so.1; }
if ! cuda_present; then
    for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/x86_64-linux-gnu/nvidia; do
        [ -e "$dir/libcuda.so.1" ] && echo "$dir" >/etc/ld.so.conf.d/gpu-checks.conf
    done
    ldconfig
fi
machine
detect
start_cluster
trap 'stop_cluster; rm -rf "$work"; exit 1' TERM INT
for each in "${@:-grant two suspend preempt probe foreign torch several crash memory pinned large latency worker speed other_user}"; do for one in $each; do $one; done; done
stop_cluster
rm -rf "$work"
