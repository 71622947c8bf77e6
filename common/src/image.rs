//! Images of steps, and the container runtimes of hosts that run them. [`ContainerRuntime::for_form`] is the only table of
//! which runtime runs which form of an image.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest image, in bytes: paths of Linux are no longer than 4096, and references of registries no longer than 512.
pub const MAX_IMAGE_BYTES: usize = 1024;

/// Prefix of references in Apptainer's and Podman's spelling.
const DOCKER_SCHEME: &str = "docker://";

/// Ending of the files of Apptainer's images.
const SIF_ENDING: &str = ".sif";

/// Ending of the files of Enroot's images.
const SQSH_ENDING: &str = ".sqsh";

/// Image in which a step runs: a reference to a registry, or the absolute path of a file or directory of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct Image(String);

/// Form of an image, which decides what can run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ImageKind {
    /// A reference to a registry, such as `docker.io/library/python:3.12`.
    Registry,
    /// An image file of Apptainer, which ends in `.sif`.
    Sif,
    /// A directory with an unpacked root file system.
    Directory,
    /// An image file of Enroot: a root file system in squashfs, which ends in `.sqsh`.
    Sqsh,
}

/// Error for a text that is not an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` is not an image: {problem}")]
pub struct ImageError {
    /// The rejected text, escaped and cut.
    shown: String,
    problem: &'static str,
}

/// Number of characters of an image that messages quote.
const SHOWN_CHARS: usize = 120;

const NO_REGISTRY: &str = "it names no registry: write a reference with its registry, such as `docker.io/library/python:3.12`, or the absolute path of a `.sif` or `.sqsh` file or of a directory with a root file system";

impl Image {
    /// Checks an image. A reference loses its `docker://`.
    ///
    /// # Errors
    /// If the text is too long, or neither a reference with its registry nor an absolute path.
    pub fn new(text: &str) -> Result<Self, ImageError> {
        let reference = text.strip_prefix(DOCKER_SCHEME);
        let problem = match reference {
            _ if text.len() > MAX_IMAGE_BYTES => Some("it has more than 1024 bytes"),
            None if text.is_empty() => Some("it is empty"),
            None if text.starts_with('/') => path_problem(text),
            _ => reference_problem(reference.unwrap_or(text)),
        };
        match problem {
            None => Ok(Self(reference.unwrap_or(text).into())),
            Some(problem) => {
                let shown = text.chars().take(SHOWN_CHARS);
                Err(ImageError {
                    shown: shown.flat_map(char::escape_default).collect(),
                    problem,
                })
            }
        }
    }

    /// The reference without a scheme, or the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The form of the image, by its text alone.
    pub fn form(&self) -> ImageKind {
        match self.0.strip_prefix('/') {
            None => ImageKind::Registry,
            Some(path) if path.ends_with(SIF_ENDING) => ImageKind::Sif,
            Some(path) if path.ends_with(SQSH_ENDING) => ImageKind::Sqsh,
            Some(_) => ImageKind::Directory,
        }
    }
}

fn path_problem(path: &str) -> Option<&'static str> {
    if path.chars().any(char::is_control) {
        return Some("a path may not contain control characters");
    }
    if path.split('/').any(|part| part == "..") {
        return Some("a path may not contain `..`");
    }
    path.trim_matches('/')
        .is_empty()
        .then_some("the root of the host is no image: leave out `image` to run on the host")
}

/// Why a text is no reference of the form `REGISTRY/NAME[:TAG][@DIGEST]`.
fn reference_problem(text: &str) -> Option<&'static str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let Some((registry, name)) = text.split_once('/') else {
        return Some(NO_REGISTRY);
    };
    let is_registry = registry == "localhost" || registry.contains(['.', ':']);
    if !is_registry || registry.contains('@') || registry.starts_with('.') {
        return Some(NO_REGISTRY);
    }
    let parts = || text.split(['/', ':', '@']);
    if !text.chars().all(is_allowed) || name.is_empty() {
        return Some("a reference consists of letters, digits and `. _ - / : @`");
    }
    parts()
        .any(|part| !part.starts_with(|c: char| c.is_ascii_alphanumeric()))
        .then_some("each part of a reference begins with a letter or digit")
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Image {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        Self::new(text)
    }
}

