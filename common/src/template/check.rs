//! Validates templates when they are applied, and what steps request of them when they are submitted, so that nothing
//! can be invalid when a step starts.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::merge::ListItem;
use super::variable::{self, TemplateField, Variable, VariableError};
use super::{Hook, LayeredList, LimitValue, Mount, Template};
use crate::amount::parse_memory;
use crate::environment::Environment;
use crate::error_code::ErrorCode;
use crate::nearest::nearest;
use crate::reason::ReasonCode;
use crate::request::{FieldError, ResourceSettings, check_command};
use crate::step::StepSpec;
use crate::time::Span;

/// Largest template as JSON, in bytes, because the merged template is stored with each step.
pub const MAX_TEMPLATE_BYTES: usize = 32 * 1024;

/// Most templates that a pool may list.
pub const MAX_TEMPLATES: usize = 16;

/// Most items in a list of a template.
const MAX_ITEMS: usize = 64;

/// Default time limit of a hook.
pub const DEFAULT_HOOK_TIMEOUT: Span = Span::from_secs(30);

/// Longest time limit of a hook.
pub const MAX_HOOK_TIMEOUT: Span = Span::from_secs(600);

/// Limit on the processes and threads of a step; all other limits apply to each process.
pub const PROCESSES: &str = "processes";

/// Limits given as counts.
const COUNTED: [&str; 4] = [PROCESSES, "nofile", "nproc", "cpu_seconds"];

/// Names of all limits.
pub fn limits() -> impl Iterator<Item = &'static str> + Clone {
    COUNTED.into_iter().chain(BYTES)
}

/// Limits given in bytes.
const BYTES: [&str; 6] = [
    "address_space",
    "core",
    "data",
    "file_size",
    "memlock",
    "stack",
];

fn wrong(field: impl Into<String>, message: impl ToString) -> FieldError {
    FieldError::new(ErrorCode::InvalidTemplate, field, message)
}

impl Template {
    /// Checks that the template may be stored.
    ///
    /// # Errors
    /// The first invalid field, with the value and what to write instead.
    pub fn check(&self) -> Result<(), FieldError> {
        check_command(&["x".to_owned()], &self.env, None)?;
        for (name, value) in self.env.iter() {
            check_text(&format!("env.{name}"), value, TemplateField::Text)?;
        }
        self.check_wrapper()?;
        if let Some(workdir) = &self.workdir {
            check_command(&["x".to_owned()], &Environment::default(), Some(workdir))?;
            check_text("workdir", workdir, TemplateField::Workdir)?;
        }
        for (name, value) in &self.limits {
            limit(name, value)?;
        }
        check_hooks("hooks.before", self.hooks.before.as_ref())?;
        check_hooks("hooks.after", self.hooks.after.as_ref())?;
        self.resources
            .fill_unset(&ResourceSettings::default())
            .demand()?;
        self.check_mounts()?;
        for (field, text) in [
            ("privileged_argument", &self.privileged_argument),
            ("host_network_argument", &self.host_network_argument),
        ] {
            let text = text.as_deref().unwrap_or_default();
            check_text(field, text, TemplateField::Plain)?;
        }
        Ok(())
    }

    fn check_wrapper(&self) -> Result<(), FieldError> {
        let wrapper = self.wrapper.as_deref().unwrap_or_default();
        if wrapper.first().is_some_and(String::is_empty) {
            let why = "the program is empty: write one, or `[]` for no wrapper";
            return Err(wrong("wrapper[0]", why));
        }
        check_length("wrapper", wrapper.len())?;
        for (at, argument) in wrapper.iter().enumerate() {
            check_text(&format!("wrapper[{at}]"), argument, TemplateField::Wrapper)?;
        }
        Ok(())
    }

    fn check_mounts(&self) -> Result<(), FieldError> {
        if let Some(form) = &self.mount_argument {
            check_text("mount_argument", form, TemplateField::MountArgument)?;
        }
        each_mount("mounts", self.mounts.as_ref(), TemplateField::Mount)?;
        let allowed = self.allowed_mounts.as_ref();
        each_mount("allowed_mounts", allowed, TemplateField::AllowedMount)
    }

    /// Whether a wrapper, a hook, a variable or a mount is given the step's working directory, which must be known
    /// before the step starts then.
    pub fn uses_workdir(&self) -> bool {
        let mounts = self.mounts.iter().flat_map(LayeredList::items);
        let mut shown = mounts.flat_map(|mount| [Some(&mount.source), mount.target.as_ref()]);
        self.mentions(Variable::Workdir)
            || shown.any(|it| it.is_some_and(|text| variable::mentions(text, Variable::Workdir)))
    }

