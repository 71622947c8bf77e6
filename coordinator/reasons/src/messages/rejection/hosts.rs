//! Sentences about pools with too few hosts for a step.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use sluice_common::id::{LevelName, NodeName, PlatformName, PoolName};
use sluice_common::image::{ContainerRuntime, ImageKind};
use sluice_common::reason::{Reason, ReasonCode};

use crate::messages::slices::{available, counted, requested};
use crate::messages::{quoted, with_source};
use crate::rejection::{DomainShortage, ForbiddingHosts, HostMismatch, Shortage, TAINT};

impl HostMismatch {
    pub(super) fn to_reason(&self, pool: &PoolName) -> Reason {
        let of = |message: String| Reason::new(ReasonCode::NoHostFits, message);
        match self {
            HostMismatch::TooFew {
                asked,
                large,
                of_one_platform,
                closed,
            } => {
                let message = too_few(pool, *asked, *large, *of_one_platform);
                let closed = closed.as_ref().map(|it| format!("; {it}"));
                of(message + &closed.unwrap_or_default())
                    .with("key", "nodes")
                    .with("asked", u64::from(*asked))
                    .with("available", *large)
            }
            HostMismatch::OfNoPlatform {
                asked,
                declared,
                by_default,
                there,
            } => {
                let message = format!(
                    "no host of pool `{pool}` is of {}{}{}",
                    spoken(asked),
                    matching_none(declared, *by_default),
                    way_out(there),
                );
                let names: Vec<&str> = asked.iter().map(PlatformName::as_str).collect();
                of(message).with("platform", names.join(",").as_str())
            }
            HostMismatch::OfNoClass {
                asked,
                whole,
                slices,
            } => {
                let asked = asked.as_deref();
                let words = asked.map_or("whole GPU".to_owned(), |it| format!("slice `{it}`"));
                let there = other_class(*whole, slices);
                of(format!("pool `{pool}` has no {words}{there}"))
                    .with("class", asked.unwrap_or("whole"))
            }
            HostMismatch::NoLevel { level, levels } => {
                of(no_level(level, levels)).with("within", level.as_str())
            }
            HostMismatch::TooFewInDomain(closest) => {
                let message = format!(
                    "{} of pool `{pool}` that are large enough: {}",
                    closest.demand(),
                    closest.closest("")
                );
                closest.noted_in(of(message))
            }
            HostMismatch::Closed(closed) => {
                of(format!("no host of pool `{pool}` admits it: {closed}"))
            }
            HostMismatch::TooSmall(None) => of(format!("no host of pool `{pool}` is large enough")),
            HostMismatch::TooSmall(Some(closest)) => of(too_small(pool, closest))
                .with("node", closest.node.as_str())
                .with_key(&closest.key)
                .with_amount("asked", &closest.key, closest.asked)
                .with_amount("available", &closest.key, closest.has),
        }
    }
}

impl DomainShortage {
    /// The number of hosts that the step asks for, and the level.
    pub(crate) fn demand(&self) -> String {
        let Self { level, asked, .. } = self;
        format!("it asks for {asked} hosts within one `{level}`")
    }

    /// The domain that comes closest, with the number of its hosts; `with` says more of these.
    pub(crate) fn closest(&self, with: &str) -> String {
        let Self {
            level, domain, has, ..
        } = self;
        match domain.is_empty() {
            true => format!(
                "no host has the labels of level `{level}`: set them with `sluice label node`, or leave out `within`"
            ),
            false => format!(
                "`{}`, which comes closest, has {has}{with}",
                domain.join("/")
            ),
        }
    }

    /// A reason with the numbers.
    pub(crate) fn noted_in(&self, reason: Reason) -> Reason {
        reason
            .with("within", self.level.as_str())
            .with("domain", self.domain.join("/").as_str())
            .with("asked", u64::from(self.asked))
            .with("available", self.has)
    }
}

fn no_level(level: &LevelName, levels: &[LevelName]) -> String {
    match levels {
        [] => format!(
            "it asks for hosts within one `{level}`, and the cluster has no topology: apply a document of `kind: \
             topology`, or leave out `within`"
        ),
        levels => format!(
            "it asks for hosts within one `{level}`, which is no level of the topology: write one of {}",
            quoted(levels)
        ),
    }
}

