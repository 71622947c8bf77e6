//! `sluice context` and `sluice logout`: the user's contexts.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use crate::args::ContextCommand;
use crate::context::{self, NamedContexts};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::listed::Listed;
use crate::render::sections::Sections;
use crate::render::table::{Cell, Column};
use crate::render::{or_dash, safe};
use crate::show;

/// A context, without its secrets.
#[derive(Debug, Serialize)]
struct ContextView {
    /// Name; `null` for a file that was named.
    name: Option<String>,
    /// Whether commands use it if nothing else is chosen.
    in_use: bool,
    path: PathBuf,
    http: Option<String>,
    subject: Option<String>,
    pool: Option<String>,
    /// Kind of credential: `token`, `certificate` or `none`.
    credential: Option<&'static str>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    /// Why the file cannot be used, if it cannot.
    problem: Option<String>,
}

impl Listed for ContextView {
    const KIND: &'static str = "context";
    const COLUMNS: &'static [Column] = &[
        Column::new("IN USE", 8),
        Column::new("NAME", 9).text(),
        Column::new("ADDRESS", 8).text(),
        Column::new("SUBJECT", 6).text(),
        Column::new("CREDENTIAL", 5),
        Column::new("FILE", 3).wide(),
    ];

    fn name(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => self.path.to_string_lossy().into_owned(),
        }
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let address = self.http.as_deref().or(self.problem.as_deref());
        vec![
            if self.in_use { "*" } else { "" }.to_owned().into(),
            safe(&self.name()).into(),
            or_dash(address).into(),
            or_dash(self.subject.as_deref()).into(),
            or_dash(self.credential).into(),
            safe(&self.path.to_string_lossy()).into(),
        ]
    }
}

impl ContextView {
    fn of(name: Option<String>, path: PathBuf, in_use: bool) -> Self {
        let read = context::read(&path);
        let problem = read.as_ref().err().map(ToString::to_string);
        let file = read.ok();
        let credential = file.as_ref().map(context::ContextFile::credential);
        let file = file.unwrap_or_default();
        Self {
            name,
            in_use,
            path,
            http: problem.is_none().then_some(file.http),
            subject: file.subject,
            pool: file.pool,
            credential,
            ca: file.ca,
            cert: file.cert,
            problem,
        }
    }

    fn text(&self) -> String {
        let path = |path: &Option<PathBuf>| {
            let text = path.as_ref().map(|path| path.to_string_lossy());
            or_dash(text.as_deref())
        };
        let credential = self.credential.unwrap_or("-").to_owned();
        let mut sections = Sections::default();
        sections
            .field("Name", or_dash(self.name.as_deref()))
            .field("In use", if self.in_use { "yes" } else { "no" })
            .field("File", safe(&self.path.to_string_lossy()))
            .field("Address", or_dash(self.http.as_deref()))
            .field("Subject", or_dash(self.subject.as_deref()))
            .field("Pool", or_dash(self.pool.as_deref()))
            .field("Credential", credential)
            .field("Authority", path(&self.ca))
            .field("Certificate", path(&self.cert));
        sections.optional("Problem", self.problem.as_deref().map(safe));
        sections.finish()
    }
}

/// Runs `sluice context`.
pub(crate) fn run(
    chosen: Option<&Path>,
    command: &ContextCommand,
    out: Out,
) -> Result<u8, Failure> {
    let contexts = NamedContexts::of_user()?;
    match command {
        ContextCommand::List => list(&contexts, out)?,
        ContextCommand::Use { name } => {
            let path = contexts.existing(name)?;
            context::read(&path)?;
            choose(&contexts, name)?;
            out.result(&format!("context/{} in use\n", safe(name)))?;
            tell_override(chosen, out);
        }
        ContextCommand::Show { name } => {
            let view = match name {
                Some(name) => {
                    let in_use = contexts.current() == *name;
                    ContextView::of(Some(name.clone()), contexts.existing(name)?, in_use)
                }
                None => in_effect(chosen, &contexts)?,
            };
            show::one(&view, out, |view| view.text())?;
        }
        ContextCommand::Rename { old, new } => {
            contexts.changeable(old)?;
            if contexts.path(new).exists() {
                let new = safe(new);
                return Err(Failure::Failed(format!(
                    "there is a context `{new}` already: delete it first, or choose another name"
                )));
            }
            contexts.rename(old, new)?;
            out.result(&format!(
                "context/{} is now context/{}\n",
                safe(old),
                safe(new)
            ))?;
        }
        ContextCommand::Delete { names } => {
            // All are checked first, so that a mistake leaves everything as it is.
            for name in names {
                contexts.changeable(name)?;
            }
            for name in names {
                contexts.delete(name)?;
                out.result(&format!("context/{} deleted\n", safe(name)))?;
            }
        }
    }
    Ok(0)
}

/// Runs `sluice logout`: removes the file of the context that commands use, and with it the credential.
pub(crate) fn logout(chosen: Option<&Path>, out: Out) -> Result<u8, Failure> {
    let contexts = NamedContexts::of_user()?;
    let view = in_effect(chosen, &contexts)?;
    match &view.name {
        Some(name) => {
            contexts.changeable(name)?;
            contexts.delete(name)?;
        }
        None => {
            let failed = |e| Failure::Failed(format!("cannot remove {}: {e}", view.path.display()));
            std::fs::remove_file(&view.path).map_err(failed)?;
        }
    }
    out.result(&format!("context/{} deleted\n", safe(&view.name())))?;
    if view.credential == Some("token") {
        out.progress("its token stays good until it expires or `sluice api-token delete` ends it");
    }
    Ok(0)
}

fn list(contexts: &NamedContexts, out: Out) -> Result<(), Failure> {
    let current = contexts.current();
    let views = contexts.names().into_iter().map(|name| {
        let (path, in_use) = (contexts.path(&name), name == current);
        ContextView::of(Some(name), path, in_use)
    });
    let views: Vec<_> = views.collect();
    if views.is_empty() && out.format().is_text() {
        out.progress("no contexts: `sluice login` makes one");
        return Ok(());
    }
    show::list(&views, out)
}

/// Returns the context that a command without flags uses.
fn in_effect(chosen: Option<&Path>, contexts: &NamedContexts) -> Result<ContextView, Failure> {
    let context = context::find(chosen)?;
    let current = contexts.current();
    let names = contexts.names().into_iter();
    let name = names
        .into_iter()
        .find(|name| contexts.path(name) == context);
    let in_use = name.as_deref() == Some(&current);
    Ok(ContextView::of(name, context, in_use))
}

/// Chooses the context in use.
pub(super) fn choose(contexts: &NamedContexts, name: &str) -> Result<(), Failure> {
    let chosen = contexts.choose(name);
    chosen.map_err(|e| Failure::Failed(format!("cannot note the context in use: {e}")))
}

/// Warns that the choice has no effect where `SLUICE_CONTEXT` names another.
pub(super) fn tell_override(chosen: Option<&Path>, out: Out) {
    if let Some(chosen) = chosen {
        let chosen = safe(&chosen.to_string_lossy());
        out.warning(&format!(
            "--context or SLUICE_CONTEXT names `{chosen}`, which goes before the context in use"
        ));
    }
}
