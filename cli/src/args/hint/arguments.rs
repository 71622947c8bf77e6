//! Equivalents of commands of other tools that depend on their arguments. Pure.

use super::elsewhere::TOOLS;
use super::things::{KindCommands, THINGS};
use super::{is_read, of_tool, told};
use crate::render::{safe, shell_words};

/// Options of other tools whose value is the next word.
const VALUED: &[&str] = &[
    "--container",
    "--context",
    "--filename",
    "--kind",
    "--namespace",
    "--output",
    "--patch",
    "--pool",
    "--replicas",
    "--selector",
    "--type",
    "-l",
    "-n",
    "-o",
];
/// Options whose value is the next word for some commands only.
const VALUED_BY_SOME: &[(&str, &[&str])] = &[
    ("-c", &["exec", "cp"]),
    ("-f", &["apply", "create", "delete", "replace"]),
    ("-p", &["patch"]),
];
/// States of Slurm in which a node takes jobs.
const TAKES_JOBS: [&str; 3] = ["idle", "resume", "undrain"];

/// Returns the equivalent of a line, with or without the name of its tool, if its arguments decide what it means.
pub(super) fn by_arguments(typed: &[String]) -> Option<String> {
    let words: Vec<&str> = typed.iter().map(String::as_str).collect();
    let (tool, line) = match words.split_first() {
        Some((tool, line)) if TOOLS.contains(tool) => (*tool, line),
        _ => ("", words.as_slice()),
    };
    let names = positionals(line);
    match (tool, names.as_slice()) {
        (_, ["scontrol", "update", given @ ..]) => of_scontrol_update(given),
        (_, ["patch", of @ ..]) => of_patch(of, line),
        ("gpuctl", ["get", "job" | "jobs"]) => of_jobs_of_gpuctl(line),
        ("zenml", ["status"]) => None,
        (_, ["status"] | ["job", "status"]) => Some(told(&names.join(" "), &["sluice get steps"])),
        (_, ["job", "scale", name, .., count]) if is_number(count) => {
            Some(scaled("job scale", name, count))
        }
        (_, ["job", "revert", name, version]) if is_number(version) => {
            let here = format!("sluice rollout undo {} --to {version}", safe(name));
            Some(told("job revert", &[&here]))
        }
        (_, ["scale", of @ ..]) => of_scale(of, line),
        ("kubectl", ["auth", "can-i", verb, resource]) => of_question(verb, resource, line),
        (_, [verb, name, more @ ..]) => of_full_name(tool, (verb, name, more), line),
        _ => None,
    }
}

fn is_number(word: &str) -> bool {
    word.parse::<u64>().is_ok()
}

/// Returns the words before `--` that are neither options nor values of options.
fn positionals<'a>(line: &[&'a str]) -> Vec<&'a str> {
    let verb = line.first().copied().unwrap_or_default();
    let mut takes_value = false;
    let is_kept = |word: &&&str| {
        let is_value = std::mem::take(&mut takes_value);
        let by_verb = |(option, verbs): &(&str, &[&str])| option == *word && verbs.contains(&verb);
        takes_value = VALUED.contains(*word) || VALUED_BY_SOME.iter().any(by_verb);
        !is_value && !word.starts_with('-')
    };
    let line = line.iter().take_while(|word| **word != "--");
    line.filter(is_kept).copied().collect()
}

/// Returns the value of an option, which stands behind it or after `=`.
fn option<'a>(line: &[&'a str], names: &[&str]) -> Option<&'a str> {
    line.iter().enumerate().find_map(|(at, word)| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let is_here = names.contains(&name);
        match name == *word {
            true => line.get(at + 1).copied().filter(|_| is_here),
            false => is_here.then_some(value),
        }
    })
}

/// Returns the subject that the namespace of a line is, as an option.
fn subject(line: &[&str]) -> String {
    let namespace = option(line, &["-n", "--namespace"]);
    namespace.map_or_else(String::new, |it| format!(" --subject {}", safe(it)))
}

