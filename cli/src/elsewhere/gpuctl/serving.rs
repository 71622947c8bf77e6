//! Jobs of gpuctl that serve something at a port, which become services. Kubernetes gives each replica a network of its own,
//! so its port is always free there. Steps share the network of their host: each replica gets a free port, which takes the
//! place of that of the file wherever the program finds it.

use serde_json::{Map, Value, json};
use sluice_common::port::PORT_VARIABLE;
use sluice_common::step::WorkKind;

use super::super::fields::{ForeignFields, Refusal};
use super::{JobProgram, NamedValues};

/// Name of the only port of a service.
const PORT_NAME: &str = "http";

/// Port of a service that names none, and that of Jupyter.
const USUAL_PORT: u64 = 8000;
const JUPYTER_PORT: u64 = 8888;

/// Time between two probes, and from the start to the first of each kind, as gpuctl has them.
const PERIOD: &str = "10s";
const READINESS_DELAY: &str = "5s";
const LIVENESS_DELAY: &str = "30s";

const OF_TRAINING: &[Refusal] = &[(
    "service",
    "gpuctl reads it for the other kinds alone: remove it",
)];

/// The section `service` of a job.
struct ServiceFields {
    replicas: u64,
    /// Port at which the program listens, if the file names one.
    port: Option<u64>,
    health: Option<String>,
    timeout: Option<String>,
}

/// Returns the fields of a service, whose program is changed so that it listens at the port of its host; `None` if the job
/// ends by itself.
pub(super) fn fields(
    work: WorkKind,
    file: &mut ForeignFields,
    program: &mut JobProgram,
    notes: &mut Vec<String>,
) -> Result<Option<NamedValues>, String> {
    let Some(section) = section_of(work, file)? else {
        return Ok(None);
    };
    let has_port = section.has_port(work, program, notes)?;
    let mut fields = vec![
        ("work", work.as_str().into()),
        ("replicas", section.replicas.into()),
    ];
    if work == WorkKind::Notebook {
        // Another one beside it would need its GPUs twice, and write the same files.
        let rollout = json!({"max_surge": 0, "max_unavailable": 1, "drain_timeout": "0s"});
        fields.push(("rollout", rollout));
    }
    if has_port {
        fields.push(("ports", json!([PORT_NAME])));
        fields.push(("probes", section.probes()));
    }
    Ok(Some(fields))
}

/// Returns the section `service` of a job, or what gpuctl takes for an absent one; `None` if the job is no service.
fn section_of(work: WorkKind, file: &mut ForeignFields) -> Result<Option<ServiceFields>, String> {
    let absent = match work {
        WorkKind::Training => {
            file.refuse(OF_TRAINING)?;
            return Ok(None);
        }
        // It serves nothing that the file names, so it may as well be a program that ends.
        WorkKind::Compute => None,
        WorkKind::Inference | WorkKind::Notebook => Some(ServiceFields {
            replicas: 1,
            port: None,
            health: None,
            timeout: None,
        }),
    };
    let section = section(file)?.or(absent);
    let replicas = section.as_ref().map_or(1, |section| section.replicas);
    if work == WorkKind::Notebook && replicas != 1 {
        return Err(format!(
            "service.replicas: `{replicas}`: a notebook has one: remove it"
        ));
    }
    Ok(section)
}

fn section(file: &mut ForeignFields) -> Result<Option<ServiceFields>, String> {
    let Some(mut service) = file.object("service")? else {
        return Ok(None);
    };
    let replicas = service.count("replicas")?.unwrap_or(1);
    if replicas == 0 {
        return Err(service.wrong("replicas", &0.into(), "write a number from 1"));
    }
    let port = service.count("port")?;
    if let Some(port) = port.filter(|port| !(1..=65535).contains(port)) {
        return Err(service.wrong("port", &port.into(), "write a number from 1 to 65535"));
    }
    let health = service.take_spelled(&["healthCheck", "health_check"])?;
    let health = match health {
        None => None,
        Some(Value::String(path)) if path.starts_with('/') => Some(path),
        Some(other) => {
            let way = "write a path, such as `/health`";
            return Err(service.wrong("healthCheck", &other, way));
        }
    };
    let timeout = service.text("timeout")?;
    if let (Some(timeout), None) = (&timeout, &health) {
        let way = "it is that of `healthCheck`, which is missing: write both, or none";
        return Err(service.wrong("timeout", &timeout.clone().into(), way));
    }
    service.end()?;
    Ok(Some(ServiceFields {
        replicas,
        port,
        health,
        timeout,
    }))
}

