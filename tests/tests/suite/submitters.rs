//! Steps that run as the host user of their submitter, from tokens of two users to processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use sluice_tests::{CommandOutput, Daemon, Dev, DevOptions, eventually, needs_root};
use tempfile::TempDir;

/// Starts a cluster whose one host runs steps as these two users, whom every Debian has; returns the folder of that
/// host's config too.
fn dev() -> Option<(Dev, TempDir)> {
    if !needs_root() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("supervisor.toml");
    fs::write(&config, "as_submitter = [\"daemon\", \"games\"]\n").unwrap();
    let dev = Dev::with(DevOptions {
        variables: vec![("SLUICE_SUPERVISOR_CONFIG", config.display().to_string())],
        ..DevOptions::default()
    });
    Some((dev, folder))
}

/// A command line with a token that an admin has made for a user.
struct UserCli<'a> {
    dev: &'a Dev,
    context: String,
}

impl<'a> UserCli<'a> {
    fn of(dev: &'a Dev, user: &str) -> Self {
        let name = format!("laptop-of-{user}");
        let flags = ["--role", "submitter", "--subject", "*", "--user", user];
        let secret = dev.ok(&[&["api-token", "create", name.as_str()], &flags[..]].concat());
        let context = fs::read(&dev.context).unwrap();
        let mut context: Value = serde_json::from_slice(&context).unwrap();
        context["token"] = secret.trim().into();
        let file = dev.folder().join(name);
        fs::write(&file, context.to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let context = file.display().to_string();
        Self { dev, context }
    }

    fn sluice(&self, args: &[&str]) -> CommandOutput {
        self.dev
            .sluice(&[&["--context", self.context.as_str()], args].concat())
    }

    fn ok(&self, args: &[&str]) -> String {
        let ran = self.sluice(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.stdout
    }
}

/// Checks that files of a step are kept as its user, and that he and admins alone may copy them.
fn may_copy_what_was_kept(caller: &UserCli<'_>, user: &str) {
    let id = format!("keeps-{user}");
    let script = "umask 077; id -un > own; ln -s /etc/shadow shadow";
    let keep = ["run", "--id", id.as_str(), "--keep", ".", "--"];
    caller.ok(&[&keep[..], &["sh", "-c", script]].concat());
    let (from, to) = (format!("{id}:own"), caller.dev.folder().join(&id));
    let to = to.to_str().unwrap();
    let has_arrived = || {
        assert_eq!(fs::read_to_string(to).unwrap(), format!("{user}\n"));
        fs::remove_file(to).unwrap();
    };
    caller.ok(&["cp", &from, to]);
    has_arrived();
    caller.dev.ok(&["cp", &from, to]);
    has_arrived();
    let other = UserCli::of(caller.dev, &format!("other-than-{user}"));
    let copy = other.sluice(&["cp", &from, to]);
    let said = "only its submitter and admins may copy files";
    assert!(copy.code != 0 && copy.stderr.contains(said), "{copy:?}");
    assert!(!fs::exists(to).unwrap());
}

#[test]
fn two_users_steps_of_one_subject_run_as_each_of_them_over_retries_and_restarts() {
    let Some((dev, _config)) = dev() else { return };
    for user in ["daemon", "games"] {
        let caller = UserCli::of(&dev, user);
        assert!(
            caller
                .ok(&["auth", "whoami"])
                .contains(&format!("submits as user {user}"))
        );
        let said = caller.ok(&[
            "run",
            "--",
            "sh",
            "-c",
            "id -un; echo $USER; touch of-$USER; stat -c %U of-$USER",
        ]);
        assert_eq!(said, format!("{user}\n{user}\n{user}\n"));
        let again = [
            "--retries",
            "1",
            "--",
            "sh",
            "-c",
            "id -un; [ $SLUICE_ATTEMPT = 2 ]",
        ];
        let id = format!("again-{user}");
        caller.ok(&[&["run", "--id", id.as_str()], &again[..]].concat());
        assert_eq!(caller.ok(&["logs", &id]), format!("{user}\n"));
        let id = format!("stays-{user}");
        caller.ok(&["submit", "--id", &id, "--", "sleep", "1000"]);
        dev.step_in(&id, &["running"]);
        assert_eq!(
            caller.ok(&["exec", &id, "--", "id", "-un"]),
            format!("{user}\n")
        );
        let ran =
            UserCli::of(&dev, &format!("friend-of-{user}")).sluice(&["exec", &id, "--", "id"]);
        assert!(ran.code != 0 && ran.stdout.is_empty(), "{ran:?}");
        let said = format!("runs as `{user}`, who submitted it");
        assert!(ran.stderr.contains(&said), "{ran:?}");
        let described = caller.ok(&["describe", "step", &id]);
        assert!(
            described.contains("Submitted by") && described.contains(user),
            "{described}"
        );
        may_copy_what_was_kept(&caller, user);
        let yaml = caller.ok(&["get", "step", &id, "-o", "yaml"]);
        assert!(yaml.contains(&format!("submitted_by: {user}\n")), "{yaml}");
    }
    dev.kill(Daemon::Coordinator);
    dev.kill(Daemon::Supervisor);
    for user in ["daemon", "games"] {
        let id = format!("stays-{user}");
        eventually("the host to serve again", || {
            let ran = dev.sluice(&["exec", &id, "--", "id", "-un"]);
            (ran.stdout == format!("{user}\n")).then_some(())
        });
        dev.ok(&["requeue", &id]);
        eventually("its second attempt", || {
            let step = dev.call("GET", &format!("/v1/steps/{id}"), None).1;
            (step["attempt"] == 2 && step["state"] == "running").then_some(())
        });
        assert_eq!(
            dev.ok(&["exec", &id, "--", "id", "-un"]),
            format!("{user}\n")
        );
        dev.ok(&["cancel", &id]);
    }
}

#[test]
fn whoever_may_not_run_as_himself_runs_as_nobody_and_is_told_why() {
    let Some((dev, _config)) = dev() else { return };
    let nobody = UserCli::of(&dev, "nobody");
    let root = UserCli::of(&dev, "root");
    let as_nobody = nobody.sluice(&["run", "--id", "unlisted", "--", "id"]);
    let as_root = root.sluice(&["run", "--id", "root", "--", "id"]);
    let as_admin = dev.sluice(&["run", "--id", "admin", "--", "id"]);
    for (ran, said) in [
        (as_nobody, "does not list `nobody`"),
        (as_root, "does not list `root`"),
        (as_admin, "knows no user who submitted the step"),
    ] {
        assert!(ran.code != 0 && ran.stdout.is_empty(), "{ran:?}");
        assert!(
            ran.stderr.contains(said) && ran.stderr.contains("as_submitter"),
            "{ran:?}"
        );
    }
    // The host works as before for permitted users.
    let daemon = UserCli::of(&dev, "daemon");
    assert_eq!(daemon.ok(&["run", "--", "id", "-un"]), "daemon\n");
    // Nobody becomes another user by asking for it.
    let body = r#"{"subject":"default","command":["id"],"submitted_by":"games"}"#;
    let file = dev.folder().join("step.json");
    fs::write(&file, body).unwrap();
    let forged = daemon.sluice(&["submit", "-f", file.to_str().unwrap()]);
    assert!(
        forged.code != 0 && forged.stderr.contains("submitted_by"),
        "{forged:?}"
    );
    let stolen = [
        "api-token",
        "create",
        "x",
        "--role",
        "submitter",
        "--subject",
        "*",
        "--user",
        "games",
    ];
    let stolen = daemon.sluice(&stolen);
    assert!(stolen.code != 0 && stolen.stdout.is_empty(), "{stolen:?}");
}
