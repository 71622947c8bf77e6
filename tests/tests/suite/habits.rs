//! Commands that users of Slurm, kubectl, Docker and HyperQueue type out of habit: each works, or is answered with the
//! right words.

use std::fs;

use sluice_tests::{Dev, run};

const WORKS: i32 = 0;
/// Exit code of a command that is understood and refused.
const REFUSED: i32 = 1;
/// Exit code of a command line that is not understood.
const USAGE: i32 = 2;

/// Words typed after `sluice`, their exit code, and a part of what is printed.
const HABITS: &[(&str, i32, &str)] = &[
    // Slurm
    (
        "srun --gres=gpu:2 python train.py",
        USAGE,
        "sluice run --gpus 2 -- CMD",
    ),
    ("srun --pty bash", USAGE, "sluice run -it -- CMD"),
    ("run --gres=gpu:2 -- hostname", USAGE, "`--gres`: --gpus 2"),
    ("run --mem=1G -- hostname", USAGE, "`--mem`: --memory 64GiB"),
    (
        "run --partition=a -- hostname",
        USAGE,
        "`--partition`: --pool POOL",
    ),
    (
        "run -n 1 -c 1 -t 10:00 -- echo from $SLUICE_POOL",
        WORKS,
        "from",
    ),
    ("run hostname", USAGE, "sluice run -- hostname"),
    ("sbatch job.sh", USAGE, "sluice submit SCRIPT"),
    ("submit job.sh", WORKS, ""),
    ("submit --array=1-3 job.sh", WORKS, ""),
    (
        "submit --dependency=afterok:ended job.sh",
        USAGE,
        "`--dependency`: --after STEP:ok",
    ),
    ("submit --after ended:ok job.sh", WORKS, ""),
    ("submit --wait job.sh", USAGE, "`--wait`: sluice run -- CMD"),
    ("submit -J train job.sh", USAGE, "`-J`: --name NAME"),
    ("squeue", USAGE, "sluice get steps"),
    ("squeue -u ann", USAGE, "sluice get steps"),
    ("get steps --me", USAGE, "`--me`: --mine"),
    ("get steps --mine", WORKS, "train"),
    ("scancel train", USAGE, "sluice cancel STEP"),
    ("cancel -u ann", USAGE, "`-u`: --subject SUBJECT"),
    (
        "scontrol show job train",
        USAGE,
        "sluice describe step STEP",
    ),
    ("scontrol show nodes", USAGE, "sluice describe node NODE"),
    ("scontrol hold train", USAGE, "sluice suspend STEP"),
    ("sinfo", USAGE, "sluice get nodes, or sluice get pools"),
    ("sinfo -N -l", USAGE, "sluice get nodes"),
    (
        "scontrol update NodeName=gpu-1 State=RESUME",
        USAGE,
        "sluice uncordon gpu-1",
    ),
    (
        "sacct -j ended",
        USAGE,
        "sluice get steps --state succeeded,failed",
    ),
    ("seff ended", USAGE, "sluice describe step STEP"),
    ("salloc --gpus 1", USAGE, "sluice allocate --gpus 2 -- CMD"),
    // kubectl
    ("get pods", USAGE, "`get pods`: sluice get steps"),
    ("get pods -A", USAGE, "`get pods`: sluice get steps"),
    ("get all", USAGE, "sluice get steps, or sluice get pools"),
    ("get nodes -o wide", WORKS, "NAME"),
    ("get po", WORKS, "default"),
    ("describe pod train", USAGE, "sluice describe step STEP"),
    ("describe train", USAGE, "sluice describe step train"),
    ("logs ended --tail 1", WORKS, "two"),
    ("logs --tail=1 ended", WORKS, "two"),
    ("logs ended -c main", USAGE, "`-c` is not needed here"),
    ("logs --previous ended", USAGE, "`--previous`: --attempt 1"),
    ("exec train -- echo inside", WORKS, "inside"),
    (
        "exec -it train bash",
        USAGE,
        "sluice exec -it train -- bash",
    ),
    ("delete pod train", USAGE, "sluice cancel STEP"),
    ("delete train", USAGE, "sluice cancel train"),
    ("apply -f job.sh", REFUSED, "it is not a mapping"),
    ("create -f pool.yaml", REFUSED, "cannot read pool.yaml"),
    ("create pool a", USAGE, "sluice apply -f FILE"),
    ("get steps -n dev", USAGE, "`-n`: --subject SUBJECT"),
    (
        "kubectl logs pod/ended",
        USAGE,
        "the same here: sluice logs ended",
    ),
    ("describe job/train", USAGE, "sluice describe step train"),
    // gpuctl, ZenML, OSMO
    ("get labels", WORKS, ""),
    ("get agents", USAGE, "sluice get nodes"),
    (
        "attach-policy a b",
        USAGE,
        "sluice resource-pool attach-policy POOL SUBJECT",
    ),
    ("zenml resource-pool list", USAGE, "the same here"),
    ("resource-pool list", WORKS, "default"),
    ("resource list", WORKS, "NAME"),
    ("top nodes", USAGE, "sluice get nodes -o wide"),
    ("config use-context lab", USAGE, "sluice context use NAME"),
    (
        "drain NODE --ignore-daemonsets",
        USAGE,
        "`--ignore-daemonsets` is not needed here",
    ),
    (
        "kubectl get nodes",
        USAGE,
        "the same here: sluice get nodes",
    ),
    ("version", USAGE, "sluice --version"),
    // Docker
    ("docker ps -a", USAGE, "sluice get steps"),
    (
        "docker run --rm --gpus all -- hostname",
        USAGE,
        "`--rm` is not needed here",
    ),
    ("run -d -- hostname", USAGE, "`-d`: sluice submit -- CMD"),
    (
        "run -v /data:/data -- hostname",
        USAGE,
        "`-v`: --mount SOURCE:TARGET",
    ),
    ("run -e A=1 -- printenv A", WORKS, "1"),
    ("run --name greeter -- echo hi", WORKS, "hi"),
    (
        "docker logs ended",
        USAGE,
        "the same here: sluice logs ended",
    ),
    ("stop train", USAGE, "sluice cancel STEP"),
    ("inspect train", USAGE, "sluice describe step STEP"),
    // HyperQueue
    (
        "hq submit --array 1-10 -- hostname",
        USAGE,
        "the same here: sluice submit --array 1-10 -- hostname",
    ),
    (
        "hq submit --each-line x.txt hostname",
        USAGE,
        "`--each-line`: --array 0-9",
    ),
    ("hq job list", USAGE, "sluice get steps"),
    ("hq job info last", USAGE, "sluice describe step STEP"),
    ("hq job cat last stdout", USAGE, "sluice logs -f STEP"),
    ("hq job wait last", USAGE, "sluice wait STEP"),
    ("hq job progress last", USAGE, "sluice wait STEP"),
    ("hq worker list", USAGE, "sluice get nodes"),
    ("wait ended", WORKS, "ended succeeded"),
    ("cancel train --yes", WORKS, "train"),
];

#[test]
fn what_is_typed_out_of_habit_works_or_is_answered_with_the_right_words() {
    let dev = Dev::start();
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("job.sh"),
        "#!/bin/sh\n#SBATCH --job-name=job\n#SBATCH --time=10:00\necho job\n",
    )
    .unwrap();
    dev.ok(&[
        "submit", "--id", "train", "--cpus", "0.1", "--", "sleep", "600",
    ]);
    dev.step_in("train", &["running"]);
    dev.ok(&[
        "submit",
        "--id",
        "ended",
        "--cpus",
        "0.1",
        "--",
        "printf",
        "one\\ntwo\\n",
    ]);
    dev.step_in("ended", &["succeeded"]);
    for (typed, code, words) in HABITS {
        let mut command = dev.command(&typed.split(' ').collect::<Vec<_>>());
        command.current_dir(folder.path());
        let ran = run(command);
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, *code, "{typed}: {printed}");
        assert!(printed.contains(words), "{typed}: {printed}");
        if *code == USAGE {
            let ours = ["hint: ", "write ", "put `--`"];
            assert!(
                ours.iter().any(|it| printed.contains(it)),
                "{typed}: {printed}"
            );
            assert!(!printed.contains("tip:"), "{typed}: {printed}");
        }
    }
}
