//! `supervisor.toml`: who steps may run as, where, and within which limits. Trusted as far as its file is: whoever can write
//! it decides who becomes whom, so one that others can write is refused.
//!
//! `sluice-helper` takes the text apart, as nobody's user. What it answers is checked again here where a promise hangs on
//! it, and who can have written the hooks; who steps run as is `identity`'s to find out.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::resource::Resource;
use sluice_codec::{CodecError, decode};
use sluice_common::config::escape_controls;
use sluice_common::helper::{READ_CONFIG, SHOW_CONFIG};
use sluice_common::supervisor_config::{
    CheckedConfig, ConfigFileError, MAX_ANSWER_BYTES, SupervisorConfig,
};

use crate::helper_program::HelperProgram;
use crate::hooks;
use crate::trust::untrusted_reason;

/// In such a directory nobody may replace what is another's.
const STICKY: u32 = 0o1000;

/// All bits that a umask has.
const UMASK_BITS: u32 = 0o777;

/// Where this host has what moves the memory of GPUs, if not where it is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuda {
    /// The driver's library.
    pub library: Option<PathBuf>,
    /// The tool `cuda-checkpoint`.
    pub tool: Option<PathBuf>,
}

/// What is wrong with a config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read config {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else may have written it.
    #[error("config {}: {reason}, and it says who steps run as: {way_out}", path.display())]
    Untrusted {
        /// Which.
        path: PathBuf,
        /// What gives others a hand in it.
        reason: String,
        /// What to do.
        way_out: String,
    },
    /// It is not understood, or a value means nothing.
    #[error("config {}: {}", path.display(), escape_controls(&mistake.to_string()))]
    Mistake {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        mistake: ConfigFileError,
    },
    /// What the helper answers is not what it was asked for.
    #[error("config {}: sluice-helper answers nonsense: install it and sluice-supervisor from one release", path.display())]
    Answer {
        /// Which.
        path: PathBuf,
        /// Why it cannot be, where the bytes say it.
        source: Option<CodecError>,
    },
    /// What it comes to cannot be shown.
    #[error("cannot show the config")]
    Show(#[source] io::Error),
}

/// Reads a file that nobody but root and the supervisor's own user can have written. Its agent is a number.
///
/// # Errors
/// Where others could have, or it is not understood.
pub fn read(path: &Path) -> Result<SupervisorConfig, ConfigError> {
    let cannot = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let nonsense = |source| ConfigError::Answer {
        path: path.to_owned(),
        source,
    };
    let file = open_trusted(path)?;
    let helper = HelperProgram::installed().map_err(cannot)?;
    let answer = helper.ask(READ_CONFIG, &file).map_err(cannot)?;
    let answer = decode::<Result<SupervisorConfig, ConfigFileError>>(&answer, MAX_ANSWER_BYTES);
    let config = answer.map_err(|e| nonsense(Some(e)))?;
    let mistaken = |mistake| match mistake {
        ConfigFileError::Unreadable(why) => cannot(io::Error::other(escape_controls(&why))),
        mistake => ConfigError::Mistake {
            path: path.to_owned(),
            mistake,
        },
    };
    let mut config = config.map_err(mistaken)?;
    if !is_sound(&config) {
        return Err(nonsense(None));
    }
    hooks::check_programs(&config.hooks).map_err(mistaken)?;
    config.steps.file = Some(path.display().to_string());
    Ok(config)
}

/// What a config comes to, for whoever checks it.
///
/// # Errors
/// If the helper does not say it.
pub fn show(checked: &CheckedConfig) -> Result<String, ConfigError> {
    let show = || {
        let text = HelperProgram::ask_about(SHOW_CONFIG, checked)?;
        String::from_utf8(text).map_err(io::Error::other)
    };
    show().map_err(ConfigError::Show)
}

/// Whether what the helper has understood is what it says of a file without a mistake.
fn is_sound(config: &SupervisorConfig) -> bool {
    let steps = &config.steps;
    let paths = steps.workdirs.iter().flatten();
    let mut paths = paths
        .chain(&config.cuda_library)
        .chain(&config.cuda_checkpoint);
    paths.all(|path| Path::new(path).is_absolute())
        && config
            .agent
            .as_ref()
            .is_none_or(|agent| agent.uid().is_some())
        && steps.uid_range.uids().is_ok()
        && steps.umask.is_none_or(|mask| mask <= UMASK_BITS)
        && steps.limits.iter().all(|(name, _)| rlimit(name).is_some())
}