    /// Whether the wrapper, a hook or an environment variable mentions a variable.
    fn mentions(&self, wanted: Variable) -> bool {
        let hooks = [&self.hooks.before, &self.hooks.after];
        let hooks = hooks.into_iter().flatten().flat_map(LayeredList::items);
        let hooks = hooks.flat_map(|hook| &hook.command);
        let wrapper = self.wrapper.iter().flatten();
        let mut texts = wrapper.chain(hooks).chain(self.env.values());
        texts.any(|text| variable::mentions(text, wanted))
    }
}

fn check_length(field: &str, count: usize) -> Result<(), FieldError> {
    if count <= MAX_ITEMS {
        return Ok(());
    }
    Err(wrong(
        field,
        format!("{count} items: the maximum is {MAX_ITEMS}"),
    ))
}

fn check_text(field: &str, text: &str, place: TemplateField) -> Result<(), FieldError> {
    if text.contains('\0') {
        return Err(wrong(
            field,
            "it contains a NUL byte, which cannot be passed to a program",
        ));
    }
    variable::check(text, place)
        .map_err(|e: VariableError| FieldError::new(ErrorCode::InvalidVariable, field, e))
}

/// Parses the value of a limit.
///
/// # Errors
/// If there is no such limit, or the value is invalid.
pub fn limit(name: &str, value: &LimitValue) -> Result<u64, FieldError> {
    let field = format!("limits.{}", name.escape_debug());
    let known = limits();
    if !known.clone().any(|known| known == name) {
        let hint = match nearest(name, known.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
        };
        return Err(wrong(
            field,
            format!("there is no limit `{}`: {hint}", name.escape_debug()),
        ));
    }
    match value {
        LimitValue::Number(0) if name == PROCESSES => Err(wrong(
            field,
            "a step is one process at least: write 1 or more",
        )),
        LimitValue::Number(most) => Ok(*most),
        LimitValue::Text(text) if BYTES.contains(&name) => {
            parse_memory(text).map_err(|e| wrong(field, e))
        }
        LimitValue::Text(text) => {
            let text = text.escape_debug();
            let why = format!("`{text}` is not a number: write one without quotes");
            Err(wrong(field, why))
        }
    }
}

fn check_hooks(field: &str, hooks: Option<&LayeredList<Hook>>) -> Result<(), FieldError> {
    let hooks = hooks.map(LayeredList::items).unwrap_or_default();
    check_length(field, hooks.len())?;
    unique(field, hooks)?;
    for (at, hook) in hooks.iter().enumerate() {
        let field = format!("{field}[{at}]");
        if hook.command.first().is_none_or(String::is_empty) {
            let why = "the command is empty: write a program and its arguments";
            return Err(wrong(format!("{field}.command"), why));
        }
        for (at, argument) in hook.command.iter().enumerate() {
            check_text(
                &format!("{field}.command[{at}]"),
                argument,
                TemplateField::Text,
            )?;
        }
        hook_timeout(hook).map_err(|why| {
            FieldError::new(ErrorCode::InvalidDuration, format!("{field}.timeout"), why)
        })?;
    }
    Ok(())
}

/// The time limit of a hook.
///
/// # Errors
/// If it is malformed, zero or too long.
pub fn hook_timeout(hook: &Hook) -> Result<Span, String> {
    let Some(text) = hook.timeout.as_deref() else {
        return Ok(DEFAULT_HOOK_TIMEOUT);
    };
    let span: Span = text.parse().map_err(|e| format!("{e}"))?;
    match span == Span::ZERO || span > MAX_HOOK_TIMEOUT {
        true => Err(format!(
            "`{text}`: write more than 0s and at most {MAX_HOOK_TIMEOUT}"
        )),
        false => Ok(span),
    }
}

fn unique<T: ListItem>(field: &str, items: &[T]) -> Result<(), FieldError> {
    for (at, item) in items.iter().enumerate() {
        let Some(name) = item.name() else { continue };
        let twice = items[..at].iter().any(|other| other.name() == Some(name));
        let dotted = name.is_empty() || name.contains(['.', '\0']);
        let why = match (twice, dotted) {
            (true, _) => "is listed twice: each item of a list needs a name of its own",
            (false, true) => "is not a name: a name is not empty and contains no `.`",
            (false, false) => continue,
        };
        let name = name.escape_debug();
        return Err(wrong(
            format!("{field}[{at}].name"),
            format!("`{name}` {why}"),
        ));
    }
    Ok(())
}

