//! Tests of hints: what users of other tools type, and what they are told.

use super::*;

fn error_of(line: &str) -> (Option<String>, String) {
    let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let words = std::iter::once("sluice").chain(line.split(' '));
    let words = words.map(OsString::from).collect();
    let mut error = Args::read(words).expect_err(line);
    let hint = hint(&mut error, &typed);
    (hint, error.to_string())
}

pub(super) fn told_of(line: &str) -> Option<String> {
    error_of(line).0
}

#[test]
fn what_is_typed_elsewhere_is_told_by_its_name_here() {
    for (typed, here) in [
        ("squeue -u me", "`squeue`: sluice get steps"),
        (
            "sbatch job.sh",
            "`sbatch`: sluice submit SCRIPT, or sluice submit -f FILE, or sluice submit -- CMD",
        ),
        ("scancel 7", "`scancel`: sluice cancel STEP"),
        ("sinfo -N -l", "`sinfo -N`: sluice get nodes"),
        (
            "squeue --start -j 7",
            "`squeue --start`: sluice explain STEP",
        ),
        (
            "srun --jobid=7 --overlap --pty bash",
            "`srun --overlap --pty`: sluice exec -it STEP -- CMD",
        ),
        (
            "kubectl apply -f a.yaml",
            "`kubectl apply`: sluice apply -f FILE, or sluice submit -f FILE",
        ),
        (
            "gpuctl describe quota a",
            "`describe quota`: sluice get policy POOL/SUBJECT -o yaml",
        ),
        (
            "srun --gpus 1 --pty bash",
            "`srun --pty`: sluice run -it -- CMD",
        ),
        (
            "scontrol show node gpu-1",
            "`scontrol show node`: sluice describe node NODE",
        ),
        (
            "scontrol show job 7",
            "`scontrol show job`: sluice describe step STEP",
        ),
        (
            "create quota a --hard=b",
            "`create quota`: sluice apply -f FILE",
        ),
        (
            "gpuctl apply -f job.yaml",
            "`gpuctl apply`: sluice apply -f FILE, or sluice create -f FILE",
        ),
        ("det rp ls", "`rp ls`: sluice get pools"),
        (
            "gpuctl get jobs --kind training",
            "`gpuctl get jobs`: sluice get steps --work training",
        ),
        (
            "gpuctl get jobs",
            "`gpuctl get jobs`: sluice get steps, or sluice get services",
        ),
        (
            "gpuctl delete job chat",
            "`gpuctl delete job`: sluice cancel STEP, or sluice delete service SERVICE",
        ),
        (
            "gpuctl get nodes --gpu-type A100",
            "`--gpu-type`: sluice get platforms",
        ),
        (
            "gpuctl label gpu-1 a --delete",
            "`--delete`: sluice label node NODE KEY-",
        ),
        (
            "gpuctl label gpu-1 runwhere.ai/pool=training",
            "`label NODE runwhere.ai/pool=POOL`: sluice move node NODE --pool POOL, or sluice label node NODE runwhere.ai/pool=POOL",
        ),
        (
            "kubectl get deployments",
            "`get deployments`: sluice get services",
        ),
        ("kubectl get po", "`kubectl get po`: sluice get steps"),
        (
            "kubectl create deployment a --image b",
            "`create deployment`: sluice apply -f FILE",
        ),
        ("nomad service list", "`service list`: sluice get services"),
        (
            "zenml deployment list",
            "`deployment list`: sluice get services",
        ),
        (
            "zenml deployment logs x",
            "`deployment logs`: sluice describe service SERVICE, or sluice logs SERVICE-1",
        ),
        (
            "nomad job scale",
            "`job scale`: sluice scale service SERVICE 3",
        ),
        ("get steps -n dev", "`-n`: --subject SUBJECT"),
        (
            "run --namespace dev -- true",
            "`--namespace`: --subject SUBJECT",
        ),
        (
            "submit --namespace x a.sh",
            "`--namespace`: --subject SUBJECT",
        ),
        ("cancel -n dev", "`-n`: --subject SUBJECT"),
        ("docker logs a -n 10", "`-n`: --tail 10"),
        ("det e ls", "`experiment list`: sluice get steps"),
        (
            "kubectl port-forward a 1:2",
            "`kubectl port-forward`: sluice open STEP",
        ),
        ("det notebook open a", "`notebook open`: sluice open STEP"),
        (
            "osmo workflow port-forward a b",
            "`workflow port-forward`: sluice open STEP",
        ),
        ("e kill 7", "`experiment kill`: sluice cancel STEP"),
        (
            "det agent disable a --drain",
            "`agent disable --drain`: sluice cordon NODE",
        ),
        ("det agent disable a", "`agent disable`: sluice drain NODE"),
        (
            "det slot enable a 3",
            "`slot enable`: sluice uncordon NODE --gpu 0",
        ),
        (
            "det token create",
            "`det token create`: sluice api-token create NAME --role submitter",
        ),
        (
            "osmo token list",
            "`osmo token list`: sluice api-token list",
        ),
        (
            "osmo config show POOL robots",
            "`config show pool`: sluice get pool POOL -o yaml",
        ),
        (
            "osmo config delete POOL robots",
            "`config delete pool`: sluice delete pool POOL",
        ),
        (
            "osmo profile set pool robots",
            "`profile set pool`: sluice apply -f FILE",
        ),
        (
            "submit -f a.yaml --priority LOW",
            "`--priority LOW`: --priority-class low",
        ),
        ("zenml up", "`zenml up`: sluice dev"),
        ("show 7", "`show`: sluice describe step STEP"),
        (
            "osmo token set ci",
            "`token set`: sluice api-token create NAME --role submitter",
        ),
        (
            "attach-policy a b",
            "`attach-policy`: sluice resource-pool attach-policy POOL SUBJECT",
        ),
        ("get agents", "`get agents`: sluice get nodes"),
        ("get jobs", "`get jobs`: sluice get steps"),
        (
            "describe pod a",
            "`describe pod`: sluice describe step STEP",
        ),
        ("delete pod a", "`delete pod`: sluice cancel STEP"),
        ("delete job a", "`delete job`: sluice cancel STEP"),
        ("get pods -A", "`get pods`: sluice get steps"),
        (
            "submit --output=logs/%j.out a.sh",
            "`--output`: --stdout FILE, or --keep PATTERN",
        ),
        (
            "get steps -o custom-columns",
            "`-o custom-columns`: --columns ID,STATE",
        ),
        (
            "get all",
            "`get all`: sluice get steps, or sluice get pools",
        ),
        ("pods", "`pods`: sluice get steps"),
        ("run --gres=gpu:2 -- a", "`--gres`: --gpus 2"),
        ("submit -Jtrain a.sh", "`-J`: --name NAME"),
        ("slurm run --mem=1G -- a", "`--mem`: --memory 64GiB"),
        ("cancel -u ann", "`-u`: --subject SUBJECT"),
        ("nomad job run a.hcl", "`job run`: sluice submit -f FILE"),
        ("hq job cancel 1", "`job cancel`: sluice cancel STEP"),
        (
            "kubectl run a --image=docker.io/b:1 -- c",
            "`kubectl run`: sluice run --image IMAGE -- CMD, or sluice run -- CMD",
        ),
        (
            "kubectl wait --for=condition=Complete job/a",
            "`--for condition=complete`: --for succeeded",
        ),
        ("wait a --for delete", "`--for delete`: sluice wait STEP"),
        (
            "kubectl get rolebindings -n a",
            "`get rolebindings`: sluice get bindings",
        ),
        (
            "kubectl get events --field-selector a=b",
            "`kubectl get events --field-selector`: sluice get events --step STEP",
        ),
        (
            "get clusterqueues",
            "`get clusterqueues`: sluice get policies",
        ),
        ("nomad run a.hcl", "`nomad run`: sluice submit -f FILE"),
        (
            "nomad node drain -yes -disable 4d2b",
            "`node drain -disable`: sluice uncordon NODE",
        ),
        (
            "nomad operator snapshot save a.snap",
            "`operator snapshot save`: sluice-coordinator backup FILE",
        ),
    ] {
        let told = told_of(typed).unwrap_or_else(|| panic!("{typed}"));
        assert_eq!(told, format!("Sluice's equivalent of {here}"), "{typed}");
    }
    for same in [
        "kubectl get nodes -o wide",
        "gpuctl create -f pool.yaml",
        "gpuctl get labels gpu-1 --key runwhere.ai/pool",
        "zenml resource-pool requests a --view queued",
        "zenml resource-request delete 1",
        "osmo config update POOL robots --file pool.json",
        "osmo resource list --pool a b",
    ] {
        let (_, line) = same.split_once(' ').unwrap();
        let told = format!("the same here: sluice {line}");
        assert_eq!(told_of(same).unwrap(), told);
    }
    for (typed, hint) in [
        (
            "exec -it a bash -l",
            "put `--` before the program: sluice exec -it a -- bash -l",
        ),
        (
            "docker run --rm --gpus all ubuntu",
            "`--rm` is not needed here: the directory of a step is removed at its end",
        ),
        (
            "describe a",
            "write what it is: sluice describe step a, or sluice describe node a",
        ),
        (
            "gpuctl label gpu-1 a=b",
            "write what it is: sluice label node gpu-1 a=b",
        ),
        (
            "gpuctl logs a -n team",
            "`-n` is not needed here: no other step has the same id",
        ),
        (
            "zenml login",
            "`login` is a command here too: sluice help login",
        ),
        (
            "kubectl autoscale a",
            "no equivalent of `kubectl autoscale a` is known: sluice help lists the commands",
        ),
        (
            "osmo config tag POOL --set a",
            "no equivalent of `osmo config tag` is known: sluice help lists the commands",
        ),
        (
            "osmo workflow rsync a b",
            "no equivalent of `workflow rsync a` is known: sluice help lists the commands",
        ),
        (
            "create statefulset a",
            "no equivalent of `create statefulset a` is known: sluice help lists the commands",
        ),
        (
            "workflow frob",
            "no equivalent of `workflow frob` is known: sluice help lists the commands",
        ),
        (
            "osmo token roles ci",
            "no equivalent of `osmo token roles` is known: sluice help lists the commands",
        ),
        (
            "delete a --yes",
            "write what it is, such as sluice delete pool a; a step is ended by sluice cancel a",
        ),
    ] {
        assert_eq!(told_of(typed).as_deref(), Some(hint), "{typed}");
    }
    for typed in [
        "token update",
        "context frob",
        "frobnicate",
        "get frobs",
        "describe frob a",
        "label pods a b=c",
        "a",
    ] {
        assert_eq!(told_of(typed), None, "{typed}");
    }
}

