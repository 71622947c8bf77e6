//! Derives what is started from a template by filling in variables. The coordinator fills in what it knows when it
//! assigns the attempt; the host fills in the attempt's paths ([`Launch::fill_paths`]).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::check::{self, hook_timeout};
use super::merge::merge_lists;
use super::variable::{self, TextPart, Variable};
use super::{Hook, LayeredList, Mount, Template};
use crate::environment::Environment;
use crate::step::StepSpec;
use crate::time::Span;

/// Additions of templates to a step's command, environment and hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Program and arguments placed before the step's command.
    pub wrapper: Vec<String>,
    /// Environment variables below the step's own. The wrapper and hooks use these, so none is dropped even if the step
    /// sets it too.
    pub env: Environment,
    /// Hooks and limits for the supervisor.
    pub hooks: HooksAndLimits,
}

/// Hooks and limits that templates ask of the supervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HooksAndLimits {
    /// Limits by the supervisor's config keys, and `processes`. The config bounds them.
    pub limits: Vec<ProcessLimit>,
    /// Hooks before the step, run as its user inside its attempt.
    pub before: Vec<HookRun>,
    /// Hooks after the step.
    pub after: Vec<HookRun>,
}

/// Limit on one resource of processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimit {
    /// Name of the limit.
    pub name: String,
    /// Largest allowed value.
    pub max: u64,
}

/// A hook, ready to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRun {
    /// Name for messages.
    pub name: String,
    /// Program and arguments; not empty.
    pub command: Vec<String>,
    /// Time limit of the hook.
    pub timeout: Span,
}

/// Default form of a mount argument.
const MOUNT_ARGUMENT: &str = "{{source}}:{{target}}:{{mode}}";

impl Mount {
    /// Returns the mount with known variables filled in.
    pub(super) fn filled(&self, value: impl Fn(Variable) -> Option<String>) -> Self {
        Self {
            source: variable::fill(&self.source, &value),
            target: self
                .target
                .as_ref()
                .map(|target| variable::fill(target, &value)),
            ..self.clone()
        }
    }
}

impl Template {
    /// The step's working directory: its own, else the template's, else `None` for the attempt's own.
    pub fn workdir_of(
        &self,
        step: &StepSpec,
        value: impl Fn(Variable) -> Option<String>,
    ) -> Option<String> {
        let filled = || Some(variable::fill(self.workdir.as_ref()?, value));
        step.workdir.clone().or_else(filled)
    }

    /// Merges the step's own mounts over the template's. Variables are filled in only in the template's.
    pub fn mounts_of(
        &self,
        step: &StepSpec,
        value: impl Fn(Variable) -> Option<String>,
    ) -> Vec<Mount> {
        let below = self.mounts.as_ref();
        let below = below.map(|list| list.each(|mount| mount.filled(&value)));
        let merged = merge_lists(step.mounts.clone(), below);
        merged.map(Vec::from).unwrap_or_default()
    }

    /// Builds the additions for a step; `value` looks up variables, and unknown ones stay as written.
    pub fn launch(&self, step: &StepSpec, value: impl Fn(Variable) -> Option<String>) -> Launch {
        let mounts = self.mounts_of(step, &value);
        let value = |variable| match variable {
            Variable::Privileged => Some(step.privileged.to_string()),
            Variable::HostNetwork => Some(step.host_network.to_string()),
            other => value(other),
        };
        let wrapper = self.wrapper.iter().flatten();
        let env = self.env.iter();
        Launch {
            wrapper: wrapper
                .flat_map(|argument| self.arguments(argument, step, &mounts, value))
                .collect(),
            env: env
                .map(|(name, text)| (name.clone(), variable::fill(text, value)))
                .collect(),
            hooks: HooksAndLimits {
                limits: self.bounds(),
                before: runs(self.hooks.before.as_ref(), value),
                after: runs(self.hooks.after.as_ref(), value),
            },
        }
    }