fn each_mount(
    field: &str,
    mounts: Option<&LayeredList<Mount>>,
    place: TemplateField,
) -> Result<(), FieldError> {
    let mounts = mounts.map(LayeredList::items).unwrap_or_default();
    check_length(field, mounts.len())?;
    unique(field, mounts)?;
    for (at, mount) in mounts.iter().enumerate() {
        let sides = [
            ("source", Some(&mount.source)),
            ("target", mount.target.as_ref()),
        ];
        for (side, path) in sides {
            let Some(path) = path else { continue };
            let field = format!("{field}[{at}].{side}");
            // A path may begin with a variable that stands for an absolute path.
            let absolute = path.starts_with('/') || path.starts_with("{{");
            if !absolute || path.contains('\0') || path.split('/').any(|part| part == "..") {
                let path = path.escape_debug();
                let why =
                    format!("`{path}` is not an absolute path without `..`: begin it with `/`");
                return Err(FieldError::new(ErrorCode::InvalidMount, field, why));
            }
            if place != TemplateField::Plain {
                check_text(&field, path, place)?;
            }
        }
    }
    Ok(())
}

/// Checks the syntax of a step's own mounts, in which variables are not allowed.
///
/// # Errors
/// The first invalid mount.
pub fn check_mounts(
    field: &str,
    mounts: Option<LayeredList<Mount>>,
) -> Result<Option<LayeredList<Mount>>, FieldError> {
    each_mount(field, mounts.as_ref(), TemplateField::Plain)?;
    for (at, mount) in mounts.iter().flat_map(LayeredList::items).enumerate() {
        if !mount.source.starts_with('/') || !mount.target().starts_with('/') {
            let why = "write absolute paths: no variable is filled into the mounts of a step";
            return Err(FieldError::new(
                ErrorCode::InvalidMount,
                format!("{field}[{at}]"),
                why,
            ));
        }
    }
    Ok(mounts)
}

/// Request of a step that its templates do not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateViolation {
    /// Reason code of the rejection.
    pub code: ReasonCode,
    /// Field of the step.
    pub field: String,
    /// Explanation for the submitter.
    pub message: String,
}

impl Template {
    /// The first request of a step that the merged template does not allow or does not pass on. `value` fills in
    /// variables that are known before placement.
    pub fn violation(
        &self,
        step: &StepSpec,
        value: impl Fn(Variable) -> Option<String>,
    ) -> Option<TemplateViolation> {
        let privileged = step.privileged.then(|| {
            let hands_on = self.mentions(Variable::Privileged);
            let code = ReasonCode::PrivilegedNotAllowed;
            flag_violation(
                code,
                Variable::Privileged,
                self.privileged_allowed,
                hands_on,
            )
        });
        let network = step.host_network.then(|| {
            let hands_on = self.mentions(Variable::HostNetwork);
            let code = ReasonCode::HostNetworkNotAllowed;
            flag_violation(
                code,
                Variable::HostNetwork,
                self.host_network_allowed,
                hands_on,
            )
        });
        let own = step.mounts.iter().flat_map(LayeredList::items).enumerate();
        let has_image = step.image.is_some();
        let mut own =
            own.filter_map(|(at, mount)| self.mount_violation(at, mount, has_image, &value));
        privileged
            .flatten()
            .or_else(|| network.flatten())
            .or_else(|| self.image_violation(step))
            .or_else(|| own.next())
            .or_else(|| self.workdir_violation(step, &value))
    }

