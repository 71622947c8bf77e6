//! Writes a [`DeviceFilter`] to the devices controller of version 1.
//!
//! The controller has two modes: deny all but a list, or allow all but a list. A list entry cannot have
//! exceptions, so "all minors of a major number but three" is possible only in the first mode. The filter is
//! therefore inverted: the group gets a list of what is allowed, which is the inherited list minus what the
//! filter denies. A group in a container inherits a list, and every entry written here is part of an
//! inherited one, so the kernel accepts it. This takes about five hundred lines, one for each major number,
//! each in a call of its own: a few milliseconds for each start.
//!
//! Only root outside of the group can change the list later.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sluice_common::device::DeviceNumber;

use super::{ClosedMinors, DeviceFilter, DeviceFilterError};

/// Number of major numbers that the kernel assigns to character devices (`CHRDEV_MAJOR_MAX` of `fs.h`).
const MAJORS: u32 = 512;
/// Number of minors that are listed one by one if only some of a major's are denied. Few drivers have more,
/// and minors beyond this are denied.
const MINORS: u32 = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
struct AccessRule {
    kind: DeviceType,
    /// `None` means every major number.
    major: Option<u32>,
    minor: Option<u32>,
    /// Combination of `r`, `w` and `m`.
    access: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceType {
    All,
    Block,
    Character,
}

impl fmt::Display for AccessRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DeviceType::All => 'a',
            DeviceType::Block => 'b',
            DeviceType::Character => 'c',
        };
        let number = |n: Option<u32>| n.map_or_else(|| "*".to_owned(), |n| n.to_string());
        let (major, minor) = (number(self.major), number(self.minor));
        write!(f, "{kind} {major}:{minor} {}", self.access)
    }
}

impl FromStr for AccessRule {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split_whitespace();
        let kind = match words.next() {
            Some("a") => DeviceType::All,
            Some("b") => DeviceType::Block,
            Some("c") => DeviceType::Character,
            _ => return Err(()),
        };
        let (major, minor) = words.next().and_then(|n| n.split_once(':')).ok_or(())?;
        let number = |text: &str| match text {
            "*" => Ok(None),
            digits => digits.parse().map(Some).map_err(drop),
        };
        Ok(Self {
            kind,
            major: number(major)?,
            minor: number(minor)?,
            access: words.next().ok_or(())?.to_owned(),
        })
    }
}

impl AccessRule {
    fn character(&self, major: u32, minor: Option<u32>) -> Self {
        Self {
            kind: DeviceType::Character,
            major: Some(major),
            minor,
            access: self.access.clone(),
        }
    }

    /// Appends to `left` the parts of this rule that the filter allows.
    fn less(&self, filter: &DeviceFilter, left: &mut Vec<AccessRule>) {
        match self.kind {
            DeviceType::Block => left.push(self.clone()),
            DeviceType::All => {
                left.push(Self {
                    kind: DeviceType::Block,
                    ..self.clone()
                });
                let character = Self {
                    kind: DeviceType::Character,
                    ..self.clone()
                };
                character.less(filter, left);
            }
            DeviceType::Character => match self.major {
                Some(major) => self.major_less(major, filter, left),
                None => (0..MAJORS).for_each(|major| self.major_less(major, filter, left)),
            },
        }
    }

    fn major_less(&self, major: u32, filter: &DeviceFilter, left: &mut Vec<AccessRule>) {
        let closed = filter.majors().find(|(named, _)| *named == major);
        let Some((_, closed)) = closed else {
            return left.push(self.character(major, self.minor));
        };
        let allows = |minor: &u32| filter.allows(DeviceNumber::new(major, *minor));
        match (self.minor, closed) {
            (Some(minor), _) if allows(&minor) => left.push(self.character(major, Some(minor))),
            (Some(_), _) => {}
            (None, ClosedMinors::AllBut(open)) => {
                left.extend(open.iter().map(|minor| self.character(major, Some(*minor))));
            }
            (None, ClosedMinors::Only(_)) => {
                let open = (0..MINORS).filter(allows);
                left.extend(open.map(|minor| self.character(major, Some(minor))));
            }
        }
    }
}

/// Writes the filter to a group of the devices controller, which must have no groups below it yet.
pub(super) fn apply(filter: &DeviceFilter, group: &Path) -> Result<(), DeviceFilterError> {
    let mut left = Vec::new();
    for rule in inherited(&group.join("devices.list"))? {
        rule.less(filter, &mut left);
    }
    write(group.join("devices.deny"), &["a".to_owned()])?;
    let lines: Vec<String> = left.iter().map(AccessRule::to_string).collect();
    write(group.join("devices.allow"), &lines)
}

fn inherited(path: &Path) -> Result<Vec<AccessRule>, DeviceFilterError> {
    let text = fs::read_to_string(path).map_err(|source| DeviceFilterError::Read {
        path: path.to_owned(),
        source,
    })?;
    let rule = |line: &str| {
        line.parse().map_err(|()| DeviceFilterError::Rule {
            path: path.to_owned(),
            line: line.to_owned(),
        })
    };
    text.lines().map(rule).collect()
}

/// Writes one rule with each call of `write`, as the controller requires.
fn write(path: PathBuf, lines: &[String]) -> Result<(), DeviceFilterError> {
    let failed = |line: &str, source| DeviceFilterError::Write {
        path: path.clone(),
        line: line.to_owned(),
        source,
    };
    let opened = fs::OpenOptions::new().write(true).open(&path);
    let mut file = opened.map_err(|source| failed("", source))?;
    lines.iter().try_for_each(|line| {
        let written = file.write_all(line.as_bytes());
        written.map_err(|source| failed(line, source))
    })
}

#[cfg(test)]
mod tests;