/// What a limit of each process is of, by its name.
pub fn rlimit(name: &str) -> Option<Resource> {
    let resource = match name {
        "cpu_seconds" => Resource::RLIMIT_CPU,
        "nofile" => Resource::RLIMIT_NOFILE,
        "nproc" => Resource::RLIMIT_NPROC,
        "address_space" => Resource::RLIMIT_AS,
        "core" => Resource::RLIMIT_CORE,
        "data" => Resource::RLIMIT_DATA,
        "file_size" => Resource::RLIMIT_FSIZE,
        "memlock" => Resource::RLIMIT_MEMLOCK,
        "stack" => Resource::RLIMIT_STACK,
        _ => return None,
    };
    Some(resource)
}

/// Opens a file that nobody but root and this process's user can have written.
fn open_trusted(path: &Path) -> Result<File, ConfigError> {
    let cannot = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let untrusted = |(reason, way_out): (String, String)| ConfigError::Untrusted {
        path: path.to_owned(),
        reason,
        way_out,
    };
    // Not to hang on what is no file; what it is, is looked at next.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(cannot(io::Error::other("it is not a regular file")));
    }
    let own = nix::unistd::geteuid().as_raw();
    let real = fs::canonicalize(path).map_err(cannot)?;
    untrusted_reason(&found, own, &real).map_or(Ok(()), |why| Err(untrusted(why)))?;
    let dir = real
        .parent()
        .expect("a regular file stands in some directory");
    let around = fs::metadata(dir).map_err(cannot)?;
    // Whoever may replace the file need not be able to write it.
    match around.mode() & STICKY {
        0 => untrusted_reason(&around, own, dir).map_or(Ok(file), |why| Err(untrusted(why))),
        _ => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_codec::encode;
    use sluice_common::supervisor_config::{UidRangeSetting, UserRef};
    use sluice_fuzz::Fuzz;
    use std::os::unix::fs::PermissionsExt;

    /// An answer in the form that it is asked for in is believed or not, and nothing else is taken for one.
    #[test]
    fn answers_of_the_helper() {
        // `serde` makes room for a list of a length that is claimed, up to 1 MiB at a time.
        let target = Fuzz::new("config-answer").memory(4 << 20, 256);
        target.run(|input| {
            let found =
                decode::<Result<SupervisorConfig, ConfigFileError>>(input, MAX_ANSWER_BYTES);
            if let Ok(found) = found {
                let _ = found.as_ref().map(is_sound);
                assert_eq!(encode(&found, MAX_ANSWER_BYTES).unwrap(), input);
            }
        });
    }

    #[test]
    fn what_the_helper_would_not_say_of_a_good_file_is_not_believed() {
        assert!(is_sound(&SupervisorConfig::default()));
        let with = |change: fn(&mut SupervisorConfig)| {
            let mut config = SupervisorConfig::default();
            change(&mut config);
            is_sound(&config)
        };
        assert!(with(|it| it.steps.workdirs = Some(vec!["/data".to_owned()])));
        assert!(!with(|it| it.steps.workdirs = Some(vec!["data".to_owned()])));
        assert!(!with(|it| it.cuda_library = Some("libcuda.so.1".to_owned())));
        assert!(!with(|it| it.cuda_checkpoint = Some("tool".to_owned())));
        assert!(!with(
            |it| it.steps.uid_range = UidRangeSetting::Given([9, 8])
        ));
        assert!(with(|it| it.agent = Some(UserRef::Uid(7))));
        assert!(!with(|it| it.agent = Some(UserRef::Name("a".to_owned()))));
        assert!(!with(|it| it.steps.umask = Some(0o1000)));
        assert!(!with(|it| it.steps.limits = vec![("nofiles".to_owned(), 1)]));
    }

    #[test]
    fn a_file_that_others_can_write_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        fs::write(&path, "").unwrap();
        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        for (mode, refused) in [(0o600, false), (0o644, false), (0o664, true), (0o646, true)] {
            chmod(&path, mode);
            let read = open_trusted(&path).map_err(|e| e.to_string());
            assert_eq!(read.is_err(), refused, "{mode:o}");
            assert!(read.err().is_none_or(|told| told.contains("`chmod go-w /")));
        }
        chmod(&path, 0o600);
        chmod(dir.path(), 0o777);
        assert!(
            open_trusted(&path).is_err(),
            "the directory lets it be replaced"
        );
        chmod(dir.path(), 0o1777);
        assert!(open_trusted(&path).is_ok(), "in a sticky one it cannot be");
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            // Only root can give a file away.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        fs::write(&path, "").unwrap();
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        let told = open_trusted(&path).unwrap_err().to_string();
        assert!(
            told.contains("belongs to user 1234") && told.contains("`chown root"),
            "{told}"
        );
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(matches!(open_trusted(&path), Err(ConfigError::Read { .. })));
        assert!(matches!(
            open_trusted(dir.path()),
            Err(ConfigError::Read { .. })
        ));
    }
}