    /// Checks a working directory that a wrapper would make available like a mount: it must lie below a writable
    /// allowed mount. Without such a wrapper only the host restricts the directory.
    fn workdir_violation(
        &self,
        step: &StepSpec,
        value: impl Fn(Variable) -> Option<String>,
    ) -> Option<TemplateViolation> {
        let workdir = step.workdir.as_ref()?;
        let wrapper = self
            .wrapper
            .as_ref()
            .filter(|wrapper| !wrapper.is_empty())?;
        let mounts = self.mounts.iter().flat_map(LayeredList::items);
        let shown = mounts.flat_map(|mount| [Some(&mount.source), mount.target.as_ref()]);
        let mut told = wrapper.iter().chain(shown.flatten());
        if !told.any(|text| variable::mentions(text, Variable::Workdir)) {
            return None;
        }
        let allowed = self.allowed_mounts.iter().flat_map(LayeredList::items);
        let writable = allowed.filter(|it| it.read_only != Some(true));
        let sources: Vec<String> = writable.map(|it| it.filled(&value).source).collect();
        if sources.iter().any(|source| is_within(workdir, source)) {
            return None;
        }
        let workdir = workdir.escape_debug();
        let below = match &sources[..] {
            [] => "which its wrapper shows it, and no directory may be shown there: leave it out"
                .to_owned(),
            some => format!(
                "which its wrapper shows it, and what may be shown there to be written to is below `{}`",
                some.join("`, `")
            ),
        };
        Some(TemplateViolation {
            code: ReasonCode::MountNotAllowed,
            field: "workdir".to_owned(),
            message: format!("it would work in `{workdir}`, {below}"),
        })
    }

    /// A wrapper that passes on a file of variables is a container runtime itself, and none runs within another.
    fn image_violation(&self, step: &StepSpec) -> Option<TemplateViolation> {
        let image = step.image.as_ref()?;
        self.mentions(Variable::EnvFile)
            .then(|| TemplateViolation {
                code: ReasonCode::ImageNotAllowed,
                field: "image".to_owned(),
                message: format!(
                    "it would run in image `{}`, and the wrapper there runs each step in a container already (`{{{{env_file}}}}`)",
                    image.as_str().escape_debug()
                ),
            })
    }

    fn mount_violation(
        &self,
        at: usize,
        mount: &Mount,
        has_image: bool,
        value: impl Fn(Variable) -> Option<String>,
    ) -> Option<TemplateViolation> {
        let forbidden = |message: String| {
            let (code, field) = (ReasonCode::MountNotAllowed, format!("mounts[{at}]"));
            Some(TemplateViolation {
                code,
                field,
                message,
            })
        };
        let source = mount.source.escape_debug();
        let allowed = self.allowed_mounts.iter().flat_map(LayeredList::items);
        let allowed: Vec<Mount> = allowed.map(|it| it.filled(&value)).collect();
        let covers = |it: &&Mount| {
            let target = it.target.as_deref();
            is_within(&mount.source, &it.source)
                && target.is_none_or(|target| is_within(mount.target(), target))
        };
        let mut covering = allowed.iter().filter(covers).peekable();
        if covering.peek().is_none() {
            let sources: Vec<String> = allowed
                .iter()
                .map(|it| format!("`{}`", it.source))
                .collect();
            return forbidden(match &sources[..] {
                [] => format!("it would mount `{source}`, and nothing may be mounted there"),
                some => format!(
                    "it would mount `{source}` at `{}`, and what may be mounted there is below {}",
                    mount.target().escape_debug(),
                    some.join(", ")
                ),
            });
        }
        let writes = mount.read_only != Some(true);
        if writes && covering.all(|it| it.read_only == Some(true)) {
            return forbidden(format!(
                "it would mount `{source}` writable, which may only be mounted read-only there: set `read_only: true`"
            ));
        }
        if !self.mentions(Variable::Mounts) && !has_image {
            return forbidden(format!(
                "it would mount `{source}`, and it has no image and no wrapper there takes `{{{{mounts}}}}`"
            ));
        }
        None
    }
}

fn flag_violation(
    code: ReasonCode,
    asked: Variable,
    allowed: Option<bool>,
    hands_on: bool,
) -> Option<TemplateViolation> {
    let message = match (allowed, hands_on) {
        (Some(true), true) => return None,
        (Some(true), false) => {
            format!("it asks for `{asked}`, and no wrapper there takes `{{{{{asked}}}}}`")
        }
        (Some(false) | None, _) => format!("it asks for `{asked}`, which is not allowed there"),
    };
    Some(TemplateViolation {
        code,
        field: asked.as_str().to_owned(),
        message,
    })
}

/// Whether `path` equals `root` or lies below it. Both are absolute without `..`.
fn is_within(path: &str, root: &str) -> bool {
    let is_telling = |part: &&str| !part.is_empty() && *part != ".";
    let mut path = path.split('/').filter(is_telling);
    let mut root = root.split('/').filter(is_telling);
    root.all(|part| path.next() == Some(part))
}

#[cfg(test)]
mod tests;