#[test]
fn every_option_of_another_tool_has_an_equivalent_or_a_reason() {
    for (commands, options) in OPTIONS {
        for (command, (words, here)) in commands
            .iter()
            .flat_map(|command| options.iter().map(move |it| (command, it)))
        {
            for word in *words {
                let line = format!("{command} {word}");
                let hint = told_of(&line).unwrap_or_else(|| panic!("{line} has no hint"));
                assert!(hint.contains(&format!("`{word}`")), "{line}: {hint}");
            }
            let FlagsEffect::Same(here) = here else {
                continue;
            };
            let line = match (here.strip_prefix("sluice "), *command) {
                (Some(other), _) => other.to_owned(),
                (None, "get") => format!("get steps {here}"),
                (None, "run" | "submit") => format!("{command} {here} -- a"),
                // `--all` takes no names.
                (None, _) if *here == "--all" => format!("{command} {here}"),
                (None, _) => format!("{command} {here} a"),
            };
            let words = std::iter::once("sluice").chain(line.split(' '));
            if let Err(error) = Args::read(words.map(OsString::from).collect()) {
                panic!("{line}: {error}");
            }
        }
    }
}

#[test]
fn a_hint_takes_the_place_of_what_only_looks_alike() {
    let (hint, error) = error_of("attach-policy a");
    assert!(hint.is_some() && !error.contains("tip:"), "{error}");
    let (hint, error) = error_of("get agents");
    assert!(hint.is_some() && !error.contains("tip:"), "{error}");
    let (hint, error) = error_of("descibe step a");
    assert!(hint.is_none() && error.contains("'describe'"), "{error}");
}

