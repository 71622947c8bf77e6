//! Sentences about rules of a pool that a step breaks.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use sluice_common::id::PoolName;
use sluice_common::pool_rules::Setting;
use sluice_common::processors::CpuMode;
use sluice_common::reason::{Reason, ReasonCode};

use crate::rejection::{RuleBreach, SettingValue};

impl RuleBreach {
    pub(super) fn to_reason(&self, code: ReasonCode, pool: &PoolName) -> Reason {
        match self {
            RuleBreach::Above {
                setting,
                asked,
                most,
            } => {
                let message =
                    format!("its `{setting}` is {asked}, and pool `{pool}` allows {most} at most");
                Reason::new(code, message)
                    .with("field", setting.as_str())
                    .with("asked", asked.to_string().as_str())
                    .with("maximum", most.to_string().as_str())
            }
            RuleBreach::Mode { asked, allowed } => {
                let asked = asked.as_str();
                let words: Vec<&str> = allowed.iter().map(|mode| mode.as_str()).collect();
                let message = format!(
                    "its `on_preempt` is `{asked}`, and pool `{pool}` allows `{}`",
                    words.join("`, `")
                );
                Reason::new(code, message)
                    .with("field", Setting::OnPreempt.as_str())
                    .with("asked", asked)
                    .with("allowed", words.join(",").as_str())
            }
            RuleBreach::NotPinned => {
                let message = format!(
                    "it asks for processors of its own, and pool `{pool}` does not require `cpuset` of its hosts, so that \
                     some may not be able to give them: take another pool, or write `require: [cpuset]` for this one"
                );
                Reason::new(code, message)
                    .with("field", Setting::CpuMode.as_str())
                    .with("asked", CpuMode::Pinned.as_str())
            }
            RuleBreach::NoHosts { field } => {
                let message = match field.as_str() {
                    "command" => format!(
                        "pool `{pool}` has no hosts and runs no programs: take an allocation there (`sluice allocate --pool \
                         {pool}`), and run the program where it belongs"
                    ),
                    "resources" => format!(
                        "it asks for nothing that pool `{pool}` counts, which has no hosts: ask for what its `capacity` declares, \
                         or take another pool"
                    ),
                    field => format!(
                        "it sets `{field}`, and pool `{pool}` has no hosts: leave it out, or take a pool with hosts"
                    ),
                };
                Reason::new(code, message).with("field", field.as_str())
            }
            RuleBreach::Template { field, what, .. } => {
                Reason::new(code, format!("pool `{pool}`: {what}")).with("field", field.as_str())
            }
        }
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Lasting(span) => write!(f, "{span}"),
            SettingValue::Unbounded => f.write_str("without bound"),
            SettingValue::Times(times) => write!(f, "{times}"),
        }
    }
}
