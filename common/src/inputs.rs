//! Files that a step gets into its own directory before its program starts. Their contents are uploaded before the step is
//! submitted; the step names each by its hash.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::hex;

/// Most inputs of one step: a directory of sources. More belong into an archive.
pub const MAX_INPUTS: usize = 1_000;

/// Largest input in bytes. Each host keeps it twice for a moment, so larger data belongs into shared storage.
pub const MAX_INPUT_BYTES: u64 = 64 * 1024 * 1024;

/// Most bytes of all inputs of one step together.
pub const MAX_INPUTS_BYTES: u64 = 256 * 1024 * 1024;

/// Longest name of an input, in bytes, with its directories.
const MAX_NAME_BYTES: usize = 1024;

/// Most bytes of the names of a step's inputs together, which are stored with the step.
const MAX_NAMES_BYTES: usize = 64 * 1024;

/// Longest name of a file in a directory, in bytes, as Linux has it.
const MAX_COMPONENT_BYTES: usize = 255;

/// Most directories in each other.
const MAX_DEPTH: usize = 32;

/// Error for a text that is no SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no SHA-256: write 64 hexadecimal digits in lower case, as `sha256sum` prints them")]
pub struct InputHashError;

/// SHA-256 as 64 hexadecimal digits in lower case, so also a safe name of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct InputHash(String);

impl InputHash {
    /// Encodes the bytes of a hash.
    ///
    /// # Panics
    /// If the bytes are not those of a SHA-256.
    pub fn of_digest(digest: &[u8]) -> Self {
        let digest: [u8; 32] = digest.try_into().expect("a SHA-256 has 32 bytes");
        Self(hex::encode(&digest))
    }

    /// Returns the 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InputHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for InputHash {
    type Err = InputHashError;

    fn from_str(text: &str) -> Result<Self, InputHashError> {
        let digest = hex::decode::<32>(text).ok_or(InputHashError)?;
        let hash = Self::of_digest(&digest);
        // Upper case would be a second name of the same file.
        (hash.0 == text).then_some(hash).ok_or(InputHashError)
    }
}

impl TryFrom<String> for InputHash {
    type Error = InputHashError;

    fn try_from(text: String) -> Result<Self, InputHashError> {
        text.parse()
    }
}

impl From<InputHash> for String {
    fn from(hash: InputHash) -> String {
        hash.0
    }
}

/// A file that a step gets into its own directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// Path below the step's own directory, such as `data/train.csv`.
    pub name: String,
    /// SHA-256 of the contents, which the same caller has uploaded by `PUT /v1/inputs/{sha256}`.
    pub sha256: InputHash,
    /// Size in bytes.
    pub size: u64,
    /// Whether the file is a program.
    #[serde(default)]
    pub executable: bool,
}

impl InputFile {
    /// The names of its directories and its own, from the outermost.
    pub fn path(&self) -> impl Iterator<Item = &str> {
        self.name.split('/')
    }
}

/// Checks the inputs of a request, and sorts them by their paths, so that the files of a directory follow each other.
///
/// # Errors
/// If a name leads out of the step's directory or is there twice, if there are too many or too large ones, or if the step
/// has another directory.
pub(crate) fn check_inputs(
    mut inputs: Vec<InputFile>,
    has_workdir: bool,
) -> Result<Vec<InputFile>, FieldError> {
    if inputs.is_empty() {
        return Ok(inputs);
    }
    if has_workdir {
        let message = "inputs are put into a directory of the step's own, and `workdir` names another: leave out one of them";
        return Err(FieldError::new(ErrorCode::Contradiction, "inputs", message));
    }
    check_amounts(&inputs).map_err(|why| invalid("inputs", why))?;
    for (place, input) in inputs.iter().enumerate() {
        check_name(&input.name).map_err(|why| {
            let shown: String = input.name.chars().take(100).collect();
            let message = format!("`{}` {why}", shown.escape_default());
            invalid(format!("inputs[{place}].name"), message)
        })?;
    }
    inputs.sort_by(|a, b| a.path().cmp(b.path()));
    match twice(&inputs) {
        Some(name) => {
            let message = format!(
                "`{}` is there twice, or is a file and a directory: give each file a name of its own",
                name.escape_default()
            );
            Err(invalid("inputs", message))
        }
        None => Ok(inputs),
    }
}

fn invalid(field: impl Into<String>, message: String) -> FieldError {
    FieldError::new(ErrorCode::InvalidInputs, field, message)
}