impl TryFrom<String> for Image {
    type Error = ImageError;

    fn try_from(text: String) -> Result<Self, ImageError> {
        Self::new(&text)
    }
}

impl From<Image> for String {
    fn from(image: Image) -> Self {
        image.0
    }
}

impl ImageKind {
    /// All forms, in the order of the documentation.
    pub const ALL: [ImageKind; 4] = [
        ImageKind::Registry,
        ImageKind::Sif,
        ImageKind::Sqsh,
        ImageKind::Directory,
    ];

    /// The form as a noun for messages.
    pub const fn noun(self) -> &'static str {
        match self {
            ImageKind::Registry => "an image of a registry",
            ImageKind::Sif => "a `.sif` image",
            ImageKind::Sqsh => "a `.sqsh` image",
            ImageKind::Directory => "a directory with a root file system",
        }
    }
}

/// Program of a host that runs steps in images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContainerRuntime {
    /// Apptainer, which needs neither root nor a daemon.
    Apptainer,
    /// bubblewrap, which needs nothing but the kernel.
    Bubblewrap,
    /// Podman, which starts a monitor beside each container.
    Podman,
    /// Singularity, whose command line is Apptainer's.
    Singularity,
    /// Enroot, which shows an image by FUSE and needs neither root nor a daemon.
    Enroot,
}

/// Usable runtimes of a host, with their versions.
pub type ContainerRuntimes = BTreeMap<ContainerRuntime, String>;

/// Directories in which runtimes are looked up: neither a step's nor the agent's `PATH` counts.
pub const RUNTIME_DIRECTORIES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/opt/apptainer/bin"];

/// `PATH` of a runtime, which runs programs of its own.
pub const RUNTIME_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl ContainerRuntime {
    /// All runtimes, in the order of their names.
    pub const ALL: [ContainerRuntime; 5] = [
        ContainerRuntime::Apptainer,
        ContainerRuntime::Bubblewrap,
        ContainerRuntime::Enroot,
        ContainerRuntime::Podman,
        ContainerRuntime::Singularity,
    ];

    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ContainerRuntime::Apptainer => "apptainer",
            ContainerRuntime::Bubblewrap => "bubblewrap",
            ContainerRuntime::Enroot => "enroot",
            ContainerRuntime::Podman => "podman",
            ContainerRuntime::Singularity => "singularity",
        }
    }

    /// Name of the program's file.
    pub const fn program(self) -> &'static str {
        match self {
            ContainerRuntime::Bubblewrap => "bwrap",
            other => other.as_str(),
        }
    }

    /// The runtimes that run images of a form, best first: those whose containers are plain children of the step before
    /// those that need a process of their own, and those that need one user id before those that need many. Enroot is last,
    /// because it packs an image of a registry anew for each start. Podman runs a directory only for its owner, and Enroot
    /// writes into it, so they run none here.
    pub const fn for_form(form: ImageKind) -> &'static [ContainerRuntime] {
        use ContainerRuntime::{Apptainer, Bubblewrap, Enroot, Podman, Singularity};
        match form {
            ImageKind::Registry => &[Apptainer, Singularity, Podman, Enroot],
            ImageKind::Sif => &[Apptainer, Singularity],
            ImageKind::Sqsh => &[Enroot],
            ImageKind::Directory => &[Bubblewrap, Apptainer, Singularity],
        }
    }

    /// The runtime of a host for images of a form; `None` if the host has none.
    pub fn choose(form: ImageKind, runtimes: &ContainerRuntimes) -> Option<Self> {
        let mut known = Self::for_form(form).iter().copied();
        known.find(|runtime| runtimes.contains_key(runtime))
    }

    /// Names of the runtimes for a form, for messages: `apptainer, singularity or podman`.
    pub fn names_for(form: ImageKind) -> String {
        let mut names = String::new();
        let known = Self::for_form(form);
        for (at, runtime) in known.iter().enumerate() {
            let before = match at {
                0 => "",
                at if at + 1 == known.len() => " or ",
                _ => ", ",
            };
            names.push_str(&format!("{before}{runtime}"));
        }
        names
    }
}