/// Returns the equivalent of `scontrol update KEY=VALUE ...`.
fn of_scontrol_update(given: &[&str]) -> Option<String> {
    let value = |names: &[&str]| {
        given.iter().find_map(|word| {
            let (name, value) = word.split_once('=')?;
            let is_here = names.iter().any(|it| it.eq_ignore_ascii_case(name));
            is_here.then_some(value)
        })
    };
    let state = value(&["State"]).map(|state| state.to_ascii_lowercase());
    if let Some(nodes) = value(&["NodeName"]) {
        let is_list = nodes.contains('[');
        let nodes = if is_list { "NODE" } else { nodes };
        let nodes = safe(&nodes.replace(',', " "));
        let reason =
            value(&["Reason"]).map(|it| format!(" --reason {}", shell_words(&[it.to_owned()])));
        let reason = reason.unwrap_or_default();
        let here = match state?.as_str() {
            state if TAKES_JOBS.contains(&state) => format!("sluice uncordon {nodes}"),
            "drain" | "fail" => format!("sluice drain {nodes}{reason}"),
            "down" => format!("sluice drain {nodes} --deadline 0s{reason}"),
            _ => return None,
        };
        return Some(told("scontrol update NodeName", &[&here]));
    }
    if let Some(pool) = value(&["PartitionName"]) {
        let pool = safe(pool);
        return Some(match state?.as_str() {
            "drain" => format!(
                "Sluice's equivalent of `scontrol update PartitionName State=DRAIN`: write `maintenance: TEXT` into the document of the pool {pool}, and sluice apply -f FILE"
            ),
            "up" => format!(
                "Sluice's equivalent of `scontrol update PartitionName State=UP`: leave `maintenance` out of the document of the pool {pool}, and sluice apply -f FILE"
            ),
            _ => format!(
                "no equivalent of closing a partition: `maintenance: TEXT` in the document of the pool {pool} refuses new steps (sluice apply -f FILE), and sluice cordon NODE starts none on a node"
            ),
        });
    }
    let job = safe(value(&["JobId", "Job"])?);
    Some(match value(&["Partition"]) {
        Some(pool) => told(
            "scontrol update JobId Partition",
            &[&format!("sluice move step {job} --pool {}", safe(pool))],
        ),
        None => format!(
            "no equivalent of `scontrol update JobId`: a step keeps what it was submitted with, so sluice cancel {job} and submit it again"
        ),
    })
}

/// Returns the equivalent of suspending a job, or resuming it, by a patch of kubectl.
fn of_patch(of: &[&str], line: &[&str]) -> Option<String> {
    let name = match of {
        [kind, name, ..] if !kind.contains('/') => name,
        [full, ..] => full.split_once('/')?.1,
        [] => return None,
    };
    // A patch that the shell did not take as one word may be in several.
    let patch = line.concat().replace([' ', '"', '\''], "");
    let verb = match () {
        () if patch.contains("suspend:true") => "suspend",
        () if patch.contains("suspend:false") => "resume",
        () => return None,
    };
    let here = format!("sluice {verb} {}", safe(name));
    Some(told("kubectl patch", &[&here]))
}

/// Returns the equivalent of `gpuctl get jobs` with options.
fn of_jobs_of_gpuctl(line: &[&str]) -> Option<String> {
    let kind = option(line, &["--kind"]);
    let pool = option(line, &["--pool"]).map(|it| format!(" --pool {}", safe(it)));
    let with = |flag: &str, here: &'static str| if line.contains(&flag) { here } else { "" };
    let json = with("--json", " -o json");
    let filters = format!("{}{}{json}", subject(line), pool.unwrap_or_default());
    let steps = |work: &str| {
        format!(
            "sluice get steps{work}{}{filters}",
            with("--pods", " --parts")
        )
    };
    let services = format!("sluice get services{filters}");
    let here = match kind {
        None if filters.is_empty() && !line.contains(&"--pods") => return None,
        None if line.contains(&"--pods") => vec![steps("")],
        None => vec![steps(""), services],
        Some("inference" | "notebook") => vec![services],
        Some("compute") => vec![steps(" --work compute"), services],
        Some("training") => vec![steps(" --work training")],
        Some(_) => return None,
    };
    let here: Vec<&str> = here.iter().map(String::as_str).collect();
    Some(told("gpuctl get jobs", &here))
}

fn scaled(there: &str, name: &str, count: &str) -> String {
    told(
        there,
        &[&format!("sluice scale service {} {count}", safe(name))],
    )
}

/// Returns the equivalent of `kubectl scale`, which takes the number of replicas as an option.
fn of_scale(of: &[&str], line: &[&str]) -> Option<String> {
    let (kind, name) = match of {
        [kind, name] => (*kind, *name),
        [full] => full.split_once('/')?,
        _ => return None,
    };
    let count = option(line, &["--replicas"]).filter(|count| is_number(count))?;
    let is_service = thing(kind)?.get == "sluice get services";
    is_service.then(|| scaled("scale --replicas", name, count))
}

/// Returns the equivalent of `kubectl auth can-i` about a kind of things that has another name here.
fn of_question(verb: &str, resource: &str, line: &[&str]) -> Option<String> {
    let here = thing(resource)?.get.strip_prefix("sluice get ")?;
    let here = here.split(' ').next()?;
    let action = match (verb, here) {
        ("delete", "steps") => "cancel",
        _ => verb,
    };
    let here = format!("sluice auth can-i {} {here}{}", safe(action), subject(line));
    let there = format!("auth can-i {} {}", safe(verb), safe(resource));
    Some(told(&there, &[&here]))
}

