//! Scripts: their command, the lines at their head, and what is refused.

use super::*;

fn read(text: &str) -> Result<ScriptRequest, String> {
    let script = Script::new(Path::new("dir/train.sh"), "train.sh".into(), text.into());
    let request = script.and_then(|script| script.request(&["a b".into()]));
    request.map_err(|e| e.to_string())
}

/// Returns the fields that the lines at the head of a script set.
fn fields(lines: &str) -> serde_json::Value {
    let read = read(&format!("#!/bin/sh\n{lines}\ntrue\n"));
    let mut request = read.unwrap_or_else(|e| panic!("{lines}: {e}")).request;
    request.command.clear();
    let mut value = serde_json::to_value(&request).unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.remove("command");
    fields.retain(|name, field| name != "name" || field != "train.sh");
    fields.retain(|_, field| field.as_object().is_none_or(|it| !it.is_empty()));
    value
}

fn warning(lines: &str) -> String {
    let read = read(&format!("#!/bin/sh\n{lines}\ntrue\n")).unwrap();
    read.warning.unwrap_or_default()
}

fn refusal(lines: &str) -> String {
    read(&format!("#!/bin/sh\n{lines}\ntrue\n"))
        .map(drop)
        .unwrap_err()
}

#[test]
fn the_command_brings_the_text_and_its_interpreter() {
    let text = "#!/usr/bin/env  -S python3 -u\nprint('it''s')\n";
    let command = read(text).unwrap().request.command;
    assert_eq!(command[..2], ["/bin/sh", "-c"]);
    assert!(
        command[2].ends_with("exec '/usr/bin/env' '-S python3 -u' \"$d/$0\" \"$@\""),
        "{}",
        command[2]
    );
    assert_eq!(command[3..], ["train.sh", text, "a b"]);
}

#[test]
fn a_script_runs_as_it_was_read_whatever_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#!/bin/sh -e\n# it's \"$1\" `x` \\n %s\nprintf '%s|' \"$0\" \"$@\"; echo \"${1+x}$# $-\"\nexit 3\n";
    let command = read(text).unwrap().request.command;
    for marker in [
        dir.path().join("checkpoint"),
        "/nonexistent/checkpoint".into(),
    ] {
        let output = std::process::Command::new(&command[0])
            .args(&command[1..])
            .env("SLUICE_CHECKPOINT_FILE", &marker)
            .env("TMPDIR", dir.path())
            .output()
            .unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let (name, rest) = told.split_once('|').unwrap();
        assert_eq!(std::fs::read_to_string(name).unwrap(), text);
        assert!(
            name.ends_with("/train.sh") && Path::new(name).starts_with(dir.path()),
            "{name}"
        );
        assert!(rest.starts_with("a b|x1 e"), "{rest}");
        assert_eq!(output.status.code(), Some(3));
    }
}

#[test]
fn own_lines_override_those_of_slurm_and_later_lines_earlier_ones() {
    let lines = "#SBATCH --gres=gpu:h100:2 -t 1-12\n\n# a comment\n#SLUICE --gpus 4 --label 'team=a' # why\n\
                 #SLUICE --memory 16GiB -e A=1\n#SLUICE --gpus 1 --id mine";
    assert_eq!(
        fields(lines),
        serde_json::json!({
            "id": "mine", "platform": "h100", "timeout": "1d12h", "labels": {"team": "a"}, "env": {"A": "1"},
            "resources": {"gpu_count": 1, "memory": "16GiB"},
        })
    );
    for (lines, words) in [
        (
            "#SLUICE --gpsu 2",
            "train.sh:2: #SLUICE line: unexpected argument '--gpsu' found; tip: ",
        ),
        ("\n#SLUICE --label 'a", "train.sh:3: a quote is not closed"),
        ("#SLUICE --gpus many", "write a whole number of GPUs"),
        ("#SLUICE -- true", "train.sh:2: #SLUICE line: "),
    ] {
        let refusal = refusal(lines);
        assert!(refusal.contains(words), "{lines}: {refusal}");
    }
}

#[test]
fn lines_below_the_first_command_have_no_effect_and_are_told() {
    let read = read("#!/bin/sh\n#SLUICE --gpus 1\necho\n#SLUICE --gpus 2\n").unwrap();
    assert_eq!(read.request.resources.gpu_count, Some(1));
    assert_eq!(
        read.warning.unwrap(),
        "train.sh: line 4 stands below the first command and has no effect: move it up"
    );
    let plain = super::tests::read("#!/bin/sh\n#SLUICER --gpus 1\n##SBATCH -x\necho\n").unwrap();
    assert_eq!(
        (plain.warning, plain.request.resources.gpu_count),
        (None, None)
    );
}