impl fmt::Display for ContainerRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn each_form_is_told_by_its_text() {
        for (text, form) in [
            ("docker.io/library/python:3.12", ImageKind::Registry),
            (
                "docker://nvcr.io/nvidia/pytorch:24.01-py3",
                ImageKind::Registry,
            ),
            ("localhost/own", ImageKind::Registry),
            ("host:5000/a/b@sha256:0123abc", ImageKind::Registry),
            ("/images/train.sif", ImageKind::Sif),
            ("/images/train.sqsh", ImageKind::Sqsh),
            ("/images/debian", ImageKind::Directory),
            ("/images/with a space: and more/", ImageKind::Directory),
        ] {
            let image = Image::new(text).unwrap();
            assert_eq!(image.form(), form, "{text}");
            let bare = text.strip_prefix("docker://").unwrap_or(text);
            assert_eq!(image.as_str(), bare);
            assert_eq!(Image::new(image.as_str()), Ok(image));
        }
    }

    #[test]
    fn what_is_no_image_is_named_with_the_way_out() {
        for (text, words) in [
            ("", "it is empty"),
            ("python:3.12", "such as `docker.io/library/python:3.12`"),
            ("library/python", "names no registry"),
            ("docker:///images/a", "names no registry"),
            ("docker://", "names no registry"),
            (
                "images/a.sif",
                "the absolute path of a `.sif` or `.sqsh` file",
            ),
            ("./rootfs", "the absolute path of"),
            ("-v/x.y", "names no registry"),
            ("quay.io/-x", "begins with a letter or digit"),
            ("quay.io/a b", "letters, digits and"),
            ("quay.io/", "letters, digits and"),
            ("quay.io/a:", "begins with a letter or digit"),
            ("/", "leave out `image`"),
            ("/a/../etc", "may not contain `..`"),
            ("/a\u{1b}[2J", "control characters"),
        ] {
            let error = Image::new(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains('\u{1b}'), "{error}");
        }
        let long = Image::new(&"/x".repeat(600)).unwrap_err().to_string();
        assert!(long.contains("more than 1024 bytes") && long.len() < 300);
    }

    #[test]
    fn a_host_runs_an_image_by_the_best_of_its_runtimes() {
        let host = |names: &[ContainerRuntime]| {
            let names = names.iter().map(|it| (*it, "1.0".to_string()));
            names.collect::<ContainerRuntimes>()
        };
        use ContainerRuntime::{Apptainer, Bubblewrap, Podman};
        let both = host(&[Podman, Bubblewrap]);
        let choose = ContainerRuntime::choose;
        assert_eq!(choose(ImageKind::Directory, &both), Some(Bubblewrap));
        assert_eq!(choose(ImageKind::Registry, &both), Some(Podman));
        assert_eq!(choose(ImageKind::Sif, &both), None);
        assert_eq!(choose(ImageKind::Directory, &host(&[Podman])), None);
        let all = host(&ContainerRuntime::ALL);
        assert_eq!(choose(ImageKind::Registry, &all), Some(Apptainer));
        for form in ImageKind::ALL {
            assert_eq!(choose(form, &host(&[])), None);
        }
        assert_eq!(
            ContainerRuntime::names_for(ImageKind::Registry),
            "apptainer, singularity, podman or enroot"
        );
    }
}