/// The GPUs and slices that a pool has, and how to ask for some.
fn other_class(whole: u64, slices: &BTreeMap<String, u64>) -> String {
    let ask = match (whole, slices.first_key_value()) {
        (0, None) => return ": set `allow_pending: true` to wait for one".to_owned(),
        (0, Some((profile, _))) => format!("ask for one with `--mig {profile}`"),
        (_, _) => "ask for whole ones with `--gpus 1`".to_owned(),
    };
    let whole = (whole > 0).then(|| counted(whole, "whole GPU"));
    let slices = slices.iter();
    let slices = slices.map(|(profile, n)| counted(*n, "slice") + &format!(" `{profile}`"));
    let there: Vec<String> = whole.into_iter().chain(slices).collect();
    format!(
        ": it has {}; {ask}, or set `allow_pending: true` to wait",
        there.join(", ")
    )
}

/// Names the platform with most hosts if there are several.
fn too_few(pool: &PoolName, asked: u32, large: u64, of_one_platform: bool) -> String {
    let are = if large == 1 { "is" } else { "are" };
    let message = format!(
        "it asks for {asked} hosts at once, and {large} of pool `{pool}` {are} large enough"
    );
    match of_one_platform {
        false => message,
        true => {
            format!("{message} among those of any one platform, which all its hosts must be of")
        }
    }
}

fn too_small(pool: &PoolName, closest: &Shortage) -> String {
    let Shortage {
        node,
        key,
        asked,
        has,
        by_default,
        profile,
    } = closest;
    let profile = profile.as_ref();
    format!(
        "no host of pool `{pool}` could hold it even when empty: it asks for {}, and `{node}`, which comes closest, has {}",
        with_source(requested(key, *asked, profile), by_default.as_ref()),
        available(key, *has, profile)
    )
}

fn spoken(asked: &[PlatformName]) -> String {
    match asked {
        [one] => format!("platform `{one}`"),
        several => format!("the platforms {}", quoted(several)),
    }
}

fn matching_none(declared: &[PlatformName], by_default: bool) -> String {
    match (declared, by_default) {
        ([], false) => String::new(),
        ([], true) => String::from(", the pool's default"),
        (_, true) => String::from(", the pool's default, whose selector matches none of them"),
        ([_], false) => String::from(", whose selector matches none of them"),
        (several, false) => format!(" (the selectors of {} match none)", quoted(several)),
    }
}

fn way_out(there: &[PlatformName]) -> String {
    match there {
        [] => String::from(": set `allow_pending: true` to wait for one"),
        there => format!(
            ": ask for {} or `any`, or set `allow_pending: true` to wait for one",
            quoted(there)
        ),
    }
}

/// Says that a host lacks a container runtime, and what to install.
fn no_runtime(
    f: &mut fmt::Formatter<'_>,
    node: &NodeName,
    form: ImageKind,
    others: u64,
) -> fmt::Result {
    let (noun, names) = (form.noun(), ContainerRuntime::names_for(form));
    write!(
        f,
        "`{node}` is large enough but has no container runtime that runs {noun}: install {names} there"
    )?;
    match others {
        0 => Ok(()),
        1 => f.write_str("; one more host does not admit it either"),
        others => write!(f, "; {others} more hosts do not admit it either"),
    }
}

impl fmt::Display for ForbiddingHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, field) = (&self.node, &self.field);
        if let Some(form) = self.no_runtime_for {
            return no_runtime(f, node, form, self.others);
        }
        write!(
            f,
            "`{node}` is large enough but does not admit it, because "
        )?;
        match (&self.by_pool, &self.platform) {
            (Some(pool), None) => write!(f, "pool `{pool}` does not allow `{field}`")?,
            (Some(pool), Some(platform)) => write!(
                f,
                "pool `{pool}` does not allow `{field}` on its platform `{platform}`"
            )?,
            (None, Some(platform)) if field == TAINT => write!(
                f,
                "its platform `{platform}` takes only steps that name it: write `platform: {platform}`"
            )?,
            (None, platform) => {
                let platform = platform.as_ref().map_or("", PlatformName::as_str);
                write!(f, "its platform `{platform}` does not allow `{field}`")?;
            }
        }
        match self.others {
            0 => Ok(()),
            1 => f.write_str("; one more host does not admit it either"),
            others => write!(f, "; {others} more hosts do not admit it either"),
        }
    }
}