fn thing(kind: &str) -> Option<&'static KindCommands> {
    let mut things = THINGS.iter();
    let (_, thing) = things.find(|(words, _)| words.contains(&kind))?;
    Some(thing)
}

/// Returns the equivalent of a command about `KIND/NAME`, as kubectl writes it.
fn of_full_name(tool: &str, said: (&str, &str, &[&str]), line: &[&str]) -> Option<String> {
    let (verb, full, more) = said;
    let (of, full) = match (verb, more) {
        ("rollout", [full, ..]) => (*full, *full),
        _ => (full, full),
    };
    let (kind, name) = full.split_once('/')?;
    let kind = match (tool, kind) {
        ("kubectl", "po") => "pod",
        _ => kind,
    };
    if name.is_empty() || name.contains([':', '/']) {
        return None;
    }
    let there = format!("{verb} {}", safe(of));
    let thing = thing(kind);
    if ["get", "describe", "delete"].contains(&verb) {
        let Some(thing) = thing else {
            let here = ["sluice", verb, kind, name];
            return is_read(&here).then(|| told(&there, &[&here.map(safe).join(" ")]));
        };
        let here = match verb {
            "get" => format!("{} {}", thing.get, safe(name)),
            "describe" => named(thing.describe, thing, name),
            _ => named(thing.delete, thing, name),
        };
        return Some(told(&there, &[&here]));
    }
    let is_service = thing?.get == "sluice get services";
    if is_service && ["logs", "exec", "attach"].contains(&verb) {
        let name = safe(name);
        return Some(format!(
            "Sluice's equivalent of `{there}`: sluice {verb} {name}-1, which is one of its replicas; sluice describe service {name} lists them"
        ));
    }
    if tool != "kubectl" || verb == "cp" {
        return None;
    }
    let words = line
        .iter()
        .map(|word| if *word == full { name } else { word });
    let line: Vec<String> = std::iter::once(tool)
        .chain(words)
        .map(str::to_owned)
        .collect();
    Some(of_tool(&line))
}

