//! Examples in the help of each command, and the guide that `sluice` prints without arguments.

pub(crate) const GUIDE: &str = "\
Sluice shares pools of GPU hosts. Start here:

  sluice dev                          a whole cluster on this machine, until Ctrl-C
  sluice run --gpus 1 -- nvidia-smi   run a step and see its output
  sluice get steps                    what there is: steps, nodes, pools, events
  sluice describe step ID             everything about one of them
  sluice explain ID                   why it waits, and what would let it start
  sluice doctor                       what would hurt here, and the way out

`sluice help` lists all commands, `sluice help COMMAND` explains one.
";

pub(super) const DEV: &str = "\
Examples:
  sluice dev                                a cluster in a temporary folder
  sluice dev --data ./cluster --http 127.0.0.1:7070
                                            one that keeps its state and its port";

pub(super) const RUN: &str = "\
Examples:
  sluice run -- hostname
  sluice run --gpus 2 --memory 16GiB --timeout 2h -- python train.py
  sluice run --env MODE=fast --name eval -- sh -c 'echo $MODE'
  sluice run --gpus 1 --platform h100,a100 --on-preempt suspend -- python train.py
  sluice run --gpus 8 --dry-run -- python train.py
  sluice run -f step.yaml --gpus 1 -e MODE=fast
  sluice run --gpus 1 train.sh 3

Exits with the step's own exit code, with 128 plus the signal's number if a signal ended it, and
with 125 if Sluice itself failed (rejected, host lost, no cluster). While it waits, stderr says why.";

pub(super) const SUBMIT: &str = "\
Examples:
  id=$(sluice submit --gpus 1 -- python train.py)
  sluice submit -f steps.yaml
  generate-steps | sluice submit -f - -o json
  sluice submit -f steps.yaml --dry-run     what would become of each; nothing is stored
  sluice submit -f step.yaml --gpus 2 -- python eval.py
                                            flags and a command override the file
  sluice submit --gpus 2 train.sh 3         a script with #SLUICE or #SBATCH lines, sent along

A rejected step exits with 1 and its reason on stderr; it is stored all the same.";

pub(super) const GET: &str = "\
Examples:
  sluice get steps                          those that are live or ended within the last hour
  sluice get steps --all --state failed     all that are remembered
  sluice get steps 'train-*' --since 2h --sort -ended
  sluice get steps --columns ID,STATE,WHY:.reason.code --no-headers
  sluice get nodes -l zone=a,gpu -o wide
  sluice get steps --show-labels
  sluice get steps -w                       the list, then each row as it changes
  sluice get pool default -o yaml