#[test]
fn each_option_of_slurm_that_has_a_counterpart_is_translated() {
    for (options, expected) in [
        (
            "--job-name=a -A lab -p gpu",
            serde_json::json!({"name": "a", "subject": "lab", "pool": "gpu"}),
        ),
        (
            "-J a -n 1 -c 4 --mem 16G",
            serde_json::json!({"name": "a", "resources": {"cpu_count": 4.0, "memory": "16GiB"}}),
        ),
        (
            "--cpus-per-task=4 --mem-per-cpu=1500",
            serde_json::json!({"resources": {"cpu_count": 4.0, "memory": "6000MiB"}}),
        ),
        (
            "--mem=1000K",
            serde_json::json!({"resources": {"memory": "1000KiB"}}),
        ),
        (
            "-G 8 -N2 --mem-per-gpu 2g",
            serde_json::json!({"nodes": 2, "resources": {"gpu_count": 4, "memory": "8GiB"}}),
        ),
        (
            "--gpus-per-node=A100:2",
            serde_json::json!({"platform": "a100", "resources": {"gpu_count": 2}}),
        ),
        (
            "--gres=gpu",
            serde_json::json!({"resources": {"gpu_count": 1}}),
        ),
        (
            "--gres gpu:3 --nodes=2-2 --ntasks=2",
            serde_json::json!({"nodes": 2, "resources": {"gpu_count": 3}}),
        ),
        (
            "-t 90 -D /data",
            serde_json::json!({"timeout": "1h30m", "workdir": "/data"}),
        ),
        ("-t UNLIMITED", serde_json::json!({})),
        (
            "--begin=2099-01-01T00:00:00Z -d afterok:a:b,afternotok:c,afterany:d",
            serde_json::json!({"begin": "2099-01-01T00:00:00Z", "after": ["a", "b", "c:failed", "d:any"]}),
        ),
        (
            "--no-requeue",
            serde_json::json!({"on_preempt": "fail", "free_preemptions": false}),
        ),
        (
            "--no-requeue --requeue",
            serde_json::json!({"on_preempt": "requeue"}),
        ),
        (
            "-o logs/%A_%4a.out --open-mode=append",
            serde_json::json!({"stdout": "logs/%A_%4a.out", "stderr": "logs/%A_%4a.out", "append": true}),
        ),
        (
            "--output=/o --error /e --open-mode truncate",
            serde_json::json!({"stdout": "/o", "stderr": "/e", "append": false}),
        ),
        ("-e /dev/null", serde_json::json!({"stderr": "/dev/null"})),
        ("--open-mode=append", serde_json::json!({})),
        ("--export=NONE,A=1", serde_json::json!({"env": {"A": "1"}})),
    ] {
        assert_eq!(fields(&format!("#SBATCH {options}")), expected, "{options}");
    }
    let path = std::env::var("PATH").unwrap();
    assert_eq!(fields("#SBATCH --export=ALL,A=1")["env"]["PATH"], path);
}

#[test]
fn what_cannot_be_translated_is_refused_by_name_all_at_once() {
    let told = refusal(
        "#SBATCH --array=0-9%0 --gpus=1\n#SBATCH -w gpu-1 --cpu-per-task 2\n#SBATCH --mem=lots",
    );
    insta::assert_snapshot!(told);
    for (options, words) in [
        (
            "--dependency=after:1",
            "line 2: --dependency: `after:1`: only `afterok`, `afterany` and `afternotok`",
        ),
        (
            "--dependency=singleton",
            "line 2: --dependency: `singleton`: only",
        ),
        (
            "--dependency=afterok",
            "line 2: --dependency: `` is not a valid step id",
        ),
        ("--begin soon", "line 2: --begin: write a duration from now"),
        (
            "--deadline=18:00",
            "line 2: --deadline: Slurm's is a time by which a job must end",
        ),
        ("--ntasks=4", "--ntasks: 4 on 1 hosts"),
        ("--ntasks-per-node=8", "--ntasks-per-node: 8"),
        (
            "--nodes=1-4",
            "`1-4`: a step runs on a fixed number of hosts",
        ),
        ("-G 3 -N 2", "--gpus: 3 cannot be divided among 2 hosts"),
        ("--gres=gpu:1,shard:2", "`gpu:1,shard:2`: only `gpu`"),
        ("--mem=0", "0 is all memory of the host"),
        ("--mem-per-gpu=1G", "the script asks for no GPU"),
        ("-p a,b", "a step names one pool"),
        ("--time=soon", "`soon` is not a time"),
        ("--time", "--time: it needs a value"),
        (
            "-o %J.out",
            "line 2: -o: `%J.out`: `%J` has no meaning: write %j",
        ),
        ("--open-mode=new", "`new`: write `append` or `truncate`"),
        ("hetjob", "line 2: hetjob: Sluice has no counterpart"),
        (
            "--export=SLUICE_TEST_UNSET",
            "you have no variable of that name",
        ),
    ] {
        let told = refusal(&format!("#SBATCH {options}"));
        assert!(told.contains(words), "{options}: {told}");
        assert!(
            told.starts_with("train.sh: nothing was submitted: "),
            "{told}"
        );
    }
}

#[test]
fn what_is_harmless_is_named_in_one_warning() {
    let lines = "#SBATCH --mail-type=END --nice=5 -N 2\n#SBATCH -Q -J a";
    assert_eq!(
        warning(lines),
        "train.sh: the script runs on each of its hosts, not only on the first: SLUICE_NODE_RANK tells them apart; \
         #SBATCH options without effect here: --mail-type (line 2), --nice (line 2: `--priority` \
         orders the steps of a subject), -Q (line 3)"
    );
    assert_eq!(warning("#SBATCH -J a"), "");
}

#[test]
fn a_script_that_cannot_run_is_refused_when_it_is_read() {
    let long = format!("#!/bin/sh\n{}", "#\n".repeat(MAX_SCRIPT_BYTES / 2));
    for (text, words) in [
        (long.as_str(), "a script is sent along up to 65536"),
        ("#!/bin/sh\r\ntrue\r\n", "as on Windows"),
        ("#!\ntrue\n", "names no interpreter"),
        ("#!/bin/sh\n\0", "a NUL byte"),
    ] {
        let error = read(text).map(drop).unwrap_err();
        assert!(
            error.starts_with("train.sh: ") && error.contains(words),
            "{error}"
        );
    }
}