fn check_amounts(inputs: &[InputFile]) -> Result<(), String> {
    let count = inputs.len();
    let names: usize = inputs.iter().map(|input| input.name.len()).sum();
    let bytes = inputs
        .iter()
        .fold(0, |sum: u64, it| sum.saturating_add(it.size));
    if count > MAX_INPUTS {
        return Err(format!(
            "{count} files: the maximum is {MAX_INPUTS}; pack them into an archive"
        ));
    }
    if names > MAX_NAMES_BYTES {
        return Err(format!(
            "their names take {names} bytes together: the maximum is {MAX_NAMES_BYTES}; pack the files into an archive"
        ));
    }
    if bytes > MAX_INPUTS_BYTES {
        return Err(format!(
            "they have {bytes} bytes together: the maximum is {MAX_INPUTS_BYTES}; put large data where hosts can read it, and name it to the step"
        ));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("... is longer than {MAX_NAME_BYTES} bytes"));
    }
    let mut components = name.split('/');
    if name.split('/').count() > MAX_DEPTH {
        return Err(format!("is more than {MAX_DEPTH} directories deep"));
    }
    let is_name = |part: &str| {
        let is_special = matches!(part, "" | "." | "..");
        !is_special && part.len() <= MAX_COMPONENT_BYTES && !part.chars().any(char::is_control)
    };
    match components.all(is_name) {
        true => Ok(()),
        false => Err(
            "is not the name of a file in the step's directory: write names with `/` between them, without `..`, and not beginning with `/`"
                .to_string(),
        ),
    }
}

/// The first name that two of the inputs need, one perhaps for a directory.
fn twice(sorted: &[InputFile]) -> Option<&str> {
    let files: BTreeSet<&str> = sorted.iter().map(|input| input.name.as_str()).collect();
    let same = sorted.windows(2).find(|pair| pair[0].name == pair[1].name);
    let above = |input: &InputFile| {
        let slashes = input.name.match_indices('/');
        let mut directories = slashes.map(|(at, _)| input.name[..at].to_string());
        directories.find(|directory| files.contains(directory.as_str()))
    };
    same.map(|pair| pair[0].name.as_str()).or_else(|| {
        let directory = sorted.iter().find_map(above)?;
        files.get(directory.as_str()).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn input(name: &str, size: u64) -> InputFile {
        InputFile {
            name: name.to_string(),
            sha256: InputHash::of_digest(&[7; 32]),
            size,
            executable: false,
        }
    }

    #[test]
    fn a_hash_has_one_way_to_be_written() {
        let digits = "0a".repeat(32);
        let hash: InputHash = digits.parse().unwrap();
        assert_eq!(hash, InputHash::of_digest(&[10; 32]));
        assert_eq!(serde_json::to_string(&hash).unwrap(), format!("{digits:?}"));
        for bad in ["", "0A".repeat(32).as_str(), &digits[1..], &"g".repeat(64)] {
            assert_eq!(bad.parse::<InputHash>(), Err(InputHashError), "{bad}");
        }
    }

    #[test]
    fn inputs_are_sorted_so_that_the_files_of_a_directory_follow_each_other() {
        let names = ["b", "a.x", "a/c", "a/b/z", "a-x"];
        let inputs = names.iter().map(|name| input(name, 1)).collect();
        let sorted = check_inputs(inputs, false).unwrap();
        let sorted: Vec<&str> = sorted.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(sorted, ["a/b/z", "a/c", "a-x", "a.x", "b"]);
    }

    #[test]
    fn what_cannot_be_put_into_the_step_s_directory_is_refused_with_the_way_out() {
        let many = (0..=MAX_INPUTS)
            .map(|n| input(&format!("{n}"), 1))
            .collect();
        let long = format!("{}/a", "a".repeat(300));
        let deep = "a/".repeat(MAX_DEPTH) + "a";
        let half = MAX_INPUTS_BYTES / 2 + 1;
        let of = |name: &str| vec![input("fine", 1), input(name, 1)];
        for (inputs, has_workdir, field, words) in [
            (of("a"), true, "inputs", "leave out one of them"),
            (of(""), false, "inputs[1].name", "not the name of a file"),
            (
                of("/etc/a"),
                false,
                "inputs[1].name",
                "not beginning with `/`",
            ),
            (of("a/../../b"), false, "inputs[1].name", "without `..`"),
            (of("a//b"), false, "inputs[1].name", "not the name"),
            (of("a/"), false, "inputs[1].name", "not the name"),
            (of("a\nb"), false, "inputs[1].name", r"`a\nb` is not"),
            (of(&long), false, "inputs[1].name", "not the name"),
            (
                of(&"a".repeat(2000)),
                false,
                "inputs[1].name",
                "longer than",
            ),
            (of(&deep), false, "inputs[1].name", "directories deep"),
            (of("fine"), false, "inputs", "`fine` is there twice"),
            (of("fine/a"), false, "inputs", "a file and a directory"),
            (many, false, "inputs", "pack them into an archive"),
            (
                vec![input("a", half), input("b", half)],
                false,
                "inputs",
                "where hosts can read it",
            ),
        ] {
            let error = check_inputs(inputs, has_workdir).unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert!(error.message.contains(words), "{error}");
        }
        assert_eq!(check_inputs(Vec::new(), true), Ok(Vec::new()));
    }
}