A kind is taken in singular, plural and short: step, steps, st; no, po, pl (policies), pf
(platforms), ev. With -o json a list is {\"items\": [...]} and one by name is itself; with -w each
change is one line, until Ctrl-C.
Tables fit a terminal: texts are cut with `…` and the least important columns are left out;
-o wide and pipes get all.";

pub(super) const API_TOKEN: &str = "\
Examples:
  sluice api-token create ci --role submitter --subject prod-stack --pool training --ttl 30d
  sluice api-token create grafana --role viewer > grafana.token
  sluice api-token list
  sluice api-token delete ci

`sluice get roles` lists the roles. The secret is printed once, alone on stdout; the coordinator
keeps only its hash.";

pub(super) const LOGIN: &str = "\
Examples:
  sluice login https://coord-1:7070 --ca ca.pem --token-file ci.token --subject prod-stack
  sluice login https://coord-1:7070 --name prod --ca ca.pem --cert user.pem --key user.key
  sluice --context ci.json login https://coord-1:7070 --ca ca.pem --token-file ci.token

Writes the context --name, or `default`, which commands use from then on; or the file of --context
or SLUICE_CONTEXT. Only you can read it.";

pub(super) const LOGOUT: &str = "\
Examples:
  sluice logout
  sluice --context prod logout

A token stays good until it expires, or until `sluice api-token delete` ends it.";

pub(super) const CONTEXT: &str = "\
Examples:
  sluice context list
  sluice context use prod
  sluice --context prod get pools
  sluice context show
  sluice context rename default lab
  sluice context delete lab

A context is a file: $XDG_CONFIG_HOME/sluice/context.json is `default`, contexts/NAME.json beside it
any other. --context and SLUICE_CONTEXT choose one for a command, by name or by file.";

pub(super) const AUTH: &str = "\
Examples:
  sluice auth whoami
  sluice auth can-i create steps --pool training --subject prod-stack
  sluice auth can-i drain nodes";

pub(super) const APPLY: &str = "\
Examples:
  sluice apply -f pools.yaml --dry-run      what would change, and whom it would touch
  sluice apply -f pools.yaml
  cat pools/*.yaml | sluice apply -f -

A file has documents such as `kind: pool` and `kind: policy`, with `---` between them; each replaces
the whole object. Nothing that is in use is removed without --force, and nothing that runs
is stopped even then.";

pub(super) const DESCRIBE: &str = "\
Examples:
  sluice describe step k3v9
  sluice describe node gpu-1 -o json";

pub(super) const EXPLAIN: &str = "\
Examples:
  sluice explain k3v9
  sluice explain k3v9 -o json

For a queued step: the rule that keeps it from starting in each of its pools, its place in the
queue, which steps it would preempt or why it may preempt none, and the smallest changes that would
let it start. For a running step: whether it borrows, and who could preempt it. For one that has
ended: how and why.";

pub(super) const LOGS: &str = "\
Examples:
  sluice logs k3v9
  sluice logs k3v9 -f --tail 20
  sluice logs k3v9 --since 10m --timestamps
  sluice logs k3v9 --stderr --attempt 1
  sluice logs prep sweep.5
  sluice logs -f sweep";

pub(super) const ATTACH: &str = "\
Examples:
  sluice attach k3v9
  sluice attach k3v9 --tail 100

Ctrl-C detaches with exit code 0 and leaves the step alone. If the step ends meanwhile, its own
exit code is passed on, as by `sluice run`.";

pub(super) const EXEC: &str = "\
Examples:
  sluice exec k3v9 -- nvidia-smi
  sluice exec k3v9 --rank 2 -- sh -c 'py-spy dump --pid $PID'
  echo 'print(1)' | sluice exec k3v9 -- python -

The program belongs to the step: what it uses counts against the step, and it ends with it. Exits
with the program's own exit code, with 128 plus the signal's number if a signal ended it, and with
125 if Sluice itself failed or the program could not be started. Ctrl-C ends it. There is no
terminal.";

pub(super) const OPEN: &str = "\
Examples:
  sluice open lab                      prints http://127.0.0.1:PORT, and opens it in a browser
  sluice open web-2 metrics --port 9090 --no-browser
  sluice open service/web              one of its ready replicas

Waits until the step runs. Connections go through the coordinator with your right to run programs
in the step (exec); the program must listen at the port that it finds in $SLUICE_PORT. Ctrl-C ends
it; it exits with 1 when the step ends or the service is deleted. Whoever works on this machine can
connect to the address meanwhile.";

pub(super) const ALLOCATE: &str = "\
Examples:
  sluice allocate --gpus 2 -- bash                   a shell here, while two GPUs are held
  sluice allocate --gpus 2 -- sh -c 'sluice run --in $SLUICE_ALLOCATION -- nvidia-smi'
  sluice allocate --gpus 2 --lease 10m --id sweep    print the id; renew and release it yourself

An allocation waits in the same queue as steps and is decided by the same rules. With a program it
is renewed until that ends, and released then; the program finds its id in SLUICE_ALLOCATION, and
gets SIGTERM when the allocation is taken back. Exits with the program's own exit code, and with 125
if there was no allocation. Without a program, renew it with `sluice renew` before its lease is over.";

pub(super) const RENEW: &str = "\
Examples:
  sluice renew sweep
  sluice renew sweep --lease 1h --state running";

pub(super) const RELEASE: &str = "\
Examples:
  sluice release sweep
  sluice release --grace 30s sweep                   give programs inside it time to end";

pub(super) const CP: &str = "\
Examples:
  sluice cp k3v9:out/model.bin .
  sluice cp k3v9:out results
  sluice cp config.yaml k3v9:
  sluice cp --rank 2 data k3v9:/scratch/data

A relative PATH begins at the directory that the step's main process works in. Directories are
copied with all that they contain. Files are read and written as the step's user, within the
step's limits. If the connection breaks, the copy goes on where it was. Write ./NAME for a path of
this machine that contains a colon.";

pub(super) const CANCEL: &str = "\
Examples:
  sluice cancel k3v9
  sluice cancel --grace 0s k3v9
  sluice cancel 'train-*' --dry-run            which steps it would cancel
  sluice cancel -l team=vision --state queued
  sluice cancel --mine --yes

Patterns and filters select among the steps that have not ended. On a terminal it asks before it
cancels more than one; without a terminal it needs --yes.";

pub(super) const SUSPEND: &str = "\
Examples:
  sluice suspend k3v9
  sluice suspend 'eval-*' --yes

A suspended step keeps its memory and gives back everything else. It stays suspended until `sluice
resume`, or until the `--suspend-timeout` that it was submitted with has passed. A step that cannot
be suspended is stopped and queued again.";

pub(super) const RESUME: &str = "\
Examples:
  sluice resume k3v9
  sluice resume --all --pool training --dry-run

It continues when its own host and GPUs have room for it again.";

pub(super) const REQUEUE: &str = "\
Examples:
  sluice requeue k3v9
  sluice requeue $(sluice get steps --node gpu-1 -o name)
  sluice requeue --pool training --subject dev --yes

No retry is used up. A queued step is left as it is; a step that somebody suspended may be scheduled
again.";

pub(super) const SCALE: &str = "\
Examples:
  sluice scale service web 3
  sluice scale service web 0

New replicas wait in the queue like other steps. Replicas that are too many are taken from the
endpoints, and stopped after the service's drain_timeout. A service with min_replicas and
max_replicas takes a number between them.";

pub(super) const GATEWAY: &str = "\
Examples:
  sluice gateway --config gateway.toml
  sluice gateway --config gateway.toml --check-config

Needs HAProxy 2.5 or newer (`apt install haproxy`). A request names its service by its host name
(web.example.org is `web`) or by the header Sluice-Service.";

pub(super) const ROLLOUT: &str = "\
Examples:
  sluice rollout status web                  wait until the latest version is complete
  sluice rollout status web --timeout 5m
  sluice rollout undo web
  sluice rollout undo web --to 3

A change of a service's step makes a new version: its replicas start beside the old ones, which are
drained as the new ones become ready. If none becomes ready within progress_deadline, the service
goes back to the version before. `status` exits with 1 if that happened, or if the version stalls,
and with 75 when the time is over.";

pub(super) const WAIT: &str = "\
Examples:
  sluice wait k3v9 --timeout 1h
  sluice wait k3v9 x7p2 --for running
  sluice wait 'train-*' --timeout 8h

Patterns and filters select the steps that have not ended when the wait begins. On a terminal it
shows how many have ended.

Exits with 75 when the time is over, and with 1 at once when another end makes the state
impossible.";

pub(super) const CORDON: &str = "\
Examples:
  sluice cordon gpu-1 --reason maintenance
  sluice cordon gpu-1 gpu-2
  sluice cordon gpu-1 --gpu 3 --reason 'its fan is loud'";

pub(super) const UNCORDON: &str = "\
Examples:
  sluice uncordon gpu-1
  sluice uncordon gpu-1 --gpu 3
  sluice uncordon $(sluice get nodes --state cordoned -o name)";

pub(super) const DRAIN: &str = "\
Examples:
  sluice drain gpu-1 --reason maintenance --deadline 30m
  sluice drain gpu-1 --wait --timeout 1h

Preemptible steps are stopped at once, with their grace period, and start elsewhere as after a
preemption; others run to their end, or are stopped at the deadline. Prints which steps are stopped
and which are waited for. `sluice uncordon` ends a drain; what was stopped stays stopped.";

pub(super) const MOVE: &str = "\
Examples:
  sluice move node gpu-1 --pool inference --wait
  sluice move node gpu-1 gpu-2 --pool inference --deadline 30m
  sluice uncordon gpu-1
  sluice move step train-7 --pool inference
  sluice move step train-7 train-8 --pool inference --dry-run

Each node is drained, as by `sluice drain`, and is in the pool as soon as nothing is left on it,
whatever its agent's config says from then on. Uncordoned before that, it stays where it is.

A step is moved while it is queued, and keeps its id and its place. The new pool checks it and
fills in defaults as for a new step; if the pool would reject it, it stays where it is.";

pub(super) const LABEL: &str = "\
Examples:
  sluice label node gpu-1 zone=a example.com/rack=7
  sluice label node gpu-1 zone=b --overwrite
  sluice label node gpu-1 zone-

Labels set here win over those of the agent's config. They outlive restarts of both.";

pub(super) const TOKEN: &str = "\
Examples:
  sluice token create --pool default
  sluice token create --pool default --uses 8 --ttl 30m --label rack=7
  sluice token create --node gpu-1
  sluice token list
  sluice token revoke 3fa9c2d107

The line that is printed holds a secret: give it to `sluice-agent join` on the host, on standard
input. With --node it lets in a host that was there before, after it was revoked or lost its disk.";

pub(super) const REVOKE: &str = "\
Examples:
  sluice revoke node gpu-1

The coordinator accepts no certificate of the host any more. Its steps stop when their leases
expire, and start elsewhere when the host is declared lost.";

pub(super) const RECOVERY: &str = "\
Examples:
  sluice recovery
  sluice recovery end --force

A coordinator that was restored from a backup starts nothing new until its hosts have reported what
they run.";

pub(super) const DELETE: &str = "\
Examples:
  sluice delete node gpu-1
  sluice delete node gpu-1 --force
  sluice delete step nightly-7
  sluice delete step 'nightly-*' --state failed --dry-run

A step is deleted after its end; its output stays on its host for a while. `sluice cancel` ends one.

The access of a node ends too: it must join again. A node that is linked is not deleted: drain it and stop its
agent first, or end its access at once with --force. Its pool loses its capacity.";

pub(super) const CREATE: &str = "\
Examples:
  sluice create -f pool.yaml
  sluice create -f training.yaml -n team-alice
  sluice create -f pools.yaml train.yaml --dry-run

Takes files of Sluice, gpuctl, Determined and OSMO. Documents are applied first, then steps are
submitted; if a file is wrong, nothing is done.";

pub(super) const RESOURCE_POOL: &str = "\
Examples:
  sluice resource-pool create gpus --capacity '{\"gpu\": 8, \"memory_mb\": 524288}'
  sluice resource-pool update gpus --capacity '{\"gpu\": 4}'
  sluice resource-pool attach-policy gpus prod --priority 10 --reserved '{\"gpu\": 2}'
  sluice resource-pool detach-policy gpus prod
  sluice resource-pool list

`mcpu` is thousandths of a core and `memory_mb` counts MiB, as in ZenML. `sluice apply -f` does the
same by documents.";

pub(super) const RESOURCE_REQUEST: &str = "\
Examples:
  sluice resource-request list
  sluice resource-request describe 3fa9c2d107
  sluice resource-request delete 3fa9c2d107";

pub(super) const CONFIG: &str = "\
Examples:
  sluice config update POOL robots --file pool.json
  sluice config update POD_TEMPLATE --file templates.json --dry-run

`sluice apply -f` takes the same files with `pools`, `pod_templates` and `resource_validations`.";

pub(super) const RESOURCE: &str = "\
Examples:
  sluice resource list
  sluice resource list --pool robots --platform h100
  sluice resource info gpu-1";

pub(super) const DETECT: &str = "\
Examples:
  sluice detect
  sluice detect -o json
  sluice detect --nvml-library /usr/lib/libnvidia-ml.so.1";

pub(super) const DOCTOR: &str = "\
Examples:
  sluice doctor
  sluice doctor --state-dir /srv/sluice -o json

Works without a cluster. Exits with 1 if a check failed. -o name lists the checks that found
a problem.";

pub(super) const BENCH: &str = "\
Examples:
  sluice bench
  sluice bench --steps 5000 --clients 64 -o json
  sluice bench --pool training --subject team-a

The steps are real: they take their turn in the queue, ask for 0.1 cores and 16MiB each, and stay
in the history with the label sluice-bench. Without flags there are about 2,000 of them. Ctrl-C
cancels what has not ended. The column BESIDE compares with what this machine needs without
Sluice, so run it where the coordinator runs.";

pub(super) const SIMULATE: &str = "\
Examples:
  sluice simulate scenarios.json
  sluice simulate scenarios.json --case reclaim-001 -o json

  sluice simulate --hosts 64x8 --jobs philly.csv --policies shares.yaml --plot weeks.svg
  sluice simulate --hosts nodes.csv --jobs pods.csv --arrivals 130 --seed 7 -o json

For each case of a scenario file, prints its end, and `ok` or what differs from the file.
Exits with 1 if any differs; -o name lists those that differ.
For a trace, prints allocation, waiting by subject, what preemption cost, and which jobs within
their reserved share started late.";

pub(super) const REPLAY: &str = "\
Examples:
  sluice replay ./cluster                         the last state
  sluice replay ./cluster --at 1200 -o json
  sluice replay ./cluster --diff 1100 1200        what changed, and which event did it
  sluice replay ./cluster --diff 0 1200 --step k3v9

Reads the log with its checksums and never writes. A coordinator that runs there is refused. What is
older than the oldest snapshot is gone; the message says which event is the first that is kept.";

pub(super) const COMPLETIONS: &str = "\
Examples:
  source <(sluice completions bash)
  sluice completions zsh > ~/.zfunc/_sluice
  sluice completions fish > ~/.config/fish/completions/sluice.fish";