    /// Expands one argument of the wrapper: to several or none if it is a variable for a list.
    fn arguments(
        &self,
        argument: &str,
        step: &StepSpec,
        mounts: &[Mount],
        value: impl Fn(Variable) -> Option<String>,
    ) -> Vec<String> {
        let on = |asked: bool, argument: &Option<String>| match (asked, argument) {
            (true, Some(argument)) => Some(Vec::from([argument.clone()])),
            (false, Some(_)) => Some(Vec::new()),
            (_, None) => None,
        };
        let pieces = variable::pieces(argument).unwrap_or_default();
        let several = match &pieces[..] {
            [TextPart::Variable(Variable::Mounts)] => {
                let form = self.mount_argument.as_deref().unwrap_or(MOUNT_ARGUMENT);
                Some(
                    mounts
                        .iter()
                        .map(|mount| format_mount(form, mount))
                        .collect(),
                )
            }
            [TextPart::Variable(Variable::Privileged)] => {
                on(step.privileged, &self.privileged_argument)
            }
            [TextPart::Variable(Variable::HostNetwork)] => {
                on(step.host_network, &self.host_network_argument)
            }
            _ => None,
        };
        several.unwrap_or_else(|| Vec::from([variable::fill(argument, value)]))
    }

    fn bounds(&self) -> Vec<ProcessLimit> {
        let limits = self.limits.iter();
        let bounds = limits.filter_map(|(name, value)| {
            // Stored limits are valid.
            let most = check::limit(name, value).ok()?;
            let name = name.clone();
            Some(ProcessLimit { name, max: most })
        });
        bounds.collect()
    }
}

fn format_mount(form: &str, mount: &Mount) -> String {
    variable::fill(form, |variable| match variable {
        Variable::Source => Some(mount.source.clone()),
        Variable::Target => Some(String::from(mount.target())),
        Variable::Mode => Some(String::from(mount.mode())),
        _ => None,
    })
}

fn runs(
    hooks: Option<&LayeredList<Hook>>,
    value: impl Fn(Variable) -> Option<String> + Copy,
) -> Vec<HookRun> {
    let hooks = hooks.map(LayeredList::items).unwrap_or_default();
    let named = |at: usize, hook: &Hook| match &hook.name {
        Some(name) => name.clone(),
        None => format!("{}", at + 1),
    };
    let runs = hooks.iter().enumerate().map(|(at, hook)| HookRun {
        name: named(at, hook),
        command: filled(&hook.command, value),
        timeout: hook_timeout(hook).unwrap_or(check::DEFAULT_HOOK_TIMEOUT),
    });
    runs.collect()
}

fn filled(texts: &[String], value: impl Fn(Variable) -> Option<String> + Copy) -> Vec<String> {
    let filled = texts.iter().map(|text| variable::fill(text, value));
    filled.collect()
}

impl Launch {
    /// Whether the wrapper uses the file of environment variables.
    pub fn has_env_file(&self) -> bool {
        let mut wrapper = self.wrapper.iter();
        wrapper.any(|argument| variable::mentions(argument, Variable::EnvFile))
    }

    /// Fills in the working directory and the path of the environment file.
    pub fn fill_paths(&mut self, workdir: &str, env_file: &str) {
        let value = |variable| match variable {
            Variable::Workdir => Some(String::from(workdir)),
            Variable::EnvFile => Some(String::from(env_file)),
            _ => None,
        };
        self.wrapper = filled(&self.wrapper, value);
        for text in self.env.values_mut() {
            *text = variable::fill(text, value);
        }
        let HooksAndLimits { before, after, .. } = &mut self.hooks;
        for hook in before.iter_mut().chain(after) {
            hook.command = filled(&hook.command, value);
        }
    }

    /// Size of wrapper and environment in bytes.
    pub fn bytes(&self) -> usize {
        let env = self.env.iter().map(|(name, text)| name.len() + text.len());
        self.wrapper.iter().map(String::len).sum::<usize>() + env.sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