/// Returns a command with a name in the place of the word that stands for one of its kind.
fn named(command: &str, thing: &KindCommands, name: &str) -> String {
    let stands_for_one = |word: &str| {
        let kind = thing.get.strip_prefix("sluice get ").unwrap_or_default();
        word.chars().all(char::is_uppercase) && format!("{}s", word.to_lowercase()) == kind
    };
    let words = command.split(' ').map(|word| match stands_for_one(word) {
        true => safe(name),
        false => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::told_of;

    #[test]
    fn arguments_decide_what_a_command_is_called_here() {
        for (typed, there, here) in [
            (
                "scontrol update NodeName=gpu-1 State=RESUME",
                "scontrol update NodeName",
                "sluice uncordon gpu-1",
            ),
            (
                "scontrol update nodename=a,b state=drain reason=fan",
                "scontrol update NodeName",
                "sluice drain a b --reason fan",
            ),
            (
                "slurm scontrol update State=DOWN NodeName=gpu-[1-3]",
                "scontrol update NodeName",
                "sluice drain NODE --deadline 0s",
            ),
            (
                "scontrol update JobId=7 Partition=gpu",
                "scontrol update JobId Partition",
                "sluice move step 7 --pool gpu",
            ),
            (
                "scontrol update a=b",
                "scontrol update",
                "sluice uncordon NODE, or sluice drain NODE, or sluice move step STEP --pool POOL",
            ),
            (
                r#"kubectl patch job train -p {"spec":{"suspend":true}}"#,
                "kubectl patch",
                "sluice suspend train",
            ),
            (
                r#"kubectl patch job/train --patch={"spec":{"suspend":false}}"#,
                "kubectl patch",
                "sluice resume train",
            ),
            (
                r#"kubectl patch job train -p {"spec":{}}"#,
                "patch",
                "sluice apply -f FILE",
            ),
            (
                "gpuctl get jobs --kind inference",
                "gpuctl get jobs",
                "sluice get services",
            ),
            (
                "gpuctl get jobs --kind=notebook -n team-bob",
                "gpuctl get jobs",
                "sluice get services --subject team-bob",
            ),
            (
                "gpuctl get jobs --pool a --kind training",
                "gpuctl get jobs",
                "sluice get steps --work training --pool a",
            ),
            (
                "gpuctl get jobs -n a",
                "gpuctl get jobs",
                "sluice get steps --subject a, or sluice get services --subject a",
            ),
            (
                "gpuctl get jobs --pods --json",
                "gpuctl get jobs",
                "sluice get steps --parts -o json",
            ),
            ("nomad status", "status", "sluice get steps"),
            ("nomad job status -short", "job status", "sluice get steps"),
            (
                "nomad job status train",
                "job status",
                "sluice describe step STEP",
            ),
            (
                "nomad job scale x 3",
                "job scale",
                "sluice scale service x 3",
            ),
            (
                "nomad job scale -detach x group 3",
                "job scale",
                "sluice scale service x 3",
            ),
            (
                "nomad job revert x 2",
                "job revert",
                "sluice rollout undo x --to 2",
            ),
            (
                "kubectl scale deployment x --replicas 3",
                "scale --replicas",
                "sluice scale service x 3",
            ),
            (
                "scale --replicas=3 deployment/x",
                "scale --replicas",
                "sluice scale service x 3",
            ),
            (
                "kubectl auth can-i delete jobs",
                "auth can-i delete jobs",
                "sluice auth can-i cancel steps",
            ),
            (
                "kubectl auth can-i list pods -n dev",
                "auth can-i list pods",
                "sluice auth can-i list steps --subject dev",
            ),
            (
                "kubectl describe pod/x",
                "describe pod/x",
                "sluice describe step x",
            ),
            (
                "kubectl describe -n dev deploy/x",
                "describe deploy/x",
                "sluice describe service x",
            ),
            (
                "kubectl describe node/x",
                "describe node/x",
                "sluice describe node x",
            ),
            (
                "kubectl describe po/x",
                "describe po/x",
                "sluice describe step x",
            ),
            ("describe job/x", "describe job/x", "sluice describe step x"),
            (
                "kubectl get pod/x -o yaml",
                "get pod/x",
                "sluice get steps x",
            ),
            ("kubectl delete pod/x", "delete pod/x", "sluice cancel x"),
            (
                "kubectl delete job/x --now",
                "delete job/x",
                "sluice cancel x",
            ),
            (
                "kubectl delete -f jobs/x",
                "kubectl delete -f",
                "sluice delete -f FILE, or sluice cancel STEP",
            ),
            (
                "kubectl wait job/x --for=condition=complete",
                "--for condition=complete",
                "--for succeeded",
            ),
            (
                "kubectl port-forward deployment/x 1:2",
                "kubectl port-forward",
                "sluice open STEP",
            ),
        ] {
            let expected = format!("Sluice's equivalent of `{there}`: {here}");
            assert_eq!(told_of(typed), Some(expected), "{typed}");
        }
        for (typed, same) in [
            ("kubectl logs -f pod/x", "sluice logs -f x"),
            ("kubectl logs job/x", "sluice logs x"),
            (
                "kubectl exec pod/x -- ls jobs/a",
                "sluice exec x -- ls jobs/a",
            ),
            (
                "kubectl rollout status deployment/x",
                "sluice rollout status x",
            ),
            ("kubectl rollout undo deployment/x", "sluice rollout undo x"),
        ] {
            assert_eq!(
                told_of(typed),
                Some(format!("the same here: {same}")),
                "{typed}"
            );
        }
    }

    #[test]
    fn what_has_no_equivalent_is_said_with_the_reason_and_the_way_out() {
        for (typed, hint) in [
            (
                "scontrol update PartitionName=gpu State=DRAIN",
                "Sluice's equivalent of `scontrol update PartitionName State=DRAIN`: write `maintenance: TEXT` into the document of the pool gpu, and sluice apply -f FILE",
            ),
            (
                "scontrol update PartitionName=gpu State=DOWN",
                "no equivalent of closing a partition: `maintenance: TEXT` in the document of the pool gpu refuses new steps (sluice apply -f FILE), and sluice cordon NODE starts none on a node",
            ),
            (
                "scontrol update jobid=1 priority=3",
                "no equivalent of `scontrol update JobId`: a step keeps what it was submitted with, so sluice cancel 1 and submit it again",
            ),
            (
                "kubectl logs deployment/x",
                "Sluice's equivalent of `logs deployment/x`: sluice logs x-1, which is one of its replicas; sluice describe service x lists them",
            ),
            (
                "zenml init",
                "no equivalent of `init`: nothing is initialised; sluice login ADDRESS connects to a cluster, and sluice dev starts one on this machine",
            ),
            (
                "kubectl config set-context --current --namespace=x",
                "no equivalent of `config set-context --namespace`: a namespace is a subject; name it for each command, as in sluice get steps --subject SUBJECT",
            ),
            (
                "kubectl explain pods",
                "no equivalent of `kubectl explain`: docs/reference/documents.md has the fields of documents; sluice explain STEP says why a step is in its state",
            ),
        ] {
            assert_eq!(told_of(typed).as_deref(), Some(hint), "{typed}");
        }
    }
}
