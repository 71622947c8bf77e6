//! Translates the `#SBATCH` lines of a script. An option that would change what runs and has no counterpart is refused
//! by name, all at once; a harmless one is named in a warning.

use sluice_common::request::StepRequest;

use super::ScriptRequest;
use super::slurm_options::{self, LineEffect};
use crate::render::safe;

/// The options of all lines so far.
#[derive(Default)]
pub(super) struct ScriptLines {
    /// Fields whose meaning depends on no other option.
    pub(super) request: StepRequest,
    pub(super) amounts: JobAmounts,
    refused: Vec<String>,
    ignored: Vec<String>,
}

/// Options that depend on each other.
#[derive(Default)]
pub(super) struct JobAmounts {
    pub(super) tasks: Option<u64>,
    pub(super) tasks_per_node: Option<u64>,
    /// GPUs of the whole job.
    pub(super) gpus: Option<u64>,
    pub(super) kib_per_cpu: Option<u64>,
    pub(super) kib_per_gpu: Option<u64>,
}

impl ScriptLines {
    /// Reads the words of one line.
    pub(super) fn read(&mut self, line: usize, words: Vec<String>) {
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let (name, mut value) = split_option(&word);
            let effect = slurm_options::effect(&name);
            let takes_next = value.is_none() && effect.takes_value();
            if takes_next && words.peek().is_some_and(|next| !next.starts_with('-')) {
                value = words.next();
            }
            self.apply(line, &name, value.as_deref(), effect);
        }
    }

    fn apply(&mut self, line: usize, name: &str, value: Option<&str>, effect: LineEffect) {
        let shown = safe(name);
        let refusal = match (effect, value) {
            (LineEffect::Translate(translate), Some(value)) => translate(self, value).err(),
            (LineEffect::Translate(_), None) => Some("it needs a value".to_owned()),
            (LineEffect::Switch(switch), _) => {
                switch(self);
                None
            }
            (LineEffect::Ignore(""), _) => {
                self.ignored.push(format!("{shown} (line {line})"));
                None
            }
            (LineEffect::Ignore(note), _) => {
                self.ignored.push(format!("{shown} (line {line}: {note})"));
                None
            }
            (LineEffect::Refuse(why), _) => Some(why.to_owned()),
            (LineEffect::Unknown(near), _) => Some(match near {
                Some(near) => format!("there is no such option: did you mean `--{near}`?"),
                None => "Sluice has no counterpart: remove it".to_owned(),
            }),
        };
        let refusal = refusal.map(|why| format!("line {line}: {shown}: {why}"));
        self.refused.extend(refusal);
    }

    /// Returns what the lines ask for together.
    ///
    /// # Errors
    /// Every option that cannot be translated, one a line.
    pub(super) fn finish(mut self) -> Result<ScriptRequest, String> {
        let nodes = u64::from(self.request.nodes.unwrap_or(1));
        self.settle_output();
        if let Err(why) = self.check_tasks(nodes).and_then(|()| self.settle(nodes)) {
            self.refused.push(why);
        }
        if !self.refused.is_empty() {
            let options = self.refused.join("\n  ");
            return Err(format!(
                "these #SBATCH options are wrong or cannot be translated:\n  {options}"
            ));
        }
        let mut warnings = Vec::new();
        if nodes > 1 {
            let why = "the script runs on each of its hosts, not only on the first: SLUICE_NODE_RANK tells them apart";
            warnings.push(why.to_owned());
        }
        if !self.ignored.is_empty() {
            let options = self.ignored.join(", ");
            warnings.push(format!("#SBATCH options without effect here: {options}"));
        }
        Ok(ScriptRequest {
            request: self.request,
            warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
        })
    }

    /// Gives standard error the file of standard output, as Slurm does.
    fn settle_output(&mut self) {
        let request = &mut self.request;
        request.stderr = request.stderr.take().or_else(|| request.stdout.clone());
        // Without `--output`, Slurm writes a file of its own, and there is none here.
        request.append = request.append.filter(|_| request.stderr.is_some());
    }

    /// Checks that there is one task on each host.
    fn check_tasks(&self, nodes: u64) -> Result<(), String> {
        let way_out = "a step has one task on each of its hosts: write `--nodes`, or start the others in the script";
        let tasks = self.amounts.tasks.filter(|tasks| *tasks != nodes);
        let per_node = self.amounts.tasks_per_node.filter(|tasks| *tasks != 1);
        match (tasks, per_node) {
            (Some(tasks), _) => Err(format!("--ntasks: {tasks} on {nodes} hosts: {way_out}")),
            (None, Some(tasks)) => Err(format!("--ntasks-per-node: {tasks}: {way_out}")),
            (None, None) => Ok(()),
        }
    }

    /// Turns amounts of the job, of a core and of a GPU into those of a host.
    fn settle(&mut self, nodes: u64) -> Result<(), String> {
        let resources = &mut self.request.resources;
        if let Some(gpus) = self.amounts.gpus {
            if !gpus.is_multiple_of(nodes) {
                return Err(format!(
                    "--gpus: {gpus} cannot be divided among {nodes} hosts: write `--gpus-per-node`"
                ));
            }
            resources.gpu_count = Some(gpus / nodes);
        }
        if let Some(kib) = self.amounts.kib_per_cpu {
            let cores = resources.cpu_count.unwrap_or(1.0);
            // The cores come from a whole number.
            let cores = cores as u64;
            resources.memory = Some(in_kib(kib.saturating_mul(cores)));
        }
        if let Some(kib) = self.amounts.kib_per_gpu {
            let gpus = resources.gpu_count.unwrap_or(0);
            if gpus == 0 {
                return Err("--mem-per-gpu: the script asks for no GPU: write `--mem`".to_owned());
            }
            resources.memory = Some(in_kib(kib.saturating_mul(gpus)));
        }
        Ok(())
    }
}

/// Writes an amount with the largest unit that fits.
pub(super) fn in_kib(kib: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("TiB", 1 << 30), ("GiB", 1 << 20), ("MiB", 1 << 10)];
    let unit = UNITS.iter().find(|(_, size)| kib.is_multiple_of(*size));
    unit.map_or_else(
        || format!("{kib}KiB"),
        |(name, size)| format!("{}{name}", kib / size),
    )
}

/// Splits a word into an option and its value.
fn split_option(word: &str) -> (String, Option<String>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word.to_owned(), None),
        };
    }
    let Some((end, _)) = word.char_indices().nth(2) else {
        return (word.to_owned(), None);
    };
    let (name, value) = word.split_at(end);
    let value = value.strip_prefix('=').unwrap_or(value);
    match word.starts_with('-') {
        true => (name.to_owned(), Some(value.to_owned())),
        false => (word.to_owned(), None),
    }
}
