//! CPU cores: allocation modes of steps, and sets of cores in the kernel's notation.

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Highest processor number that is accepted, above any kernel's limit (`NR_CPUS` is at most 8192).
const MAX_PROCESSOR: u32 = 16_383;

/// Thousandths in a whole core.
pub(crate) const MCPU_A_CORE: u64 = 1_000;

/// Mode in which a step gets the cores that it requests by `resources.cpu_count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CpuMode {
    /// At most the requested CPU time, even if other cores are idle.
    #[default]
    Limit,
    /// The requested share of contended CPU time, and more while cores are idle.
    Weight,
    /// Whole cores of its own: the step runs only on these, and no other pinned step does.
    Pinned,
}

impl CpuMode {
    /// All modes, in display order.
    pub const ALL: [CpuMode; 3] = [CpuMode::Limit, CpuMode::Weight, CpuMode::Pinned];

    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            CpuMode::Limit => "limit",
            CpuMode::Weight => "weight",
            CpuMode::Pinned => "pinned",
        }
    }

    /// Whether this amount, in thousandths of a core, can be allocated in the mode.
    pub fn suits(self, mcpu: u64) -> bool {
        match self {
            CpuMode::Limit => true,
            CpuMode::Weight => mcpu > 0,
            CpuMode::Pinned => mcpu > 0 && mcpu.is_multiple_of(MCPU_A_CORE),
        }
    }

    /// Whether this is the default mode.
    pub fn is_default(&self) -> bool {
        *self == CpuMode::default()
    }
}

impl fmt::Display for CpuMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Set of logical processors, formatted as the kernel does, such as `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u32>);

/// Error for a text that is not a set of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a list of processors, such as `0-3,8`, with numbers up to {MAX_PROCESSOR}", text.escape_debug())]
pub struct CpuSetError {
    text: String,
}

impl CpuSet {
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of processors in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set contains a processor.
    pub fn contains(&self, processor: u32) -> bool {
        self.0.contains(&processor)
    }

    /// Processor numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Whether all processors are in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Whether no processor is in `other`.
    pub fn is_disjoint(&self, other: &CpuSet) -> bool {
        self.0.is_disjoint(&other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, numbers: I) {
        self.0.extend(numbers);
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let parts = text.trim().split(',').filter(|part| !part.is_empty());
        let mut numbers = BTreeSet::new();
        for part in parts {
            let (first, last) = range(part).ok_or_else(|| CpuSetError {
                text: text.chars().take(80).collect(),
            })?;
            numbers.extend(first..=last);
        }
        Ok(Self(numbers))
    }
}

fn range(part: &str) -> Option<(u32, u32)> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last <= MAX_PROCESSOR).then_some((first, last))
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuSetError;

    fn try_from(text: String) -> Result<Self, CpuSetError> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> String {
        alloc::format!("{set}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn a_set_is_written_as_the_kernel_writes_it() {
        for (numbers, text) in [
            (&[][..], ""),
            (&[5], "5"),
            (&[0, 1], "0-1"),
            (&[8, 0, 1, 2, 3], "0-3,8"),
            (&[0, 2, 4, 5], "0,2,4-5"),
        ] {
            let set: CpuSet = numbers.iter().copied().collect();
            assert_eq!(set.to_string(), text);
            assert_eq!(text.parse(), Ok(set));
        }
        assert_eq!("0-1\n".parse::<CpuSet>().unwrap().len(), 2, "of a file");
    }

    #[test]
    fn what_is_no_set_is_refused_and_no_giant_one_is_made() {
        for text in [
            "a",
            "1-",
            "-1",
            "3-1",
            "1 2",
            "0-4294967295",
            "16384",
            "1;2",
        ] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
        let error = "x".repeat(1_000).parse::<CpuSet>().unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(numbers in proptest::collection::btree_set(0..300_u32, 0..60)) {
            let set: CpuSet = numbers.into_iter().collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }
    }
}