impl ServiceFields {
    /// Changes the program so that it listens at the port of its host; returns whether it does.
    fn has_port(
        &self,
        work: WorkKind,
        program: &mut JobProgram,
        notes: &mut Vec<String>,
    ) -> Result<bool, String> {
        let usual = match work {
            WorkKind::Notebook => JUPYTER_PORT,
            WorkKind::Inference | WorkKind::Compute | WorkKind::Training => USUAL_PORT,
        };
        let port = self.port.unwrap_or(usual);
        let is_needed = work == WorkKind::Notebook || self.port.is_some() || self.health.is_some();
        match program.listen(port) {
            PortSource::Replaced => {
                notes.push(format!(
                    "service.port: each replica gets a free port of its host, which takes the place of {port} in its program"
                ));
                Ok(true)
            }
            PortSource::Known => Ok(true),
            PortSource::Nowhere if is_needed => Err(nowhere(port)),
            PortSource::Nowhere => Ok(false),
        }
    }

    /// The probes of a replica: those of gpuctl if there is a health check, or else whether its program listens.
    fn probes(&self) -> Value {
        let Some(path) = &self.health else {
            return json!({"readiness": {"tcp": PORT_NAME}});
        };
        let probe = |delay: &str| {
            let mut probe = Map::new();
            probe.insert("http".to_owned(), json!({"path": path, "port": PORT_NAME}));
            probe.insert("period".to_owned(), PERIOD.into());
            probe.insert("initial_delay".to_owned(), delay.into());
            if let Some(timeout) = &self.timeout {
                probe.insert("timeout".to_owned(), timeout.as_str().into());
            }
            probe
        };
        json!({"readiness": probe(READINESS_DELAY), "liveness": probe(LIVENESS_DELAY)})
    }
}

fn nowhere(port: u64) -> String {
    format!(
        "service.port: `{port}`: neither the command nor a variable such as `PORT` has it, and steps share the ports of their \
         host: write it there (`--port {port}`), and the port that its host gives takes its place; or let the program read \
         `{PORT_VARIABLE}`"
    )
}

/// Origin of the port at which a program listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortSource {
    /// The port of the host takes the place of that of the file.
    Replaced,
    /// The program reads the variable by itself.
    Known,
    /// The program cannot know the port.
    Nowhere,
}

impl JobProgram {
    /// Puts the port of the host into the place of `port` in the command and in variables such as `PORT`. A shell does it
    /// when the program starts, because the port is known then.
    fn listen(&mut self, port: u64) -> PortSource {
        let port = port.to_string();
        let by_name = |name: &str, value: &Value| {
            name.to_ascii_uppercase().ends_with("PORT") && value.as_str() == Some(&port)
        };
        let variables: Vec<String> = self
            .env
            .iter()
            .filter(|(name, value)| by_name(name, value) && is_identifier(name))
            .map(|(name, _)| name.clone())
            .collect();
        let mut is_in_command = false;
        let mut before = "";
        let mut words = Vec::new();
        for argument in &self.command {
            let (word, has_port) = with_port(argument, &port, before);
            is_in_command |= has_port;
            words.push(word);
            before = argument;
        }
        if variables.is_empty() && !is_in_command {
            let reads = |text: &String| text.contains(PORT_VARIABLE);
            return match self.command.iter().any(reads) {
                true => PortSource::Known,
                false => PortSource::Nowhere,
            };
        }
        let mut script = String::new();
        for name in &variables {
            self.env.remove(name);
            script.push_str(&format!("export {name}=\"${PORT_VARIABLE}\"; "));
        }
        script.push_str("exec ");
        script.push_str(&words.join(" "));
        self.command = ["sh", "-c", &script].map(str::to_owned).into();
        PortSource::Replaced
    }
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns an argument as a word of a shell, with the port of the host in each place where `port` is one, and whether there
/// is such a place. `before` is the argument before it.
fn with_port(argument: &str, port: &str, before: &str) -> (String, bool) {
    let mut word = String::new();
    let mut rest = 0;
    for (at, _) in argument.match_indices(port) {
        let after = &argument[at + port.len()..];
        if at >= rest && is_port(&argument[..at], after, before) {
            if at > rest {
                word.push_str(&quoted(&argument[rest..at]));
            }
            word.push_str(&format!("\"${PORT_VARIABLE}\""));
            rest = at + port.len();
        }
    }
    if rest == 0 || rest < argument.len() {
        word.push_str(&quoted(&argument[rest..]));
    }
    (word, rest > 0)
}

/// Whether a number between these parts of an argument is a port: after a colon, after an option such as `--port` or `-p`, or
/// after no option at all, as in `http.server 8000`.
fn is_port(left: &str, right: &str, before: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if left.ends_with(is_inside) || right.starts_with(|c: char| is_inside(c) && c != '.') {
        return false;
    }
    if left.ends_with(':') {
        return true;
    }
    let separates = |c: char| c.is_whitespace() || "=\"'(),".contains(c);
    let own = left.trim_end_matches(separates);
    let option = match own.is_empty() {
        true => before,
        false => own.rsplit(separates).next().unwrap_or_default(),
    };
    let is_of_port = option == "-p" || option.to_ascii_lowercase().contains("port");
    // An option with `=` has its value already.
    let takes_number = option.starts_with('-') && !option.contains('=');
    !takes_number || is_of_port
}

/// Returns a text as a word of a shell, as it is if nothing in it means something there.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,@%+-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    // A NUL byte, which no argument can have, is refused where the request is checked.
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(command: &[&str], env: &[(&str, &str)]) -> JobProgram {
        let env = env.iter();
        JobProgram {
            image: None,
            command: command.iter().map(ToString::to_string).collect(),
            env: env
                .map(|(name, value)| ((*name).to_owned(), Value::from(*value)))
                .collect(),
        }
    }

