//! A [`DeviceFilter`] by the devices controller of version 1.
//!
//! The controller knows two behaviours: deny all but a list, or allow all but a list; and a list never has a hole, so
//! "all minors of a major but three" can be said in the first only. So the fence is turned round: what the group
//! inherited, less what is closed, as a list of what is allowed. A group in a container inherits a list already, and
//! every entry here is a part of an inherited one, so the kernel never refuses it. These are some five hundred lines, one
//! for each major number and each in a call of its own: a few milliseconds for a start.
//!
//! The list holds while the group has no rule of its own taken back, which only root outside it can do.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sluice_common::device::DeviceNumber;

use super::{Closed, DeviceFilter, DeviceFilterError};

/// Major numbers of character devices that the kernel gives out (`CHRDEV_MAJOR_MAX` of `fs.h`).
const MAJORS: u32 = 512;
/// Minors that a list can name where only some of a major's are closed: drivers that have more are rare, and a minor
/// that is left out is closed.
const MINORS: u32 = 256;

/// One line of `devices.list`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    kind: Kind,
    /// `None` is every one.
    major: Option<u32>,
    minor: Option<u32>,
    /// Of `r`, `w` and `m`.
    access: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    All,
    Block,
    Character,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::All => 'a',
            Kind::Block => 'b',
            Kind::Character => 'c',
        };
        let number = |n: Option<u32>| n.map_or_else(|| "*".to_owned(), |n| n.to_string());
        let (major, minor) = (number(self.major), number(self.minor));
        write!(f, "{kind} {major}:{minor} {}", self.access)
    }
}

impl FromStr for Rule {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split_whitespace();
        let kind = match words.next() {
            Some("a") => Kind::All,
            Some("b") => Kind::Block,
            Some("c") => Kind::Character,
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

impl Rule {
    fn character(&self, major: u32, minor: Option<u32>) -> Self {
        Self {
            kind: Kind::Character,
            major: Some(major),
            minor,
            access: self.access.clone(),
        }
    }

    /// The parts of this rule that a fence leaves, put into `left`.
    fn less(&self, fence: &DeviceFilter, left: &mut Vec<Rule>) {
        match self.kind {
            Kind::Block => left.push(self.clone()),
            Kind::All => {
                left.push(Self {
                    kind: Kind::Block,
                    ..self.clone()
                });
                let character = Self {
                    kind: Kind::Character,
                    ..self.clone()
                };
                character.less(fence, left);
            }
            Kind::Character => match self.major {
                Some(major) => self.major_less(major, fence, left),
                None => (0..MAJORS).for_each(|major| self.major_less(major, fence, left)),
            },
        }
    }

    fn major_less(&self, major: u32, fence: &DeviceFilter, left: &mut Vec<Rule>) {
        let closed = fence.majors().find(|(named, _)| *named == major);
        let Some((_, closed)) = closed else {
            return left.push(self.character(major, self.minor));
        };
        let allows = |minor: &u32| fence.allows(DeviceNumber::new(major, *minor));
        match (self.minor, closed) {
            (Some(minor), _) if allows(&minor) => left.push(self.character(major, Some(minor))),
            (Some(_), _) => {}
            (None, Closed::AllBut(open)) => {
                left.extend(open.iter().map(|minor| self.character(major, Some(*minor))));
            }
            (None, Closed::Only(_)) => {
                let open = (0..MINORS).filter(allows);
                left.extend(open.map(|minor| self.character(major, Some(minor))));
            }
        }
    }
}

/// Puts the fence on a group of the devices controller, which has no groups below it yet.
pub(super) fn apply(fence: &DeviceFilter, group: &Path) -> Result<(), DeviceFilterError> {
    let mut left = Vec::new();
    for rule in inherited(&group.join("devices.list"))? {
        rule.less(fence, &mut left);
    }
    write(group.join("devices.deny"), &["a".to_owned()])?;
    let lines: Vec<String> = left.iter().map(Rule::to_string).collect();
    write(group.join("devices.allow"), &lines)
}

fn inherited(path: &Path) -> Result<Vec<Rule>, DeviceFilterError> {
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

/// One rule in each call of `write`, as the controller wants it.
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
