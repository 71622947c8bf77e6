//! Subjects by the callers' own names, with real processes and an issuer: the documents of docs/access.md are applied
//! as they stand there, and users of the issuer submit by them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::issuer::Issuer;
use crate::secrets::site::{ADMIN, SecretsCluster, bearer};

/// The documents of a page's block.
fn page_block(page: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let text = fs::read_to_string(path).unwrap();
    let begin = format!("```yaml {name}\n");
    let (_, rest) = text.split_once(&begin).expect("the page has the block");
    rest.split_once("```").unwrap().0.to_owned()
}

/// Callers of a coordinator that knows an issuer.
struct Users {
    cluster: SecretsCluster,
    issuer: Issuer,
}

impl Users {
    /// Starts a coordinator with the pools `training` and `serving`, and applies the documents of the page.
    fn start() -> Self {
        let issuer = Issuer::new();
        let mut cluster = SecretsCluster::new(&issuer.jwks());
        cluster.caller("admin", ADMIN);
        let pools = "kind: pool\nname: training\n---\nkind: pool\nname: serving\n---\n";
        let page = page_block("docs/access.md", "everybody.yaml");
        fs::write(cluster.path("everybody.yaml"), format!("{pools}{page}")).unwrap();
        let file = cluster.text("everybody.yaml");
        let applied = cluster.sluice("admin", &["apply", "-f", &file]);
        assert!(applied.contains("binding/everybody created"), "{applied}");
        Self { cluster, issuer }
    }

    /// Logs a user of the issuer in, without a subject; returns the token.
    fn user(&self, name: &str, claims: &Value) -> String {
        let token = self.issuer.token_with(name, 600, claims);
        let context = json!({ "http": self.cluster.http, "token": token });
        let path = self.cluster.path(&format!("{name}.json"));
        sluice_transport::files::write_private(&path, &context.to_string()).unwrap();
        token
    }

    /// Runs a command of a user; returns what it prints on both streams.
    fn run(&self, user: &str, args: &[&str]) -> String {
        let context = self.cluster.text(&format!("{user}.json"));
        let output = self
            .cluster
            .unkept("sluice", &[&["--context", &context], args].concat(), "");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        text(&output.stdout) + &text(&output.stderr)
    }

    fn subject_of(&self, step: &str) -> String {
        let shown = self.run("admin", &["get", "steps", step, "-o", "json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{shown}"));
        shown["subject"].as_str().unwrap().to_owned()
    }
}

#[test]
fn users_of_an_issuer_submit_for_their_own_names_and_teams() {
    let mut users = Users::start();
    users.user("alice", &json!({}));
    users.user(
        "bob",
        &json!({ "org": "lab", "team": ["vision", "*", "a/b"] }),
    );
    users.user("mallory", &json!({ "org": "lab", "team": "*" }));
    users.user("carol@lab", &json!({}));
    // A step that names no subject is for the only one that its user may submit for.
    let submitted = users.run(
        "alice",
        &["submit", "--id", "hers", "--pool", "training", "--", "true"],
    );
    assert_eq!(submitted, "hers\n");
    assert_eq!(users.subject_of("hers"), "alice");
    let submit = |users: &Users, user: &str, subject: &str| {
        users.run(
            user,
            &[
                "submit",
                "--subject",
                subject,
                "--pool",
                "training",
                "--",
                "true",
            ],
        )
    };
    assert!(submit(&users, "alice", "bob").contains("may not `create` `steps`"));
    assert!(!submit(&users, "bob", "bob").contains("error"));
    assert!(!submit(&users, "bob", "ml-vision").contains("error"));
    for subject in ["ml-web", "ml-a", "alice", "default"] {
        assert!(
            submit(&users, "bob", subject).contains("may not"),
            "{subject}"
        );
    }
    let who = users.run("bob", &["auth", "whoami"]);
    assert!(
        who.contains("(subjects ml-vision)") && who.contains("(subjects bob)"),
        "{who}"
    );
    // A claim is never a pattern, and says what it lacks.
    assert!(!submit(&users, "mallory", "mallory").contains("error"));
    let refused = submit(&users, "mallory", "ml-web");
    assert!(
        refused.contains("a binding gives it for the subject `ml-{team}`"),
        "{refused}"
    );
    let who = users.run("mallory", &["auth", "whoami"]);
    assert!(
        who.contains("does not have pool-training-submitter (subjects ml-{team})"),
        "{who}"
    );
    let refused = submit(&users, "carol@lab", "carol");
    assert!(
        refused.contains("`carol@lab` is not a valid subject"),
        "{refused}"
    );
    users.cluster.stop();
}

#[test]
fn a_stream_that_a_claim_opened_ends_with_the_binding() {
    let mut users = Users::start();
    let token = users.user("bob", &json!({ "org": "lab", "team": "vision" }));
    let mut stream = TcpStream::connect(&users.cluster.http).unwrap();
    let request = format!(
        "GET /v1/events?since=0&follow=true HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\n\r\n",
        users.cluster.http,
        bearer(&token)
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut read_until = |wanted: &str| {
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&bytes).contains(wanted) {
            let got = stream.read(&mut part).unwrap();
            assert_ne!(got, 0, "the stream ended before {wanted}");
            bytes.extend_from_slice(&part[..got]);
        }
    };
    read_until("200 OK");
    for binding in ["everybody", "teams"] {
        users.run("admin", &["delete", "binding", binding]);
    }
    read_until("event: error");
    users.cluster.stop();
}

#[test]
fn a_waiting_step_is_moved_and_every_command_tells_it() {
    let mut users = Users::start();
    users.user("alice", &json!({}));
    users.run(
        "alice",
        &["submit", "--id", "a", "--pool", "training", "--", "true"],
    );
    let refused = users.run("alice", &["move", "step", "a", "--pool", "serving"]);
    assert!(
        refused.contains("may not `create` `steps` in pool `serving`"),
        "{refused}"
    );
    let refused = users.run("admin", &["move", "step", "a", "--pool", "serving"]);
    assert!(
        refused.contains("would reject it: `alice` has no policy"),
        "{refused}"
    );
    let policy = "kind: policy\npool: serving\nsubject: alice\n";
    fs::write(users.cluster.path("policy.yaml"), policy).unwrap();
    let file = users.cluster.text("policy.yaml");
    users.run("admin", &["apply", "-f", &file]);
    let moves = |users: &Users, more: &[&str]| {
        users.run(
            "admin",
            &[&["move", "step", "a", "--pool", "serving"], more].concat(),
        )
    };
    let dry = moves(&users, &["--dry-run"]);
    assert!(dry.contains("it would wait (dry run)"), "{dry}");
    assert_eq!(moves(&users, &[]), "a moved to pool serving, queued\n");
    assert_eq!(
        moves(&users, &[]),
        "a waits already in pool serving, queued\n"
    );
    let explained = users.run("admin", &["explain", "a"]);
    assert!(
        explained.contains("  moved to pool serving while it waited\n"),
        "{explained}"
    );
    let described = users.run("admin", &["describe", "step", "a"]);
    assert!(
        described.contains("submitted to pool training"),
        "{described}"
    );
    let events = users.run("admin", &["get", "events"]);
    assert!(events.contains("step_moved"), "{events}");
    // The move is in the store.
    users.cluster.kill("sluice-coordinator");
    users.cluster.coordinator();
    let described = users.run("admin", &["describe", "step", "a"]);
    assert!(
        described.contains("submitted to pool training"),
        "{described}"
    );
    users.cluster.stop();
}