    #[test]
    fn the_port_of_the_host_takes_the_place_of_that_of_the_file() {
        for (command, expected) in [
            (
                &["jupyter", "lab", "--port=8000", "--ip=0.0.0.0"][..],
                "jupyter lab --port=\"$SLUICE_PORT\" --ip=0.0.0.0",
            ),
            (
                &["serve", "--port", "8000", "--max-tokens", "8000"],
                "serve --port \"$SLUICE_PORT\" --max-tokens 8000",
            ),
            (
                &["python3", "-m", "http.server", "8000"],
                "python3 -m http.server \"$SLUICE_PORT\"",
            ),
            (
                &["serve", "-p", "8000", "-n", "8000"],
                "serve -p \"$SLUICE_PORT\" -n 8000",
            ),
            (
                &["gunicorn", "--bind", "0.0.0.0:8000", "app:app"],
                "gunicorn --bind 0.0.0.0:\"$SLUICE_PORT\" app:app",
            ),
            (
                &["sh", "-c", "exec vllm 'a b' --port 8000"],
                "sh -c \"exec vllm 'a b' --port \"\"$SLUICE_PORT\"",
            ),
            (
                &["python3", "-c", "serve(8000)"],
                "python3 -c 'serve('\"$SLUICE_PORT\"')'",
            ),
        ] {
            let mut program = program(command, &[]);
            assert_eq!(program.listen(8000), PortSource::Replaced, "{command:?}");
            assert_eq!(program.command, ["sh", "-c", &format!("exec {expected}")]);
        }
        let mut nginx = program(&["nginx"], &[("NGINX_PORT", "80"), ("WORKERS", "80")]);
        assert_eq!(nginx.listen(80), PortSource::Replaced);
        assert_eq!(
            nginx.command[2],
            "export NGINX_PORT=\"$SLUICE_PORT\"; exec nginx"
        );
        assert_eq!(nginx.env.keys().collect::<Vec<_>>(), ["WORKERS"]);
    }

    #[test]
    fn a_number_that_is_no_port_is_left_alone() {
        for command in [
            &["serve"][..],
            &["serve", "--max-model-len", "8000"],
            &["serve", "--port", "18000"],
            &["serve", "--seed=8000"],
            &["serve", "1.8000"],
            &["serve", "a8000", "8000b"],
        ] {
            let mut program = program(command, &[("SEED", "8000")]);
            assert_eq!(program.listen(8000), PortSource::Nowhere, "{command:?}");
            assert_eq!(program.command, command);
        }
        let mut reads = program(&["sh", "-c", "serve $SLUICE_PORT"], &[]);
        assert_eq!(reads.listen(8000), PortSource::Known);
        assert_eq!(reads.command[2], "serve $SLUICE_PORT");
    }

    #[test]
    fn a_shell_gives_each_argument_to_the_program_as_it_was() {
        let command = [
            "printf",
            "%s|",
            "a'b",
            "--port=8000",
            "",
            "$HOME `x` \\",
            "c:8000 d",
        ];
        let mut program = program(&command, &[]);
        program.listen(8000);
        let run = std::process::Command::new(&program.command[0])
            .args(&program.command[1..])
            .env(PORT_VARIABLE, "20001")
            .output()
            .unwrap();
        let said = String::from_utf8(run.stdout).unwrap();
        assert_eq!(said, "a'b|--port=20001||$HOME `x` \\|c:20001 d|");
    }
}