#[test]
fn every_phrase_is_no_command_of_ours_and_every_equivalent_is_one() {
    let things = THINGS
        .iter()
        .map(|(_, it)| [it.get, it.describe, it.delete]);
    let equivalents = elsewhere().flat_map(|(_, here)| here.iter().copied());
    for line in equivalents.chain(things.flatten()) {
        if let Some(other) = line.strip_prefix("sluice-coordinator ") {
            // Its own commands, which the suite runs on `docs/coming-from-nomad.md` and `docs/operations.md`.
            assert!(["backup FILE", "check FILE", "restore FILE"].contains(&other));
            continue;
        }
        let words = line.split(' ').map(OsString::from).collect();
        match Args::read(words) {
            Err(error) if error.kind() != ErrorKind::DisplayVersion => {
                panic!("{line}: {error}")
            }
            _ => {}
        }
    }
    for (phrase, why) in REASONS {
        let hint = format!("no equivalent of `{phrase}`: {why}");
        assert_eq!(told_of(phrase), Some(hint));
    }
    for phrase in elsewhere().flat_map(|(phrases, _)| *phrases) {
        let hint = told_of(phrase).unwrap_or_else(|| panic!("{phrase} has no hint"));
        assert!(
            hint.starts_with(&format!("Sluice's equivalent of `{phrase}`")),
            "{phrase}: {hint}"
        );
    }
}
